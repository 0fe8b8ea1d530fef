"""Whose name and which line: what a person calls things, who holds them, and where their own code is running."""
