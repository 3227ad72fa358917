"""Several processes: ranks, collectives, shards."""
