"""Chat templates and replies: how messages become ids, and what a reply says."""
