"""Random generators: what they are seeded with, how far they have come, and who draws from them. None is advanced."""
