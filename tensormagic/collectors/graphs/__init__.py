"""The graphs that passes go through, and one that is before any."""
