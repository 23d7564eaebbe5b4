"""Rules about texts that need no model: similarity, unsafe characters, lenient JSON."""
