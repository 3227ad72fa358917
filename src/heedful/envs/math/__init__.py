"""Math: word problems, or the problems of a file."""
