"""Questions whose answers are found by searching in passages."""
