"""Two series of gradient norms, step by step: how far they are apart, from when on, and where one is no number."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensormagic.reports import UNTOUCHED
from tensormagic.reports.comparison import APART, Moment, NormDifference

_SAME = 1e-5  # relative: what differs by less is the same to five digits


def compare_norms(steps: Sequence[int], left: Sequence[float], right: Sequence[float]) -> NormDifference:
    """Return how two series of norms, one a step, differ."""
    moments = [Moment(step, a, b, ratio(a, b)) for step, a, b in zip(steps, left, right, strict=True)]
    if not moments:
        return NormDifference(0)
    bad = [[moment.step for moment, norm in zip(moments, series, strict=True) if not math.isfinite(norm)]
           for series in (left, right)]  # fmt: skip
    apart = _apart(moments)
    return NormDifference(
        compared=len(moments),
        first=moments[0],
        last=moments[-1],
        worst=_worst(moments),
        from_step=apart[0].step if apart else None,
        apart_steps=len(apart),
        same=all(_same(moment.left, moment.right) for moment in moments),
        bad_left=len(bad[0]),
        bad_right=len(bad[1]),
        bad_from_left=min(bad[0], default=None),
        bad_from_right=min(bad[1], default=None),
        silent_left=sum(norm == UNTOUCHED for norm in left),
        silent_right=sum(norm == UNTOUCHED for norm in right),
    )


def ratio(left: float, right: float) -> float:
    """Return log10(right / left): infinite where one is zero, NaN where one is no norm."""
    if not (math.isfinite(left) and math.isfinite(right)) or left < 0 or right < 0:
        return math.nan
    if left == right:
        return 0.0
    if not (left and right):
        return math.inf if right else -math.inf
    return math.log10(right) - math.log10(left)


def _same(left: float, right: float) -> bool:
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) and math.isnan(right)
    return left == right or math.isclose(left, right, rel_tol=_SAME)


def _worst(moments: Sequence[Moment]) -> Moment | None:
    known = [moment for moment in moments if not math.isnan(moment.ratio)]
    return max(known, key=lambda moment: abs(moment.ratio), default=None)


def _apart(moments: Sequence[Moment]) -> list[Moment]:
    """Return the moments at the end in all of which one is `APART` times the other, and always the same one."""
    found: list[Moment] = []
    direction = math.copysign(1.0, moments[-1].ratio)
    for moment in reversed(moments):
        if math.isnan(moment.ratio) or moment.ratio * direction < math.log10(APART):
            break
        found.insert(0, moment)
    return found
