"""Exactness of scorer, sampler and learner for each family of models that people train today."""
