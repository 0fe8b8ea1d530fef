"""What a session keeps."""
