"""What is told of a run that is watched: the terminal, a status for programs, a live page, webhooks, trackers, a stop.

Promise: a sink only reads what was measured. One that fails is told of once, and the watch goes on.
"""
