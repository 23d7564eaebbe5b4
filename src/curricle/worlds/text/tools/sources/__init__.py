"""Base tasks from benchmark data on disk."""
