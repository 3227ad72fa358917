"""Intervals, statistics of groups, change points: plain functions of numbers."""
