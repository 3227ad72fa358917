"""Configurations for verl's hydra: `hydra.searchpath=[pkg://heedful.integrations.verl.conf]`."""
