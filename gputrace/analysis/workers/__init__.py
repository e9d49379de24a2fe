"""How the workers of a GPU share it: who waits for whom, and how short the same calls could have taken."""
