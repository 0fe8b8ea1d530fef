"""Who shares memory with whom, and what a write changes."""
