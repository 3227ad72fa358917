"""textarena."""
