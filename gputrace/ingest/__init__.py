"""Bytes to marks and samples. Knows formats, not provers."""
