"""Other trainers, with the filter and the diagnostics of heedful inside. One folder per trainer."""

__all__ = ["trl"]
