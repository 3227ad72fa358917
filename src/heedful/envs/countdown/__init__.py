"""Countdown."""
