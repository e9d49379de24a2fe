"""A run as it happens: on a screen and for a monitoring system."""
