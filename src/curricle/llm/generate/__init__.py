"""Sampling from the models of `llm/models`."""
