"""Single calls of the forward that are worth a look."""
