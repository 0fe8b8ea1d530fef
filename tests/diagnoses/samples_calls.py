"""Hand-made traces with what single calls did, for the rules that read it."""

from __future__ import annotations

from tensormagic.reports import Cell, Location, Observation, Operand, TraceReport

LINE = Location("train.py", 12, "out = model(x)")
MADE = Location("train.py", 3, "w = torch.empty(3)")


def tensor(name="x", shape=(4, 4), **facts):
    """Return an operand that is a float32 tensor on the CPU."""
    given = {"dtype": "float32", "device": "cpu", "layout": "strided", **facts}
    return Operand(name=name, shape=shape, **given)


def seen(kind, op, **facts):
    """Return a trace of one run in which the line `LINE` did one thing."""
    one = Observation(kind=kind, op=op, **{"location": 0, **facts})
    return traced(one)


def traced(*observations, steps=10, locations=(LINE, MADE)):
    """Return a trace of ``steps`` steps with these observations."""
    return TraceReport(
        title="net", state="finished", cell=Cell("train.py", None, ()), seconds=1.0, own_seconds=0.1,
        locations=locations, steps_seen=steps, observations=observations,
    )  # fmt: skip


def waiting(op, calls, **facts):
    """Return what is seen where the host waits ``calls`` times, in every call of a line, for ``cuda:0``."""
    given = {"location": 0, "detail": "cuda:0", "looked": calls, "seen": calls, **facts}
    return Observation(kind="synchronised", op=op, calls=calls, **given)
