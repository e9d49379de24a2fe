"""Findings to text, JSON and HTML. A renderer has one method, `render(trace, diagnosis) -> str`."""
