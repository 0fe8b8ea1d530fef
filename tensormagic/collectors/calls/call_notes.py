"""One call that was looked at, and what was found about the calls of a line: what every look at calls notes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, NamedTuple

import torch

from tensormagic.collectors.calls.call_operands import operand_names, operand_of
from tensormagic.collectors.where.source import Sites
from tensormagic.reports import Gap, Observation
from tensormagic.reports.observations import ObservationKind

CLOSELY = 4  # calls of a place that are looked at before they get rarer
MOST_FOUND = 512  # different things that are kept

_SHOWN = {
    "__radd__": "add", "__rsub__": "sub", "rsub": "sub", "__rmul__": "mul", "__rtruediv__": "div", "__rpow__": "pow",
    "__eq__": "eq", "__ne__": "ne", "__float__": "float", "__int__": "int", "__bool__": "bool", "__index__": "index",
    "__repr__": "print", "__format__": "format", "__array__": "numpy", "__getitem__": "index",
    "cross_entropy_loss": "cross_entropy", "nll_loss_nd": "nll_loss",
    "__matmul__": "matmul",
}  # fmt: skip


class Call(NamedTuple):
    """One call that was made: the function, what it was given, what came out, and from which frame."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    frame: FrameType

    @property
    def name(self) -> str:
        """What was called, as a person knows it."""
        name = str(getattr(self.function, "__name__", self.function))
        return _SHOWN.get(name, name)


class Place:
    """A place in code that makes a watched call, and how often it did."""

    __slots__ = ("calls", "looked", "sparing")

    def __init__(self, *, sparing: bool) -> None:
        self.calls, self.looked, self.sparing = 0, 0, sparing


Key = tuple[str, str, "int | None"]  # kind, op, site


class Found:
    """What becomes an `Observation`: the first of its kind at a line, and counts."""

    __slots__ = ("first", "key", "nbytes", "places", "seen")

    def __init__(self, key: Key, first: Observation) -> None:
        self.key = key
        self.first, self.nbytes, self.seen = first, 0, 0
        self.places: dict[int, Place] = {}

    def report(self) -> Observation:
        """Return it with its counts so far."""
        places = [place for place in self.places.values() if place.sparing]
        calls, looked = sum(place.calls for place in places), sum(place.looked for place in places)
        # In library code each call is looked at, and may be another line's.
        everywhere = len(places) == len(self.places)
        first = self.first
        return Observation(
            kind=first.kind, op=first.op, location=first.location, module=first.module,
            calls=max(calls, self.seen) if everywhere else self.seen, looked=max(looked, self.seen) if everywhere
            else self.seen, seen=self.seen, nbytes=self.nbytes, operands=first.operands, result=first.result,
            made=first.made, detail=first.detail,
        )  # fmt: skip


ALONE = Place(sparing=False)  # of calls that are not counted by place


class CallNotes:
    """What was found about the calls of one run.

    Args:
        sites: Interns the person's lines.
        module_path: Gives the path of the module that runs in a frame.
        line_of_node: Gives the site that made an autograd node.

    Attributes:
        gap: Why something could not be looked at; empty where all could.
    """

    def __init__(
        self, sites: Sites, module_path: Callable[[FrameType], str], line_of_node: Callable[[int], int | None]
    ) -> None:
        self._sites = sites
        self._line_of_node = line_of_node
        self._module_path = module_path
        self._kept: dict[Key, Found] = {}
        self._place = ALONE
        self.gap = ""

    def note(self, kind: ObservationKind, call: Call, *, nbytes: int = 0, **told: Any) -> None:
        """Note that ``call`` did something; what is told of it besides, as in `found`, is told once for its line."""
        self.keep(self.found(kind, call, **told), nbytes)

    def keep(self, found: Found, nbytes: int = 0) -> None:
        """Note that what was found has come about, once more."""
        if found.key not in self._kept and len(self._kept) >= MOST_FOUND:
            self.gap = f"more than {MOST_FOUND} different things were seen in single calls"
            return
        found = self._kept.setdefault(found.key, found)
        found.seen += 1
        found.nbytes = max(found.nbytes, nbytes)

    def found(  # noqa: PLR0913  (two parameters; the rest says what was found, by name)
        self,
        kind: ObservationKind,
        call: Call,
        *,
        operands: Sequence[torch.Tensor] = (),
        of: int = 0,
        about: int | None = None,
        result: torch.Tensor | None = None,
        made: int | None = None,
        detail: str = "",
        op: str = "",
    ) -> Found:
        """Return what was found at a line before, of this kind, or describe it.

        Args:
            kind: As in `Observation`.
            call: The call; its operands are called as they are in the person's line, where that can be told.
            operands: Of the call, in order.
            of: How many operands it has in all, if more than these.
            about: Which of them alone is told, if not all.
            result: What came out, where that matters.
            made: As in `Observation`.
            detail: As in `Observation`.
            op: What was called, if not what the call says.
        """
        key = (kind, op or call.name, self.site(call))
        found = self._kept.get(key)
        if found is None:
            path = self._module_path(call.frame)
            names = operand_names(call.frame, operands, max(of, len(operands)), path)
            described = tuple(operand_of(x, name) for x, name in zip(operands, names, strict=True))
            found = Found(key, Observation(
                kind=kind, op=key[1], location=key[2], module=path, made=made, detail=detail,
                operands=described if about is None else described[about : about + 1],
                result=None if result is None else operand_of(result),
            ))  # fmt: skip
        found.places[id(self._place)] = self._place
        return found

    def site(self, call: Call) -> int | None:
        """Return the person's line that made a call."""
        return self._sites.of_frame(call.frame)

    def line_of_node(self, sequence_number: int) -> int | None:
        """Return the person's line that made an autograd node; None where that is not known exactly."""
        return self._line_of_node(sequence_number)

    def path(self, call: Call) -> str:
        """Return the path of the module whose forward makes a call."""
        return self._module_path(call.frame)

    def observations(self) -> tuple[Observation, ...]:
        """Return what was found so far, in order of first appearance."""
        return tuple(found.report() for found in list(self._kept.values()))

    def gaps(self) -> tuple[Gap, ...]:
        """Return what could not be looked at."""
        return (Gap("calls", f"some calls could not be looked at: {self.gap}"),) if self.gap else ()
