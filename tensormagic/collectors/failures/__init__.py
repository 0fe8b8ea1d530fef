"""A call that torch refused, and what it was given."""
