"""What a step will cost: tokens, memory and time."""
