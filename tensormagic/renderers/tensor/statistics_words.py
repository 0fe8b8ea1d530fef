"""What the numbers over a tensor's values say: the same words in HTML, in text and under a figure."""

from __future__ import annotations

from tensormagic.reports import Statistics
from tensormagic.words import MINUS, count, short_count, short_number


def statistics_rows(statistics: Statistics) -> tuple[tuple[str, str, str, str], ...]:
    """Return two columns of name and number: what the finite values are like, and how many are special."""
    infinities = _infinities(statistics)
    left = [("min", statistics.minimum), ("max", statistics.maximum), ("mean", statistics.mean)]
    left += [("std", statistics.std), ("norm", statistics.norm)]
    right = [("finite", statistics.finite), ("NaN", statistics.nan), *infinities]
    right.append(("zero" if statistics.sampled is None else "zero seen", statistics.zero))
    rows = []
    for at in range(max(len(left), len(right))):
        label, value = left[at] if at < len(left) else ("", None)
        other, number = right[at] if at < len(right) else ("", None)
        shown_value = short_number(value) if label else ""
        rows.append((label, shown_value, other, "" if number is None else short_count(number)))
    return tuple(rows)


def _infinities(statistics: Statistics) -> list[tuple[str, int]]:
    if not statistics.positive_infinity and not statistics.negative_infinity:
        return [(f"{chr(0xB1)}Inf", 0)]
    return [("+Inf", statistics.positive_infinity), (MINUS + "Inf", statistics.negative_infinity)]


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
