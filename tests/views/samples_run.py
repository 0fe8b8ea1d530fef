"""Hand-made runs of which several things were asked: with findings about one line, with none, that failed, hostile."""

from __future__ import annotations

from dataclasses import replace

from tensormagic.diagnoses.rule import joined
from tensormagic.reports import Gap, RunReport
from tests.views import samples_memory_run, samples_rng, samples_trace, samples_writes


def asked(**facts) -> RunReport:
    """Return a run with the findings of its parts."""
    report = RunReport(**{"cell": facts["trace"].cell, "state": "finished", "seconds": 1.5, **facts})
    return replace(report, findings=joined(report.parts))


def every() -> RunReport:
    """All questions; a write and a gradient are found on one line."""
    writes, trace = samples_writes.effects(), samples_trace.broken()
    one, *others = trace.findings
    trace = replace(trace, findings=(replace(one, location=writes.findings[0].location), *others))
    parts = {"memory": samples_memory_run.training(), "writes": writes, "draws": samples_rng.run()}
    return asked(trace=trace, title="net", **parts)


def healthy() -> RunReport:
    """Two questions, and nothing found."""
    return asked(trace=samples_trace.one_pass(), writes=samples_writes.nothing())


def failed() -> RunReport:
    """A run that raised, of which the live panel could not show everything."""
    trace = samples_trace.failed()
    gaps = (Gap("live panel", "OSError: the connection was closed"),)
    return asked(trace=trace, draws=samples_rng.run(), state=trace.state, error=trace.error, gaps=gaps)


def full() -> RunReport:
    """One that fills every part."""
    return replace(every(), state="failed", error="ValueError: <b>", gaps=(Gap("live panel", "OSError: closed"),))


SAMPLES = {make.__name__: make() for make in (every, healthy, failed)} | {"hostile": full()}
