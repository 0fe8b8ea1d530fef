"""What a session holds, and what a person calls it: names, modules, leaves, and what objects refer to."""
