"""What is recorded about a run beside its results."""
