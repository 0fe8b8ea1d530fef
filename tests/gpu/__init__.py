"""What only a GPU can show; see `__main__`."""
