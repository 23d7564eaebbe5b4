"""Everything that only a GPU needs."""
