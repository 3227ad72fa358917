"""The version of heedful, as pages and files name it."""

__version__ = "0.1.0"
