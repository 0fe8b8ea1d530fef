"""Which of an object's many names to tell: the quickest to write, and those that say something."""

from __future__ import annotations

import re
from collections.abc import Iterable

# What every optimizer holds of every model: no second name that a person has to be told of.
OPTIMIZED = re.compile(r"\.param_groups\[\d+\]\['params'\]\[\d+\]$")


def telling(names: Iterable[str]) -> list[str]:
    """Return the names that say more than that an optimizer updates something; all where there are no others."""
    every = list(names)
    return [name for name in every if not OPTIMIZED.search(name)] or every


def plain(names: Iterable[str]) -> list[str]:
    """Return the names without dots and brackets where there are any, else those that are telling."""
    every = list(names)
    return [name for name in every if name.isidentifier()] or telling(every)


def nearest(names: list[str]) -> list[str]:
    """Return the names, those that are quickest to write first."""
    return sorted(names, key=lambda name: name.count(".") + name.count("[")) if len(names) > 1 else names
