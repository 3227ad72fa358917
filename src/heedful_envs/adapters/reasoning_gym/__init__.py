"""Datasets of reasoning-gym, answered in free text."""
