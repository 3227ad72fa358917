"""Ranking the tasks of a pool by the variance of their rewards, on episodes that no training sees."""
