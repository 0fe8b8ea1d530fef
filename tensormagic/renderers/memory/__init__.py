"""The pictures of memory: what is alive now, and what a run did to it."""
