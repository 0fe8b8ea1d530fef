"""Memory over a run: which line allocated what, what was alive when, and what is left."""
