"""The embedded language model: its weights, and how it runs."""
