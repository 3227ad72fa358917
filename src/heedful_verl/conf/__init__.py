"""Configurations for verl's hydra: `hydra.searchpath=[pkg://heedful_verl.conf]`."""
