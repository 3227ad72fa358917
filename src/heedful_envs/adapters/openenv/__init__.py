"""Environments behind a server that speaks the protocol of OpenEnv."""
