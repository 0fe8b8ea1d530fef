"""CUDA memory snapshots: read without running anything that is in them, and summed up."""
