"""World generation."""
