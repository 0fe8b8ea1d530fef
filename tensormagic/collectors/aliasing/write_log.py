"""What is known of the writes so far: a tally for each line and op, with the names that it changed.

Whoever may share the memory is asked for only when something can have changed: a storage got another user, a name
died, or a line wrote for the first few times. A loop of a thousand steps looks the names up a dozen times.
"""

from __future__ import annotations

import dataclasses
from collections import ChainMap
from collections.abc import Mapping
from time import process_time
from types import FrameType
from typing import Any

import numpy as np
import torch

from tensormagic.collectors.aliasing.clash import Call, Suspicion, refusal, repeats, settle, suspect
from tensormagic.collectors.aliasing.sharers import Sharers, place_of
from tensormagic.collectors.aliasing.swaps import Swaps
from tensormagic.collectors.aliasing.tally import Tally
from tensormagic.collectors.aliasing.write_effects import Effects, WriteSeen, changed_arguments
from tensormagic.collectors.aliasing.written_through import Statement, Through, statement_at, through
from tensormagic.collectors.geometry.scattered import is_scattered, written_elements
from tensormagic.collectors.geometry.touched import index_at, touched
from tensormagic.collectors.geometry.written import Written
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.where.running import names_of
from tensormagic.collectors.where.source import Sites, is_own_code
from tensormagic.reports import Clash, Gap, Write
from tensormagic.words import plural, seconds_text

MOST_REPLAYS = 8  # suspicious calls of one line and op that are done once more, to see what they should give
FREE_SEARCHES = 0.1  # seconds of this process for looking names up whenever something may have changed; beyond that,
FIRST_SEARCHES = 1.0  # the same, for a line that has not had its look-up yet
SEARCH_SHARE = 8  # a look-up waits until so many times what the last one took has passed
CALLERS = 4  # of the person's functions, from the write outwards, that are asked what they passed
_ALONE = 2  # users of a storage when one tensor and the question itself are all
_use_count = torch._C._storage_Use_Count


class WriteLog:
    """The writes so far, by line and op."""

    def __init__(self, namespace: Mapping[str, Any], sites: Sites) -> None:
        self._sites = sites
        self._sharers = Sharers(namespace)
        self._effects = Effects()
        self._swaps = Swaps()
        self._tallies: dict[tuple[int | None, str], Tally] = {}
        self._gaps: dict[str, Gap] = {}
        self._search_seconds = self._search_took = self._searched = 0.0
        self.seen = 0
        self.names_searched = 0

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What could not be seen."""
        unsearched = [tally for tally in list(self._tallies.values()) if tally.searched is False]
        if not unsearched:
            return tuple(self._gaps.values())
        places = "one line" if len(unsearched) == 1 else plural(len(unsearched), "line")
        reason = (
            f"the names were not looked up again for what {places} wrote to, since that takes "
            f"{seconds_text(self._search_took)} each time: a name that was bound shortly before may be missing there"
        )
        return (*self._gaps.values(), Gap("names", reason))

    def writes(self) -> tuple[Write, ...]:
        """Return every tally as plain data, in the order of their first writes."""
        return tuple(tally.report(self._sites) for tally in list(self._tallies.values()))

    def forget(self) -> None:
        """Let go of everything that leads to the person's objects."""
        self._sharers = Sharers({})
        self._swaps.forget()
        for tally in self._tallies.values():
            tally.suspicion = None

    # -- around a write -------------------------------------------------------------------------------------------

    def begin(self, written: Written, call: Call, frame: FrameType) -> Tally:
        """Note a write that is about to be made."""
        key = (self._sites.of_frame(frame), written.name)
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = Tally(key[0], written)
        tally.calls += 1
        self.seen += 1
        if tally.replays < MOST_REPLAYS:
            try:
                targets = list(written.tensors(call[1], call[2]))
                tally.suspicion = suspect(written, call, targets) or self._swap(tally, call, targets, frame)
                tally.replays += tally.suspicion is not None
            except Exception as error:
                self._add_gap(error)
        return tally

    def _swap(self, tally: Tally, call: Call, targets: list[torch.Tensor], frame: FrameType) -> Suspicion | None:
        if tally.swaps is False or tally.written.name != "copy_" or not isinstance(call[1][1], torch.Tensor):
            return None
        own = own_frame(frame)
        if own is None:
            return None
        if tally.swaps is None:
            tally.swaps = statement_at(own.f_code.co_filename, own.f_lineno).swaps
        return self._swaps.suspect(own, targets[0], call[1][1]) if tally.swaps else None

    def refused(self, tally: Tally, call: Call, error: BaseException, frame: FrameType) -> None:
        """Note that torch raised instead of writing."""
        suspicion, tally.suspicion = tally.suspicion, None
        try:
            self._describe(tally, call, frame)
            kind = refusal(error)
            if kind:
                known = suspicion.clash if suspicion is not None and suspicion.clash.kind == kind else None
                plain = known or Clash(kind, "", None, int(np.prod(tally.shape)))  # type: ignore[arg-type]
                tally.clash = dataclasses.replace(plain, tensor=tally.target, refused=True)
        except Exception as odd:
            self._add_gap(odd)

    def done(self, tally: Tally, call: Call, frame: FrameType) -> None:
        """Note what a write that was made has changed. Never raises."""
        suspicion, tally.suspicion = tally.suspicion, None
        try:
            if suspicion is not None and (clash := settle(suspicion, pointwise=tally.written.pointwise)) is not None:
                self._describe(tally, call, frame)
                _, via = self._through(tally, suspicion.target, frame)
                tally.clash = _worse(tally.clash, _in_terms_of(clash, suspicion.target, via))
            for target in tally.written.tensors(call[1], call[2]):
                self._look(tally, target, call, frame)
        except Exception as error:
            self._add_gap(error)

    def _add_gap(self, error: Exception) -> None:
        reason = f"a write could not be looked at: {type(error).__name__}: {error}"
        self._gaps.setdefault(reason, Gap("writes", reason))

    # -- looking, in steps ----------------------------------------------------------------------------------------

    def _look(self, tally: Tally, target: torch.Tensor, call: Call, frame: FrameType) -> None:
        if target.layout != torch.strided or not target.numel():
            return
        storage = target.untyped_storage()
        identity, foreign = storage._cdata, not storage.resizable()
        tally.storage = tally.storage or identity
        tally.several = tally.several or tally.storage != identity
        users, due = _use_count(identity), _is_due(tally.calls)
        if not tally.described:
            self._describe(tally, call, frame)
        if users <= _ALONE and not foreign and not due:
            return
        if due or not self._sharers.knows(identity, users):
            if self._search(frame, free=FREE_SEARCHES if tally.searched else FIRST_SEARCHES):
                self._sharers.note(identity)
                tally.searched = True
            else:
                tally.missed = True
                tally.searched = tally.searched or False
        region = place_of(target)
        hits = list(self._sharers.of(identity, region, foreign=foreign))
        if hits or (due and users > _ALONE):
            self._follow(WriteSeen(tally, target, region, call, hits), frame, due=due)

    def _search(self, frame: FrameType, *, free: float = FREE_SEARCHES) -> bool:
        """Look the names up anew, unless that has taken long and the last time is not long ago; says whether it did."""
        began = process_time()
        if self._search_seconds > free and began - self._searched < SEARCH_SHARE * self._search_took:
            return False
        self._sharers.learn(frame)
        self.names_searched = self._sharers.searched
        self._searched = process_time()
        self._search_took = self._searched - began
        self._search_seconds += self._search_took
        if not self._sharers.complete:
            reason = (
                f"{self.names_searched} names and items were looked through, not all there are: of a long container "
                "the beginning is, and what cannot be read is not"
            )
            self._gaps.setdefault("too many", Gap("names", reason))
        return True

    def _follow(self, seen: WriteSeen, frame: FrameType, *, due: bool) -> None:
        """Look at those whose bytes may meet what was written to."""
        tally = seen.tally
        statement, via = self._through(tally, seen.target, frame)
        with quiet():
            scattered = is_scattered(tally.written.name)
            seen.mask = written_elements(tally.written.name, seen.target, seen.call[1]) if scattered else None
            seen.certain = not scattered or seen.mask is not None
            if due and via is not None and via.tensor is not seen.target and repeats(via.tensor):
                tally.clash = _worse(tally.clash, _repeated(seen, via))
            arguments = _arguments(seen.target, frame, named=via is not None) if due else {}
            for changed in (*self._effects.of(seen, statement, via), *changed_arguments(seen, arguments)):
                tally.counts[changed.name] = tally.counts.get(changed.name, 0) + 1
                known = tally.changed.get(changed.name)
                if known is None or changed.items > known.items:
                    tally.changed[changed.name] = dataclasses.replace(changed, through=self._other(seen, via))

    def _other(self, seen: WriteSeen, via: Through | None) -> str:
        """Return the name of what was written to, where it is not what the line wrote to first; else nothing."""
        if seen.tally.named or seen.target.untyped_storage()._cdata == seen.tally.storage:
            return ""
        name = via.name if via is not None else next(iter(self._sharers.names_of_item(seen.target)), "")
        return name or "a tensor without a name"

    def _through(self, tally: Tally, target: torch.Tensor, frame: FrameType | None) -> tuple[Statement, Through | None]:
        frame = own_frame(frame)
        if frame is None or tally.site is None:
            return Statement(), None
        statement = statement_at(frame.f_code.co_filename, frame.f_lineno)
        names = ChainMap(names_of(frame), frame.f_globals)  # type: ignore[arg-type]
        return statement, through(statement, names, target)

    def _describe(self, tally: Tally, call: Call, frame: FrameType) -> None:
        """Name what the first write of a tally writes to."""
        target = next(tally.written.tensors(call[1], call[2]), None)
        if target is None or tally.described:
            return
        tally.described, tally.shape = True, tuple(target.shape)
        _, via = self._through(tally, target, frame) if target.layout == torch.strided else (None, None)
        if via is not None:
            tally.target, tally.named = via.name, True
            return
        if not any(True for _ in self._sharers.names_of_item(target)):
            self._search(frame)
        tally.target = next((name for name in self._sharers.names_of_item(target)), "")


def _arguments(target: torch.Tensor, frame: FrameType | None, *, named: bool) -> dict[str, torch.Tensor]:
    """Return what the person handed to a call that is running and that writes to it, although nothing says so.

    Args:
        target: What was written to.
        frame: Where.
        named: Whether the person's own line says that it writes; then its callers alone are asked.
    """
    found: dict[str, torch.Tensor] = {}
    own = own_frame(frame)
    for depth in range(CALLERS):
        if own is None:
            break
        passed = statement_at(own.f_code.co_filename, own.f_lineno).passed if depth or not named else ()
        values = names_of(own) if passed else {}
        found |= {name: values[name] for name in passed if name in values and _is_or_views(target, values[name])}
        own = own_frame(own.f_back)
    return found


def _is_or_views(target: torch.Tensor, value: Any) -> bool:
    return value is not None and (value is target or value is target._base)


def own_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame of the person's own code, at or above ``frame``."""
    while frame is not None and not is_own_code(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def _is_due(calls: int) -> bool:
    """Return whether a line's writes are looked at whatever is known: the first four times, then at each doubling."""
    return calls <= 4 or calls & (calls - 1) == 0


def _worse(first: Clash | None, second: Clash | None) -> Clash | None:
    """Return the clash that says more: one that is known to have gone wrong."""
    if first is None or second is None:
        return first or second
    return second if (second.wrong or 0) > (first.wrong or 0) else first


def _in_terms_of(clash: Clash, target: torch.Tensor, via: Through | None) -> Clash:
    """Return a clash with its index in the tensor that the line names; none where that cannot be told."""
    if via is None or clash.index is None:
        return dataclasses.replace(clash, tensor=via.name if via is not None else "")
    region = place_of(target)
    byte = region.start + sum(at * step for at, step in zip(clash.index, region.stride, strict=True))
    index = clash.index if via.tensor is target else index_at(place_of(via.tensor), byte)
    return dataclasses.replace(clash, tensor=via.name, index=index)


def _repeated(seen: WriteSeen, via: Through) -> Clash | None:
    """Return what a write to a part of a tensor that repeats its elements changed besides that part."""
    if not seen.certain:
        return None
    reached = touched(place_of(via.tensor), seen.region, seen.mask).elements
    written = seen.target.numel() if seen.mask is None else int(seen.mask.sum())
    return Clash("repeats", via.name, reached, written) if reached is not None and reached > written else None
