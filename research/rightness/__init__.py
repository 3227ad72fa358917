"""The registered tests of the split of rightness: rules, seeds and predictions first, then the runs that judge them."""
