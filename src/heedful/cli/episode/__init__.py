"""What the commands that play one episode share."""
