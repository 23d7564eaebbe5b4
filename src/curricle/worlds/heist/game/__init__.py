"""State and rules."""
