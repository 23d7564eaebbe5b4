"""Compiled batches of environments and their threads."""
