"""Numbers about the gradients of a pass."""
