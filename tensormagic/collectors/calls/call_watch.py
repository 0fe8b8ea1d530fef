"""Looks at single calls of the forward for what is worth knowing, and counts by line.

`watched_calls.WATCHED` says which calls are looked at, and by whom; all others cost nothing here. A line of the
person's that runs a thousand times is looked at closely in its first calls and at exponentially rarer ones after that;
the rest are counted. A call from library code is always looked at: there one place serves many lines of the person's.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from time import perf_counter
from types import FrameType
from typing import Any

import torch

from tensormagic.collectors.calls.call_notes import ALONE, CLOSELY, Call, Place
from tensormagic.collectors.calls.loop_notes import LoopNotes, NotesOfLoop
from tensormagic.collectors.calls.seen_broadcasts import NotesOfBroadcasts, Wide
from tensormagic.collectors.calls.seen_draws import NotesOfDropouts
from tensormagic.collectors.calls.seen_fresh import Fresh, NotesOfFresh
from tensormagic.collectors.calls.seen_operands import Doubles, NotesOfDoubles
from tensormagic.collectors.calls.seen_sequences import NotesOfSequences, Sequences
from tensormagic.collectors.where.source import SourceLines, is_own_code

Look = Callable[["CallWatch", Call], None]


class CallWatch(NotesOfBroadcasts, NotesOfFresh, NotesOfDoubles, NotesOfLoop, NotesOfSequences, NotesOfDropouts):
    """Looks at the calls of one run; the arguments are those of `CallNotes`.

    Attributes:
        wide: Results that grew, which are followed.
        fresh: Memory that nobody wrote, which is followed.
        doubles: Where float64 tensors were made.
        sequences: What recurrent layers gave that take time first.
        dropouts: Dropouts that their model knows, by identity.
        seconds: Spent here.
        loop: What they tell about the training loop.
    """

    def __init__(
        self, sites: SourceLines, module_path: Callable[[FrameType], str], line_of_node: Callable[[int], int | None]
    ) -> None:
        super().__init__(sites, module_path, line_of_node)
        self._places: dict[tuple[object, int], Place] = {}
        self.wide, self.fresh, self.doubles = Wide(), Fresh(), Doubles()
        self.sequences = Sequences()
        self.dropouts: dict[int, weakref.ref[Any]] = {}
        self.seconds = 0.0
        self.loop = LoopNotes()

    def place(self, line: object, frame: FrameType) -> Place | None:
        """Count a call that ``frame`` has made, and return its place; None where that is all (0.35 µs).

        Args:
            line: Stands for the line, and is one object for all of its calls.
            frame: That which called.
        """
        key = (line, frame.f_lasti)
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = Place(sparing=is_own_code(frame.f_code.co_filename))
        place.calls = number = place.calls + 1
        return None if place.sparing and number > CLOSELY and number & (number - 1) else place

    def look(self, looks: Sequence[Look], call: Call, place: Place) -> None:
        """Look at a call. Never raises."""
        place.looked += 1
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

    def before(self, function: Any, args: tuple[Any, ...]) -> None:
        """Look at what a call is about to write, while memory is followed that nobody wrote. Never raises."""
        try:
            if not _is_hidden():
                with torch._C.DisableTorchFunction():
                    self.fresh.before(str(getattr(function, "__name__", "")), args)
        except Exception as error:
            self.gap = f"{type(error).__name__}: {error}"

    def follow(self, call: Call) -> None:
        """Look at a call while something is followed: results that grew, memory that nobody wrote. Never raises."""
        began = perf_counter()
        try:
            if not _is_hidden():
                self._place = ALONE
                with torch._C.DisableTorchFunction():
                    if self.wide.marks:
                        self.wide.follow(self, call)
                    if self.fresh.marks:
                        self.fresh.follow(self, call)
        except Exception as error:
            self.gap = f"{type(error).__name__}: {error}"
        self.seconds += perf_counter() - began


def _is_hidden() -> bool:
    """Say whether the engine runs, and calls, or a transform of ``torch.func``, whose tensors stand for others."""
    return torch._C._current_autograd_node() is not None or torch._C._functorch.peek_interpreter_stack() is not None
