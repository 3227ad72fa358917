"""How observations, pictures and answers travel between processes or machines, and what is refused on arrival."""
