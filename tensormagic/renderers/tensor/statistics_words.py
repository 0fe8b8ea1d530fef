"""What the numbers over a tensor's values say: the same words in HTML, in text and under a figure."""

from __future__ import annotations

from tensormagic.reports import Statistics
from tensormagic.words import MINUS, count, short_count, short_number


def statistics_rows(statistics: Statistics) -> tuple[tuple[str, str, str, str], ...]:
    """Return what the header leaves out, in two columns: how far values lie apart, and how many are of which kind."""
    left = [("std", statistics.std), ("norm", statistics.norm)]
    right = [("finite", statistics.finite), ("zero" if statistics.sampled is None else "zero seen", statistics.zero)]
    infinities = (("+Inf", statistics.positive_infinity), (MINUS + "Inf", statistics.negative_infinity))
    right += [pair for pair in infinities if pair[1]]
    rows = []
    for at, (other, number) in enumerate(right):
        label, value = left[at] if at < len(left) else ("", None)
        rows.append((label, short_number(value) if label else "", other, short_count(number)))
    return tuple(rows)


def answer(statistics: Statistics | None) -> tuple[tuple[str, str, bool], ...]:
    """Return what the header says of the values: smallest, largest, mean, NaN and Inf; each with whether it is bad."""
    if statistics is None or not statistics.count:
        return ()
    named = (("min", statistics.minimum), ("max", statistics.maximum), ("mean", statistics.mean))
    found = [(label, short_number(value), False) for label, value in named if value is not None]
    infinite = statistics.positive_infinity + statistics.negative_infinity
    return (*found, *((label, short_count(number), number > 0) for label, number in
                      (("NaN", statistics.nan), ("Inf", infinite))))  # fmt: skip


def answer_scope(statistics: Statistics) -> str:
    """Return of what those numbers are, where that is not every value."""
    part = statistics.sampled is None and statistics.count < statistics.of
    sample = f"of a sample of {count(statistics.count)}" if part else ""
    return ", ".join(filter(None, (sample, "" if statistics.of_what == "values" else f"of {statistics.of_what}")))


def specials(statistics: Statistics) -> tuple[tuple[str, int], ...]:
    """Return the kinds of elements a histogram cannot place, with their counts, where there are any."""
    pairs = (
        ("NaN", statistics.nan),
        (MINUS + "Inf", statistics.negative_infinity),
        ("+Inf", statistics.positive_infinity),
    )
    return tuple((label, number) for label, number in pairs if number)


def statistics_scope(statistics: Statistics) -> str:
    """Return what the statistics are over, where that is not simply every value, and where the first bad ones are."""
    parts = []
    if statistics.of_what != "values":
        parts.append(f"of {statistics.of_what}")
    how = f" ({statistics.sampling})" if statistics.sampling else ""
    if statistics.sampled is not None:
        parts.append(f"histogram and zeros over {count(statistics.sampled)} of {count(statistics.of)} elements{how}")
        parts.append(f"the rest over {'all' if statistics.count == statistics.of else count(statistics.count)}")
    elif statistics.count < statistics.of:
        parts.append(f"over {count(statistics.count)} of {count(statistics.of)} elements{how}")
    return ", ".join(parts + _first_bad(statistics))


def _first_bad(statistics: Statistics) -> list[str]:
    places = (
        ("NaN", statistics.first_nan),
        ("+Inf", statistics.first_positive_infinity),
        (MINUS + "Inf", statistics.first_negative_infinity),
    )
    return [f"first {kind} at [{', '.join(map(str, index))}]" for kind, index in places if index]  # a scalar has none
