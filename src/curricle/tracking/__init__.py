"""What a run keeps beside its records: checkpoints, its environment, and metrics for other tools."""
