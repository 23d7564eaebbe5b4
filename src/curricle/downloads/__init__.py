"""Downloads: files that are fetched once and kept in the user's cache."""
