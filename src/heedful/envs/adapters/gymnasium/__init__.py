"""gymnasium."""
