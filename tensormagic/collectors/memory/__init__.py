"""What is alive in memory: who holds it, what `del` would free, and snapshots of a CUDA device."""
