"""Names that differ between two runs although they mean the same: the model is ``net`` here and ``net2`` there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tensormagic.reports import TraceReport


@dataclass(frozen=True, slots=True)
class Renames:
    """What the owners of the right run are called in the left one."""

    owners: Mapping[str, str]

    def of(self, name: str) -> str:
        """Return a name of the right run as the left one would say it."""
        owner = next((one for one in self.owners if name == one or name.startswith((f"{one}.", f"{one}["))), None)
        return name if owner is None else self.owners[owner] + name[len(owner) :]


def renames_between(left: TraceReport, right: TraceReport) -> Renames:
    """Pair the models that only one run knows by name, those first whose parameters are most alike."""
    here, there = _owned(left), _owned(right)
    mine = {owner: names for owner, names in here.items() if owner not in there}
    theirs = {owner: names for owner, names in there.items() if owner not in here}
    likeness = [(len(names & others), old, new) for old, names in mine.items() for new, others in theirs.items()]
    found: dict[str, str] = {}
    for common, old, new in sorted(likeness, key=lambda entry: -entry[0]):
        if common and new not in found and old not in found.values():
            found[new] = old
    return Renames(found)


def _owned(report: TraceReport) -> dict[str, set[str]]:
    """Return for every owner what its parameters are called inside it, with their shapes."""
    owned: dict[str, set[str]] = {}
    for parameter in report.parameters:
        if parameter.owner:
            inner = parameter.name.removeprefix(parameter.owner)
            owned.setdefault(parameter.owner, set()).add(inner)
    return owned


def side_names(left: TraceReport, right: TraceReport, given: Iterable[str] | None = None) -> tuple[str, str]:
    """Return what to call the two runs: as the person says, else by their titles, else ``a`` and ``b``."""
    names = tuple(given) if given is not None else (left.title, right.title)
    first, second = names
    return (first, second) if first and second and first != second else ("a", "b")
