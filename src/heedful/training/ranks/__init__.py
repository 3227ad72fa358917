"""Several processes: ranks, collectives, shards."""

__all__: list[str] = []
