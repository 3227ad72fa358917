"""What a model computes: checks of its attention, log-probabilities of tokens, shared prompts, rounding."""
