"""Environments of gymnasium with a discrete action space, as games in words."""
