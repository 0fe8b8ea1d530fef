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


def full() -> RunReport:
    """One that fills every part."""
    return replace(every(), state="failed", error="ValueError: <b>", gaps=(Gap("live panel", "OSError: closed"),))


FAILED = samples_trace.failed()
SAMPLES = {
    "every": every(),
    # Two questions, and nothing found.
    "healthy": asked(trace=samples_trace.one_pass(), writes=samples_writes.SAMPLES["nothing"]),
    # A run that raised, of which the live panel could not show everything.
    "failed": asked(trace=FAILED, draws=samples_rng.run(), state=FAILED.state, error=FAILED.error,
                    gaps=(Gap("live panel", "OSError: the connection was closed"),)),
    "hostile": full(),
}  # fmt: skip
