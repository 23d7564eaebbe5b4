"""Worlds: implementations of `curricle.world`, one file or folder each."""
