"""What the package needs, as its own metadata say: one home for the bounds, which is pyproject.toml."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import metadata

_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*(?:>=\s*([0-9.]+))?[^;]*(?:;(.*))?$")
_EXTRA = re.compile(r"extra\s*==\s*[\"']([\w-]+)[\"']")
_SHOWN = (None, "lab")


@dataclass(frozen=True, slots=True)
class Needed:
    """A package that is needed.

    Attributes:
        name: As pip knows it.
        oldest: The oldest version that will do; empty where any will.
        extra: Which extra asks for it; empty where all of it does not work without.
    """

    name: str
    oldest: str = ""
    extra: str = ""


def needed() -> list[Needed]:
    """Return tensormagic itself, what it needs, and what its notebooks need; nothing more where it is not installed."""
    try:
        required = metadata.requires("tensormagic") or []
    except metadata.PackageNotFoundError:  # run from a folder of sources
        return []
    found = [parsed(line) for line in required]
    return [Needed("tensormagic"), *(one for one in found if one is not None and (one.extra or None) in _SHOWN)]


def parsed(requirement: str) -> Needed | None:
    """Return a line of a package's metadata; None where it is for other Pythons or is the package itself."""
    found = _REQUIREMENT.match(requirement)
    if found is None or found[1] == "tensormagic":
        return None
    marker = found[3] or ""
    extra = _EXTRA.search(marker)
    if "python_version" in marker:
        return None
    return Needed(found[1], found[2] or "", extra[1] if extra else "")


def is_older(version: str, oldest: str) -> bool:
    """Return whether one version comes before another, by their numbers."""
    return _numbers(version) < _numbers(oldest)


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.split("+", maxsplit=1)[0].split(".")
    return tuple(int(digits[0]) for part in parts if (digits := re.match(r"\d+", part)))
