"""What each device says of its memory."""
