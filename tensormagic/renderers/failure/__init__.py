"""A call that torch refused."""
