"""Larger environments of heedful, found through the entry points `heedful.environments`."""
