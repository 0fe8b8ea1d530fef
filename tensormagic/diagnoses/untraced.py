"""TM402, where the step in which it began was not traced: what the gradients left at the end of the run say."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tensormagic.reports import UNTOUCHED, Finding, TraceReport
from tensormagic.words import count, is_or_are, listed, part_of


def bad_at_the_end(report: TraceReport) -> Iterator[Finding]:
    """TM402: the ``.grad`` left at the end hold NaN, and no traced pass did; a note where they hold infinities alone.

    Infinities are what a gradient scaler leaves in a step that it skips.
    """
    if report.pacing is None or not all(one.finite for one in report.passes):
        return
    pairs = zip(report.parameters, report.pacing.standing, strict=False)
    there = [(series, norm) for series, norm in pairs if norm != UNTOUCHED]
    bad = [(series, norm) for series, norm in there if not math.isfinite(norm)]
    if not bad:
        return
    nan = any(math.isnan(norm) for _, norm in bad)
    after = report.passes[-1].step if report.passes else 0
    ranges = report.pacing.ranges
    after = ranges[-1][1] if ranges else after
    names = listed([series.name for series, _ in bad])
    yield Finding(
        code="TM402",
        severity="warning" if nan else "note",
        message=f"When the run had ended, {part_of(len(bad), len(there), 'gradient')} {is_or_are(len(bad))} "
        f"{'NaN' if nan else 'infinite'} ({names}), although no traced pass had one: it began after step "
        f"{count(after)}, the last that was traced.",
        location=report.location(report.passes[-1].location) if report.passes else None,
        evidence={"parameters": len(bad), "last traced step": after, "steps": report.steps_seen},
        remedy=f"Trace the steps after it: `--steps {after + 1}:` (in a script `steps=({after + 1}, None)`).",
        subject=bad[0][0].name,
    )
