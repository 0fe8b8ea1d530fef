"""Promises compared with everything in torch's own test tables; run whole by ``make sweep``, sampled by tests."""
