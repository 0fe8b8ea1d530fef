"""What the losses of two compared runs do, for who hears them: where both begin, end, and are furthest apart."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensormagic.reports.comparison import ComparisonReport, LossPair
from tensormagic.words import plural, short_number, shortened

NAME = 48


def losses_alternative(report: ComparisonReport) -> str:
    """Return both losses, first and last, the first that is not finite, and the step at which they differ most."""
    pairs = report.losses
    names = [shortened(side.name, NAME) for side in (report.left, report.right)]
    runs = (
        f"{name} {_course(pairs, [getattr(pair, side) for pair in pairs])}"
        for name, side in zip(names, ("left", "right"), strict=True)
    )
    return f"Loss over {plural(len(pairs), 'step')}: {'; '.join(runs)}{_apart(pairs)}."


def _course(pairs: Sequence[LossPair], values: Sequence[float | None]) -> str:
    known = [(pair.step, value) for pair, value in zip(pairs, values, strict=True) if value is not None]
    if not known:
        return "has none"
    bad = next((step for step, value in known if not math.isfinite(value)), None)
    broken = "" if bad is None else f", not finite from step {bad}"
    return f"from {short_number(known[0][1])} to {short_number(known[-1][1])}{broken}"


def _apart(pairs: Sequence[LossPair]) -> str:
    differences = [
        (abs(pair.left - pair.right), pair)
        for pair in pairs
        if pair.left is not None and pair.right is not None and math.isfinite(pair.left - pair.right)
    ]
    difference, pair = max(differences, key=lambda one: one[0], default=(0.0, None))
    if pair is None:
        return ""
    if not difference:
        return "; equal at every step where both are finite"
    ends = f"{short_number(pair.left)} and {short_number(pair.right)}"
    return f"; furthest apart at step {pair.step}: {ends}"
