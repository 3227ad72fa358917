"""verl's batches: rows in its queue, groups, scores, losses, and the observer of all of them."""
