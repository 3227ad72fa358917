"""heedful's environments as episodes of verl."""
