"""What is known so far of the writes that one line makes by one call."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from tensormagic.collectors.aliasing.clash import Suspicion
from tensormagic.collectors.geometry.written import Written
from tensormagic.collectors.where.source import Sites
from tensormagic.reports import ChangedName, Clash, Write


@dataclass(slots=True)
class Tally:
    """All writes of one op on one line."""

    site: int | None
    written: Written
    target: str = ""
    described: bool = False
    named: bool = False  # by the line itself; else by the tensor, which may be another one the next time
    storage: int = 0
    shape: tuple[int, ...] = ()
    calls: int = 0
    replays: int = 0
    several: bool = False
    changed: dict[str, ChangedName] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    clash: Clash | None = None
    suspicion: Suspicion | None = None
    swaps: bool | None = None  # not looked up yet
    missed: bool = False  # whether it was ever not looked up although it might have changed something new
    searched: bool | None = None  # whether names were ever looked up for it; None where they need not be

    def report(self, sites: Sites) -> Write:
        """Return it as plain data."""
        lists = tuple(f"{name}[" for name, changed in self.changed.items() if changed.items > 1)
        shown = ((key, name) for key, name in self.changed.items() if not lists or not key.startswith(lists))
        changed = (dataclasses.replace(name, writes=self.counts[key], at_least=self.missed) for key, name in shown)
        return Write(
            location=sites.locations[self.site] if self.site is not None else None,
            op=self.written.name,
            target=self.target,
            shape=self.shape,
            count=self.calls,
            several=self.several and not self.named,
            changed=tuple(changed),
            clash=self.clash,
        )
