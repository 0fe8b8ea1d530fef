"""What is said of a check, the same in the terminal and in the panel."""

from __future__ import annotations

from tensormagic.reports import WatchReport
from tensormagic.words import count, number_of_bytes, plural

MOST_SIZES = 8
SIZES_HEAD = ("HOLDS", "TENSORS", "BYTES")


def summary(report: WatchReport) -> str:
    """Return what was looked at, in one line."""
    met = f"{plural(report.tensors, 'tensor')} in {plural(report.storages, 'storage')}"
    return f"{met}, {number_of_bytes(report.nbytes)}; {plural(report.looked, 'object')} looked through"


def all_clear(report: WatchReport) -> str:
    """Return the sentence that stands where nothing was found; it claims no more than what was looked at."""
    if report.gaps:
        return "Nothing found in what was looked at."
    return "Nothing found: no memory that nobody uses, no graph stored, no parameter that its module does not know."


def sizes(report: WatchReport) -> list[tuple[str, str, str]]:
    """Return what holds the most, a row each."""
    return [(one.name, count(one.tensors), number_of_bytes(one.nbytes)) for one in report.sizes[:MOST_SIZES]]
