"""Views: they read a run folder and show it; deleting them breaks nothing."""
