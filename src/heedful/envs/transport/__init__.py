"""What a picture of an observation may be, and how it travels between processes or machines."""
