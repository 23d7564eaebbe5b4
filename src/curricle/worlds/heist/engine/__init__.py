"""What runs many environments at once."""
