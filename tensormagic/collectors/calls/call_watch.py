"""Which calls the tracer looks at, in one table: every other call costs one look-up."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from types import FrameType
from typing import Any, Final, NamedTuple

import torch

from tensormagic.collectors.calls import call_notes, loop_notes, seen_calls, seen_losses, seen_made
from tensormagic.collectors.calls.call_notes import ALONE, CLOSELY, Call, Doubles, NotesOfDoubles, Place
from tensormagic.collectors.calls.loop_notes import LoopNotes, NotesOfLoop
from tensormagic.collectors.calls.seen_calls import NotesOfBroadcasts, NotesOfSequences, Sequences, Wide
from tensormagic.collectors.calls.seen_made import Fresh, NotesOfDropouts, NotesOfFresh
from tensormagic.collectors.cuts.detachment_values import ROLES
from tensormagic.collectors.faults.autograd_watch import NOTED
from tensormagic.collectors.where.source import SourceLines, is_own_code

# Looks at single calls of the forward for what is worth knowing, and counts by line.
#
# `WATCHED` says which calls are looked at, and by whom; all others cost nothing here. A line of the
# person's that runs a thousand times is looked at closely in its first calls and at exponentially rarer ones after
# that; the rest are counted. A call from library code is always looked at: there one place serves many lines of the
# person's.

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


# Which calls the tracer cares about: one table, so that every other call costs one look-up in it and no more.
#
# A call may have a role (it ends the gradient's way, see `collectors.cuts.detachment_values`) and looks: functions
# that are told of it once it has been made, and note what is worth knowing. To watch another call, write a look
# (``look(watch, call)``) in a file of its own, and a line in `_LOOKS`.


class Watched(NamedTuple):
    """What a call is to the tracer: its role where gradients end, who looks at it afterwards, and as what it is noted.

    Looks are taken ever more rarely; what `autograd_watch` notes (writes in place above all), it is told of each time.
    """

    role: str | None
    looks: tuple[Look, ...]
    noted: str = ""


# The last two are seen as wholes where a mode of the person's is on beside ours, as with ``torch.set_default_device``.
_OWNERS: tuple[Any, ...] = (
    torch.Tensor,
    torch,
    torch._C._nn,
    torch._C._VariableFunctions,
    torch.nn.functional,
    torch.nn.init,
)

_LOOKS: tuple[tuple[Look, tuple[str, ...]], ...] = (
    (seen_calls.copied, seen_calls.RESHAPES),
    (loop_notes.added, loop_notes.SUMS),
    (seen_calls.both_grew, seen_calls.BROADCASTS),
    (seen_calls.grew_in_a_loss, seen_calls.JOINED),
    (seen_calls.grew_in_a_whole_loss, call_notes.LOSSES),
    (call_notes.promoted, (*call_notes.ELEMENTWISE, *call_notes.LOSSES, *call_notes.JOINING)),
    (call_notes.mixed, (*call_notes.ELEMENTWISE, *call_notes.JOINING, *call_notes.CONVOLUTIONS)),
    (call_notes.made_double, call_notes.MAKING),
    (seen_losses.normalised, seen_losses.NAMES),
    (seen_calls.regrouped, seen_calls.RESHAPING),
    (seen_calls.same_memory, seen_calls.STACKING),
    (call_notes.wrapped, call_notes.ARITHMETIC),
    (seen_losses.no_logarithms, seen_losses.DIVERGENCES),
    (seen_losses.likelihood_over, seen_losses.LIKELIHOODS),
    (seen_losses.weights_over, seen_losses.PRODUCTS),
    (seen_losses.samples_over, seen_losses.SOFTMAXES),
    (seen_calls.recurred, seen_calls.LAYERS),
    (seen_calls.last_of_the_batch, seen_calls.INDEXING),
    (seen_losses.not_detached, seen_losses.SCORING),
    (seen_losses.bootstrapped, seen_losses.COMPARING),
    (seen_made.loaded, seen_made.SEEDING),
    (seen_made.dropped, seen_made.DROPPING),
    (seen_made.drew, seen_made.DRAWS),
    (seen_made.asked_for, seen_made.FRESH),
    (seen_calls.waited, seen_calls.WAITS),
    (loop_notes.normalised, loop_notes.NORMS),
    (loop_notes.clipped, loop_notes.CLIPS),
)


def _functions(names: Iterable[str]) -> Iterable[Any]:
    """Yield what bears each name: the method of a tensor, and the function of torch."""
    for name in names:
        for owner in _OWNERS:
            if callable(function := getattr(owner, name, None)) and not isinstance(function, type | torch.dtype):
                yield function


def _watched() -> dict[Any, Watched]:
    looks: dict[Any, tuple[Look, ...]] = {loop_notes.PROFILED: (loop_notes.cleared,)}
    for look, names in _LOOKS:
        for function in dict.fromkeys(_functions(names)):
            looks[function] = (*looks.get(function, ()), look)
    return {
        function: Watched(ROLES.get(function), looks.get(function, ()), NOTED.get(function, ""))
        for function in {**ROLES, **looks, **NOTED}
    }


WATCHED: Final[dict[Any, Watched]] = _watched()
