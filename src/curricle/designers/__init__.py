"""Designers: implementations of `curricle.designer`."""
