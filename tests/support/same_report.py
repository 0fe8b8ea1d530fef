"""Holds two reports of the same program against each other: all that they say but how long it took."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_TIMES = {"seconds", "own_seconds", "time", "times", "began", "step_seconds"}
_BUDGETED = {"names_searched", "updates", "at_least", "measures", "cost"}  # how much depends on how long looking takes


def without_times(data: Any) -> Any:
    """Return a report as plain data without durations, and its operations in an order that none decides."""
    if isinstance(data, dict):
        kept = {key: each for key, each in data.items() if key not in _BUDGETED and not _is_time(key)}
        return {key: without_times(each) for key, each in kept.items()}
    if isinstance(data, list):
        rows = [without_times(each) for each in data]
        is_uses = bool(rows) and isinstance(rows[0], dict) and "mutated" in rows[0]
        return sorted(rows, key=repr) if is_uses else rows
    return data


def _is_time(key: str) -> bool:
    return key in _TIMES or key.endswith("seconds")


def differences(one: Any, other: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield where two values of plain data differ, and how."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in one.keys() | other.keys():
            yield from differences(one.get(key), other.get(key), f"{path}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for at, pair in enumerate(zip(one, other, strict=True)):
            yield from differences(*pair, f"{path}[{at}]")
    elif one != other:
        yield path, one, other


def told_apart(report: Any, other: Any) -> list[tuple[str, Any, Any]]:
    """Return where two reports say different things; empty where they say the same."""
    return list(differences(*(without_times(each.to_dict()) for each in (report, other))))
