"""What a person sees of random generators: as they stand, over a run, and two runs held against each other."""
