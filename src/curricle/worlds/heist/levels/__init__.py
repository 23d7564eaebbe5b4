"""How levels are made."""
