"""What a player sees: pixels, symbols and text."""
