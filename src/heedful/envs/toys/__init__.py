"""Small environments for tests and first runs: Bandit, Chain, Echo."""
