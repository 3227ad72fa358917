"""FrozenLake."""
