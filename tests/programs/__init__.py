"""Programs that use everything autograd does: each run with and without the tracer, and what it must show."""
