"""Text worlds: tasks in words with verifiers that no generator can talk to. `docs/text.md` is their page."""
