"""One tensor: as a panel, as a picture, as text."""
