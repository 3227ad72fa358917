"""What heedful needs inside any other trainer: its batches as groups, the observer, the record of the run.

No trainer is imported here, and no torch. A folder beside this one knows one trainer and turns its batches into
`Completion`s.
"""

__all__: list[str] = []
