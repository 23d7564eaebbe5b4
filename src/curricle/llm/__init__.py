"""Talking to language models: any OpenAI-compatible endpoint, the embedded model, by hand, or recorded."""
