"""What is put into torch while a run is followed, and comes off again: modes, replaced functions, node hooks."""
