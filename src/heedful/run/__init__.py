"""A run: configuration, presets, the training loop, checkpoints, evaluation, verdict."""
