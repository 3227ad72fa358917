"""heedful inside verl: the filter, the diagnostics and the environments, without a change to verl (docs/verl.md).

Importing this package loads neither verl nor torch.
"""
