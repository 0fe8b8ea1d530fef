"""Promises held against everything that torch's own test tables know; run whole by ``make sweep``, sampled by tests."""
