"""CausalModel language models that are trained."""
