"""Signs of causes that no single phase shows: one module each, gathered by `signs` for blame and verdicts."""
