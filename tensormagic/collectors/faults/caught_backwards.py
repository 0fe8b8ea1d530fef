"""Remembers the backwards that torch refused: those that do not end the run were caught by the code around them."""

from __future__ import annotations

from dataclasses import replace
from types import FrameType

from tensormagic.collectors.where.handlers import is_expected
from tensormagic.reports.backward_faults import BackwardFault, FreedGraph, SpoiltTensor, WrongReturn
from tensormagic.reports.caught import CaughtBackward

MOST_CAUGHT = 16  # different ones of a run that are kept

Key = tuple["int | None", object, object]  # the line, the graph and the node


class CaughtBook:
    """What was refused in a run. Keeps no exception: the last one by its address, which its text has to confirm."""

    def __init__(self) -> None:
        self._every: dict[Key, CaughtBackward] = {}
        self._last: tuple[int, str, Key, BackwardFault] | None = None

    def note(self, error: BaseException, fault: BackwardFault, site: int | None, caller: FrameType | None) -> None:
        """Note that a backward was refused, called from ``caller`` at the line ``site``."""
        about = _about(fault)
        key = site, about and about.graph, about and about.node
        self._last = id(error), str(error), key, fault
        known = self._every.get(key)
        if known is not None:
            self._every[key] = replace(known, count=known.count + 1)
        elif len(self._every) < MOST_CAUGHT:
            self._every[key] = CaughtBackward(
                error_type=type(error).__name__, error=str(error), fault=fault, location=site,
                expected=is_expected(caller),
            )  # fmt: skip

    def take_out(self, error: BaseException) -> BackwardFault | None:
        """Say that an exception ended the run; returns why, where it is that of the last refusal."""
        if self._last is None or self._last[:2] != (id(error), str(error)):
            return None
        _, _, key, fault = self._last
        self._last = None
        if (known := self._every.pop(key, None)) is not None and known.count > 1:
            self._every[key] = replace(known, count=known.count - 1)
        return fault

    def every(self) -> tuple[CaughtBackward, ...]:
        """Return what was refused, in order of first appearance."""
        return tuple(self._every.copy().values())


def _about(fault: BackwardFault) -> SpoiltTensor | FreedGraph | WrongReturn | None:
    return fault.spoilt or fault.freed or fault.returned
