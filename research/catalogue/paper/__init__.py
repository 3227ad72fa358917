"""The studies that re-test the claims of the paper (docs/results/paper.md), each beside its random control."""
