"""The commands about environments: list, check and serve them, and prepare what they play with."""
