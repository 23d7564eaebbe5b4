"""Workers that share one update."""
