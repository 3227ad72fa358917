"""A package of somebody else: an environment, a filter and a reader of logs for heedful, with public names alone."""
