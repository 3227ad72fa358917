"""reasoning-gym."""
