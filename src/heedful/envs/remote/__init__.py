"""An environment that a server plays."""
