"""Other trainers, with the filter and the diagnostics of heedful inside: one folder per trainer.

A folder is imported by its own name, `heedful.integrations.trl`, since it needs its trainer to be installed.
"""

__all__: list[str] = []
