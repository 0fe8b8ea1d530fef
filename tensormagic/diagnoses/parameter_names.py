"""How parameters are told of: the fewest names that say which, and over how many passes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from tensormagic.reports import TraceReport
from tensormagic.words import count, plural

_NUMBER = re.compile(r"\.(\d+)(?=\.|$)")


def passes_words(report: TraceReport) -> str:
    """Return how many passes there were, and how many of them were traced."""
    passes = plural(report.passes_seen, "backward pass", "backward passes")
    if report.passes_traced < report.passes_seen:
        return f"the {count(report.passes_traced)} traced of {passes}"
    return passes


def shortest(missing: Sequence[str], of: Sequence[str]) -> list[str]:
    """Return the missing names, those of a module that misses all it has (two or more) as the module alone."""
    inside, missed = (Counter(module for name in names for module in _above(name)) for names in (of, missing))
    places: dict[str, None] = {}
    for name in missing:
        whole = (module for module in _above(name) if 1 < inside[module] == missed[module])
        places[next(whole, name)] = None
    return list(places)


def as_code(name: str) -> str:
    """Return a module's or parameter's name as Python takes it: ``net.layers[2].weight``."""
    return _NUMBER.sub(r"[\1]", name)


def _above(name: str) -> Iterator[str]:
    """Yield the paths of the modules that a parameter lies in, the outermost first."""
    parts = name.split(".")
    return (".".join(parts[:length]) for length in range(1, len(parts)))
