"""Registered studies of what moves readings and success in an update: rules first, then the runs that judge them."""
