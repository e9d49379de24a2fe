"""A run as it happens, or an old one replayed: what arrives, what it means at a moment, and a screen for it."""
