"""A run: configuration, presets, parts, the training loop, checkpoints, evaluation, verdict."""
