"""Shop: search a catalogue, compare, choose options and buy."""
