"""Environments over HTTP: sessions, requests and the server. Standard library only.

Every request gets an answer, errors as a sentence. A faulty client cannot disturb another client's session.
"""
