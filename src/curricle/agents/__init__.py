"""Agents: implementations of `curricle.agent`, one file each."""
