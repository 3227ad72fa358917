"""Games of textarena for one player."""
