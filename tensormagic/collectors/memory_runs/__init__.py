"""A run followed by what it does to memory: what is made, by which line, and what stays."""
