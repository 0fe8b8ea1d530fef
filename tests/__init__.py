"""The tests, laid out like the package. A package itself only so that `tests.support` can be imported by that name."""
