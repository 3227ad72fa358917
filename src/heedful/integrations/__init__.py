"""Other trainers, with the filter and the diagnostics of heedful inside: a folder or a file per trainer.

A folder is imported by its own name, `heedful.integrations.trl`, since it needs its trainer to be installed.
"""

__all__: list[str] = []
