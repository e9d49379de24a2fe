"""How each kind of GPU trace is laid out: bytes to a grid of named columns. What a column means is in `parsers/`."""
