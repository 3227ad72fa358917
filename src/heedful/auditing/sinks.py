"""The seam between the pipeline and its sinks, under its first name."""

from heedful.watching.sinks import Measured, Pending, Sink

__all__ = ["Measured", "Pending", "Sink"]
