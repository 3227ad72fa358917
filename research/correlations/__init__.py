"""What the readings of finished runs say about success: correlations within runs, between runs, and ahead of time."""
