"""Shared memory, many tensors and watched writes: as panels and as text."""
