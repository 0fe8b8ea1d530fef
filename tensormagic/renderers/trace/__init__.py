"""A traced run: as a panel, as a picture, as text."""
