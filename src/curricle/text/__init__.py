"""Rules about texts that need no model."""
