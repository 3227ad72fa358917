"""OpenEnv."""
