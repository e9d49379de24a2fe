"""Runs too long to be held at once: read, rebuilt and judged chapter by chapter, and put together at the end."""
