"""Two traced runs side by side."""
