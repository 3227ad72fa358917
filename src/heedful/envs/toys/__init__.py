"""Small environments for tests and first runs: Bandit, Echo, Chain."""
