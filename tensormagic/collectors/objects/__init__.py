"""What a session holds, and what a user calls it: names, modules, leaves, and what objects refer to."""
