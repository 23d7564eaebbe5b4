"""Agents: implementations of `curricle.agent`, one file or folder each."""
