"""Which prompts a step trains on: surplus, filter, guard, memory."""
