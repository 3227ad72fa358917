"""What a shop sells: products and goals, drawn or prepared from files, and the search over them."""
