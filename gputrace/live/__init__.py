"""A run as it happens, or an old one replayed: what arrives, what it means, on a screen and for a monitoring system."""
