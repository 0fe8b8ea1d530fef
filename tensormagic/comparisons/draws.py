"""Two runs held against each other draw by draw: the first that differs is where they part."""

from __future__ import annotations

from itertools import zip_longest

from tensormagic.reports.rng import Difference, Draw, RngComparison, RngRunReport


def compare_draws(left: RngRunReport, right: RngRunReport, *, names: tuple[str, str] = ("a", "b")) -> RngComparison:
    """Return the first draw that differs between two runs.

    Lines are not held against each other: the same call from a line that has moved draws the same.

    Args:
        left: One run.
        right: The other.
        names: What to call them.
    """
    complete = len(left.draws) == left.count and len(right.draws) == right.count
    for at, (one, other) in enumerate(zip_longest(left.draws, right.draws)):
        difference = _difference(left, right, (one, other))
        if difference != "none":
            return _parted(left, right, (one, other), names=names, difference=difference, same=at, complete=complete)
    return RngComparison(names=names, same=len(left.draws), complete=complete)


def _difference(left: RngRunReport, right: RngRunReport, pair: tuple[Draw | None, Draw | None]) -> Difference:
    one, other = pair
    if one is None or other is None:
        return "end"
    if (one.op, one.kind, _name(left, one)) != (other.op, other.kind, _name(right, other)):
        return "call"
    if one.values != other.values:
        return "values"
    if one.digest == other.digest:
        return "none"
    return "state" if _start(left, one) == _start(right, other) else "start"


def _name(run: RngRunReport, draw: Draw) -> str:
    return run.before[draw.generator].name


def _start(run: RngRunReport, draw: Draw) -> str:
    return run.before[draw.generator].digest


def _parted(  # noqa: PLR0913  (two runs and their draws; the rest by name)
    left: RngRunReport,
    right: RngRunReport,
    pair: tuple[Draw | None, Draw | None],
    *,
    names: tuple[str, str],
    difference: Difference,
    same: int,
    complete: bool,
) -> RngComparison:
    runs = (left, right)
    draw = next(draw for draw in pair if draw is not None)
    run = runs[0] if pair[0] is not None else runs[1]
    places = [None if one is None else each.location(one.location) for each, one in zip(runs, pair, strict=True)]
    described = [None if one is None else each.before[one.generator] for each, one in zip(runs, pair, strict=True)]
    starts = described if difference in {"start", "state"} else [None, None]
    return RngComparison(
        names=names, difference=difference, same=same, generator=_name(run, draw), sides=pair,
        places=(places[0], places[1]), starts=(starts[0], starts[1]), complete=complete,
    )  # fmt: skip
