"""Environments over HTTP: the sessions, the requests that are understood, and the server that listens.

Promise: standard library only; whatever a client sends, it is answered in a sentence and disturbs no other session.
"""
