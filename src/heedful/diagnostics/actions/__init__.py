"""What agents do, and whether their thoughts decide it."""
