"""What a step is measured with: the diagnostician and the scorers it reads through."""
