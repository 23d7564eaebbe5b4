"""One run by several processes."""
