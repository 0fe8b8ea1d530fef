"""What several tests use: checks that nothing is left behind, a private shell, notebooks to run."""
