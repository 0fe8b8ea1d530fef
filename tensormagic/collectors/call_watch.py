"""Looks at single calls of the forward for what is worth knowing, and counts by line.

`watched_calls.WATCHED` says which calls are looked at, and by whom; all others cost nothing here. A line of the
person's that runs a thousand times is looked at closely in its first calls and at exponentially rarer ones after that;
the rest are counted. A call from library code is always looked at: there one place serves many lines of the person's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from types import FrameType
from typing import Any, NamedTuple

import torch

from tensormagic.collectors.call_operands import operand_of, operand_texts
from tensormagic.collectors.running_sums import LoopNotes
from tensormagic.collectors.source import Sites, is_own_code
from tensormagic.reports import Gap, Observation, Operand
from tensormagic.reports.observations import ObservationKind

CLOSELY = 4  # calls of a place that are looked at before they get rarer
MOST_FOUND = 512  # different things that are kept

_SHOWN = {
    "__radd__": "add", "__rsub__": "sub", "rsub": "sub", "__rmul__": "mul", "__rtruediv__": "div", "__rpow__": "pow",
    "__eq__": "eq", "__ne__": "ne", "__float__": "float", "__int__": "int", "__bool__": "bool", "__index__": "index",
    "__repr__": "print", "__format__": "format", "__array__": "numpy", "__getitem__": "index", "__matmul__": "matmul",
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


class _Found:
    """What becomes an `Observation`: the first of its kind at a line, and counts."""

    __slots__ = ("first", "nbytes", "places", "seen")

    def __init__(self, first: Observation) -> None:
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


Look = Callable[["CallWatch", Call], None]


class CallWatch:
    """What was found about the calls of one run.

    Args:
        sites: Interns the person's lines.
        module_path: Gives the path of the module that runs in a frame.

    Attributes:
        seconds: Spent here.
        gap: Why something could not be looked at; empty where all could.
        loop: What they tell about the training loop.
    """

    def __init__(self, sites: Sites, module_path: Callable[[FrameType], str]) -> None:
        self._sites = sites
        self._module_path = module_path
        self._places: dict[tuple[int, int, int], Place] = {}
        self._found: dict[tuple[str, str, int | None], _Found] = {}
        self._place = Place(sparing=False)
        self.seconds = 0.0
        self.gap = ""
        self.loop = LoopNotes()

    def see(self, looks: Sequence[Look], call: Call) -> None:
        """Look at a call, or only count it. Never raises."""
        code = call.frame.f_code
        key = (id(code), call.frame.f_lasti, id(looks))
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = Place(sparing=is_own_code(code.co_filename))
        place.calls = number = place.calls + 1
        if place.sparing and number > CLOSELY and number & (number - 1):
            return
        place.looked += 1
        self._look(looks, call, place)

    def _look(self, looks: Sequence[Look], call: Call, place: Place) -> None:
        began = perf_counter()
        try:
            if not _is_hidden():
                self._place = place
                with torch._C.DisableTorchFunction():
                    for look in looks:
                        look(self, call)
        except Exception as error:
            self.gap = f"{type(error).__name__}: {error}"
        self.seconds += perf_counter() - began

    def note(  # noqa: PLR0913  (two parameters; the rest says what was found, by name)
        self,
        kind: ObservationKind,
        call: Call,
        *,
        operands: Sequence[torch.Tensor] = (),
        result: torch.Tensor | None = None,
        nbytes: int = 0,
        made: int | None = None,
        detail: str = "",
        op: str = "",
    ) -> None:
        """Note that ``call`` did something; what is said of it besides is that of the first such call of its line."""
        site = self.site(call)
        key = (kind, op or call.name, site)
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= MOST_FOUND:
                self.gap = f"more than {MOST_FOUND} different things were seen in single calls"
                return
            found = self._found[key] = _Found(Observation(
                kind=kind, op=key[1], location=site, module=self._module_path(call.frame),
                operands=self.described(call, operands), made=made, detail=detail,
                result=None if result is None else operand_of(result),
            ))  # fmt: skip
        found.seen += 1
        found.nbytes = max(found.nbytes, nbytes)
        found.places[id(self._place)] = self._place

    def site(self, call: Call) -> int | None:
        """Return the person's line that made a call."""
        return self._sites.of_frame(call.frame)

    def described(self, call: Call, operands: Sequence[torch.Tensor]) -> tuple[Operand, ...]:
        """Return the operands as they are, called as they are in the person's line where that can be told."""
        texts = operand_texts(call.frame, len(operands))
        return tuple(operand_of(x, name) for x, name in zip(operands, texts, strict=True))

    def observations(self) -> tuple[Observation, ...]:
        """Return what was found so far, in order of first appearance."""
        return tuple(found.report() for found in list(self._found.values()))

    def gaps(self) -> tuple[Gap, ...]:
        """Return what could not be looked at."""
        return (Gap("calls", f"some calls could not be looked at: {self.gap}"),) if self.gap else ()


def _is_hidden() -> bool:
    """Say whether the engine runs, and calls, or a transform of ``torch.func``, whose tensors stand for others."""
    return torch._C._current_autograd_node() is not None or torch._C._functorch.peek_interpreter_stack() is not None
