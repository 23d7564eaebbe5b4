"""Causal language models that are trained."""
