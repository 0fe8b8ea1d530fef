"""What pictures say, in words: the text alternatives, a pure function of the report each."""
