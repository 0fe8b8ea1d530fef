"""Who keeps a tensor alive, in words: for the panel and the terminal."""

from __future__ import annotations

from tensormagic.reports import Holder, HoldersReport
from tensormagic.words import listed, number_of_bytes, plural, shortened

MOST = 12
_TELLING = 2  # holders that the summary names
_PATH = 46
# What is least expected first.
_TELLING_ORDER = (
    "traceback", "graph", "history", "function", "generator", "optimizer",
    "view", "array", "attribute", "item", "module", "name",
)  # fmt: skip
_KINDS = {
    "name": "a name",
    "item": "an item of a container",
    "attribute": "an attribute",
    "history": "output history",
    "module": "in a module",
    "optimizer": "an optimizer",
    "graph": "an autograd graph",
    "traceback": "an error's traceback",
    "function": "a function",
    "generator": "an unfinished generator",
    "array": "a NumPy array",
    "view": "a view of it",
}


def summary(report: HoldersReport | None, name: str) -> str:
    """Return the holders worth a glance: ``held by batch[0], Out[12], and 3 more``; nothing where there are none."""
    if report is None:
        return ""
    others = [holder for holder in report.of_tensor if holder.path != name]
    if others:
        return f"held by {listed(dict.fromkeys(map(_root, _telling(others))), most=_TELLING)}"
    if report.of_tensor:
        return f"held only by {name}" if not report.of_storage else "others hold its storage"
    return "held by no name" if not report.of_storage else "held by no name, but its storage is"


def _root(holder: Holder) -> str:
    """Return the part of a way by which a person would call the holder: ``graph of loss``, ``the last error``."""
    path = holder.path.split(": ")[0] if holder.kind == "graph" else holder.path
    return shortened(path.split(", ")[0] if holder.kind in {"traceback", "generator", "function"} else path, 32)


def _telling(others: list[Holder]) -> list[Holder]:
    """Put what a person would not think of in front of plain names."""
    return sorted(others, key=lambda holder: _TELLING_ORDER.index(holder.kind))


def rows(report: HoldersReport) -> tuple[tuple[str, str, str], ...]:
    """Return each holder: how it is reached, what it keeps, and what it is."""
    return tuple((shortened(each.path, _PATH), _keeps(each), _what(each)) for each in report.holders[:MOST])


def nobody_else(report: HoldersReport, name: str) -> bool:
    """Return whether the name itself is all that holds the tensor."""
    return [(holder.path, holder.holds) for holder in report.holders] == [(name, "tensor")]


def _what(holder: Holder) -> str:
    place = f", {holder.location.label}" if holder.location is not None else ""
    return _KINDS[holder.kind] + place


def _keeps(holder: Holder) -> str:
    return "tensor" if holder.holds == "tensor" else f"storage, {number_of_bytes(holder.nbytes)}"


def notes(report: HoldersReport, name: str) -> tuple[str, ...]:
    """Return what there is to add: a temporary, how many are not listed, who has no name, where the search ended."""
    lines = []
    if not report.of_tensor:
        lines.append(f"No variable was found that holds {name} itself.")
    if report.found > MOST:
        lines.append(f"{report.found - MOST} more holders are not listed.")
    if report.unreached:
        verb, users = ("uses" if report.unreached == 1 else "use"), plural(report.unreached, "more tensor")
        lines.append(f"By torch's count, {users} that cannot be reached from a variable {verb} the storage.")
    if report.cut:
        lines.append(f"The search stopped {report.cut}: there may be more.")
    return tuple(lines)
