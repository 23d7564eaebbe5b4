"""What a player sees: pixels, symbols, text."""
