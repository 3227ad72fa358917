"""The studies of the paper, runnable from a checkout: `python -m research NAME`."""
