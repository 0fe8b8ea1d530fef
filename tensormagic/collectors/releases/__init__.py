"""What letting go of a name would free: every reference that is met, and who alone leads to which memory."""
