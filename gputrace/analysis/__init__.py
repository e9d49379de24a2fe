"""Frames to findings. Nothing here prints, plots or reads a file."""
