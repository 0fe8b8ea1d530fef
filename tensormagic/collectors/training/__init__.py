"""What a training loop does from step to step."""
