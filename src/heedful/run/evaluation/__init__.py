"""Success on held-out tasks: who plays, how it is counted, and what is concluded."""
