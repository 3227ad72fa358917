"""What is read from the log-probabilities of thoughts under other prompts. Each module has one question."""
