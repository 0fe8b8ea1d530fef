"""A run that is followed: its forward, every backward, and the steps that are left out."""
