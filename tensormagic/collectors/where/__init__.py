"""Which of the user's lines is running: from a frame, a traceback or a node to a place in their code."""
