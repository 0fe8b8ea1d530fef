"""The graphs that passes go through, and one that stands before any."""
