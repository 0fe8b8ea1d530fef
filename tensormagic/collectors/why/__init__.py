"""What a tensor and the names around it tell of its gradient."""
