"""TM803, TM805: what crossing from one device or dtype to another does beside what was asked."""

from __future__ import annotations

from collections.abc import Iterator

from tensormagic.diagnoses.observed import called, every_call, expression, how_often, of_kind
from tensormagic.reports import Finding, Observation, Operand, RelatedLine, TraceReport
from tensormagic.words import count, listed, plural, tuple_text

FEWEST_STEPS = 3  # fewer are no loop
MOST_LINES = 3

# -- TM803 ----------------------------------------------------------------------------------------------------------


def waits_in_every_step(report: TraceReport) -> Iterator[Finding]:
    """TM803: once a run: lines that make the host wait for a device at least once a step."""
    steps = report.steps_seen if report.pacing is None else report.passes_traced
    waits = [one for one in of_kind(report, "synchronised") if one.calls >= steps and every_call(one)]
    if steps < FEWEST_STEPS or not waits:
        return
    waits.sort(key=lambda one: -one.calls)
    first, count = waits[0], sum(one.calls for one in waits)
    lines = "" if len(waits) == 1 else f" on {plural(len(waits), 'line')}"
    yield Finding(
        code="TM803",
        severity="note",
        message=f"The host waits for {first.detail} in every step: {_what(waits)} read from it "
        f"{plural(count, 'time')} in {plural(steps, 'step')}{lines}.",
        location=report.location(first.location),
        evidence={"waits": count, "steps": steps, "device": first.detail},
        remedy="Keep the value on the device (`total += loss.detach()`), and read it once in many steps.",
        subject=first.operands[0].name if first.operands else "",
        related=tuple(_related(report, one) for one in waits[1 : 1 + MOST_LINES]),
    )


def _what(waits: list[Observation]) -> str:
    return listed(list(dict.fromkeys(one.op for one in waits)))


def _related(report: TraceReport, one: Observation) -> RelatedLine:
    location = report.location(one.location)
    assert location is not None  # `of_kind` gives no others
    return RelatedLine(f"{one.op}, {count(one.calls)} times", location)


# -- TM805 ----------------------------------------------------------------------------------------------------------


def promoted_to_double(report: TraceReport) -> Iterator[Finding]:
    """TM805: what is trained in float32 became float64 because it met data in float64: once, at the first line."""
    for one in of_kind(report, "promoted"):
        wide = next((operand for operand in one.operands if operand.dtype == "float64"), None)
        narrow = next((operand for operand in one.operands if operand.dtype != "float64"), None)
        if wide is not None and narrow is not None and narrow.requires_grad and not wide.requires_grad:
            yield _promoted_finding(report, one, narrow, wide)
            return  # what comes after is float64 for this reason


def _promoted_finding(report: TraceReport, one: Observation, narrow: Operand, wide: Operand) -> Finding:
    made = report.location(one.made)
    name = called(wide, "one operand")
    origin = ", from NumPy," if one.detail == "numpy" else ""
    code = f"`{wide.name} = {wide.name}.float()`" if wide.name.isidentifier() else "`.float()`"
    return Finding(
        code="TM805",
        severity="warning",
        message=f"{expression(one)} computes in float64 {how_often(one)}: {name}{origin} of shape "
        f"{tuple_text(wide.shape)} is float64, and takes {called(narrow, 'the other')}, {narrow.dtype}, along.",
        location=report.location(one.location),
        evidence={
            "float64": wide.name or tuple_text(wide.shape),
            narrow.dtype: narrow.name or tuple_text(narrow.shape),
        },
        remedy=f"Convert the data once: {code}; NumPy makes float64 where nothing else is asked for.",
        subject=wide.name,
        related=() if made is None else (RelatedLine("made as float64", made),),
    )
