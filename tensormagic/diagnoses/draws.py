"""TM701: random numbers that no second run will give again."""

from __future__ import annotations

from collections.abc import Iterator

from tensormagic.diagnoses.observed import of_kind
from tensormagic.reports import Finding, Observation, RelatedLine, RngRunReport, TraceReport
from tensormagic.words import count, listed, plural

MOST_LINES = 3
_SEEDS = {"torch": "`torch.manual_seed(0)`", "numpy": "give NumPy a seed", "python": "`random.seed(0)`"}


def unseeded_draws(report: TraceReport) -> Iterator[Finding]:
    """TM701: once a run: draws from a default generator whose seed torch chose itself."""
    draws = list(of_kind(report, "draw"))
    if not draws:
        return
    count = sum(one.calls for one in draws)
    names = listed(list(dict.fromkeys(one.op for one in draws)))
    rest = draws[1 : 1 + MOST_LINES]
    lines = "" if len(draws) == 1 else f" on {plural(len(draws), 'line')}"
    yield Finding(
        code="TM701",
        severity="note",
        message=f"{names} drew {plural(count, 'time')}{lines} from a generator that nobody seeded: the next run gives "
        "other numbers.",
        location=report.location(draws[0].location),
        evidence={"draws": count, "lines": len(draws), "seed": draws[0].detail},
        remedy="Where runs are to be compared: `torch.manual_seed(0)` before the model is made.",
        subject=draws[0].op,
        related=tuple(_related(report, one) for one in rest),
    )


def unseeded_run(report: RngRunReport) -> Iterator[Finding]:
    """TM701: the same of a run whose draws were watched: any generator that the system seeded, NumPy's too."""
    for index, state in enumerate(report.before):
        draws = [one for one in report.sums if one.generator == index]
        if state.seeding != "entropy" or not draws or draws[0].kind == "set":
            continue
        calls = sum(one.calls for one in draws)
        yield Finding(
            code="TM701",
            severity="note",
            message=f"{state.name} was seeded by the system, and {plural(calls, 'draw')} came from it: the next run "
            "gives other numbers.",
            location=report.location(draws[0].location),
            evidence={"draws": calls, "seed": state.seed},
            remedy=f"Where runs are to be compared: {_SEEDS[state.library]} before the model is made.",
            subject=state.name,
        )


def _related(report: TraceReport, one: Observation) -> RelatedLine:
    location = report.location(one.location)
    assert location is not None  # `of_kind` gives no others
    return RelatedLine(f"{one.op}, {count(one.calls)} times" if one.calls > 1 else one.op, location)
