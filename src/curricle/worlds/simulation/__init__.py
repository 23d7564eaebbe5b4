"""What compiled worlds share."""
