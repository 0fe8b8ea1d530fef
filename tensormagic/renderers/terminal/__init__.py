"""What only a terminal can show, and what is drawn in characters."""
