"""Watches a run for draws of random numbers: which line and call, from which generator, how many values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import torch

from tensormagic.collectors.hooks.mode_suspension import Listener, OperationListener
from tensormagic.collectors.hooks.replacing import noted_seeds
from tensormagic.collectors.hooks.undo_stack import UndoStack
from tensormagic.collectors.quiet import Looking, quiet
from tensormagic.collectors.rng.generators import TYPES, Reading, defaults, generators, identity, read, state_of
from tensormagic.reports import Gap
from tensormagic.reports.rng import Draw, DrawKind, DrawSum, GeneratorState, RngRunReport
from tensormagic.words import error_text

MOST_DRAWS = 10_000


@dataclass(slots=True)
class _Followed:
    """A generator, and its state when it was looked at last."""

    generator: Any
    index: int
    reading: Reading


# torch tags every operation that may draw; whether one did is seen from its generator's state before and after. NumPy
# and Python announce nothing: their states are looked at before each such operation that is on another line, and
# after each statement of a cell, so that a draw of theirs is known to lie between two lines.


class DrawListener(Looking, Listener, OperationListener):
    """Watches a run for draws of random numbers; arguments as `Listener` takes them. Holds generators until its end."""

    used_before = "this object was used before; make a new one with tensormagic.track_rng()"

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._followed: dict[int, _Followed] = {}
        self._starts: list[GeneratorState] = []  # the generators as they stood when they were first seen
        self._defaults: dict[str, Any] = dict(defaults())
        self._ends: tuple[GeneratorState, ...] = ()  # the same at the end; nothing before that
        self._sums: dict[tuple[Any, ...], list[Any]] = {}  # the fields of each `DrawSum`, the first five as the key
        self._draws: list[Draw] = []  # the first, in order
        self._last_site: int | None = None
        # With what torch was seeded, and on which line, by the generators that were not looked at since.
        self._seeded: dict[int, tuple[int, int | None]] = {}
        self._drawn = 0
        self._gaps: list[Gap] = []
        self.operations = self

    def begin(self) -> None:
        """Take down how all generators stand."""
        with quiet():
            self.guarded(self._open)

    def _open(self) -> None:
        found, cut = generators(self._namespace)
        self._gaps += [Gap("names", cut)] if cut else []
        for generator, names in found.values():
            self._follow(generator, names)

    def enter(self, undoing: UndoStack) -> None:
        """Be told where torch is seeded."""
        undoing.enter_context(noted_seeds(lambda *given: self.guarded(self._note_seed, *given)))

    def _note_seed(self, frame: FrameType, seed: int) -> None:
        self._seeded = dict.fromkeys(range(len(self._starts)), (seed, self._sites.of_frame(frame)))

    def wants(self, op: Any) -> Any:
        """Return an operation that may draw."""
        draws = isinstance(op, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in op.tags
        return op if draws else None

    def around(self, call: Any, known: Any, frame: FrameType | None, op: Any, args: Any, kwargs: Any) -> Any:  # noqa: PLR0913, PLR0917
        """Make a call, and note what it drew."""
        drawing = self.guarded(self._before, args, kwargs or {}, frame)
        result = call(op, args, kwargs)
        if drawing is not None:
            self.guarded(self._after, drawing, known, result)
        return result

    def finish(self, error: BaseException | None, frame: FrameType | None) -> None:  # noqa: ARG002  (a listener's)
        """Look once more at all of them."""
        with quiet():
            self.guarded(self._close)

    def _close(self) -> None:
        try:
            self._look(None, every=True)
            found, _ = generators(self._namespace)  # by the names that lead to them now
            ends = []
            for key, each in self._followed.items():
                start = self._starts[each.index]
                names = found[key][1] if key in found else [start.name, *start.names]
                if not start.name:
                    name = names[0] or "an unnamed generator"
                    self._starts[each.index] = replace(start, name=name, names=tuple(names[1:]))
                ends.append(state_of(each.generator, *names))
            self._ends = tuple(ends)
        finally:
            self._followed.clear()
            self._defaults.clear()

    def _follow(self, generator: Any, names: list[str]) -> _Followed | None:
        try:
            start = state_of(generator, *names)
        except Exception as error:  # a subclass of a user's own may refuse
            self._gaps.append(Gap(names[0], error_text(error)))
            return None
        followed = self._followed[identity(generator)] = _Followed(generator, len(self._starts), read(generator))
        self._starts.append(start)
        return followed

    def _before(self, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType | None) -> _Followed | None:
        """Look at what a call is about to draw from: the generator it was given, else the default of its device."""
        site = self._sites.of_frame(frame)
        if site != self._last_site:
            self._look(site)
        generator: Any = next(
            (value for value in (*kwargs.values(), *args) if isinstance(value, torch.Generator)), None
        )
        if generator is None:
            device = kwargs.get("device") or next((x.device for x in args if isinstance(x, torch.Tensor)), None)
            name = "torch, CPU" if device is None or torch.device(device).type == "cpu" else f"torch, {device}"
            if name not in self._defaults:
                self._defaults = dict(defaults())  # the first use of a device makes its generator
            if (generator := self._defaults.get(name)) is None:
                return None
        each = self._followed.get(identity(generator)) or self._follow(generator, [""])
        if each is not None:
            self._changed(each, "", site)
        return each

    def _after(self, each: _Followed, op: Any, result: Any) -> None:
        first = result[0] if isinstance(result, list | tuple) and result else result
        elements = int(first.numel()) if isinstance(first, torch.Tensor) else None
        self._changed(each, str(getattr(op, "_overloadpacket", op)), self._last_site, elements)

    def _look(self, site: int | None, *, every: bool = False) -> None:
        """Look at those that draw without torch, or all; what has changed did so between the last look and here."""
        for each in list(self._followed.values()):
            if every or not isinstance(each.generator, torch.Generator):
                self._changed(each, "", site)
        self._last_site = site

    def passed(self, filename: str, first: int, last: int) -> None:
        """Look at the generators after a statement of the cell has run, which is on these lines."""
        self.guarded(self._look_after, filename, first, last)

    def _look_after(self, filename: str, first: int, last: int) -> None:
        before = self._sites.location(self._last_site)
        if before is None or before.filename != filename or not first <= before.line <= last:
            self._last_site = self._sites.number(filename, first)
        self._look(self._sites.number(filename, last), every=True)
        self._seeded = {}
        # Those that it gave a name are followed from now on: of NumPy's and Python's nothing else shows.
        for name, value in list(self._namespace.items()):
            if issubclass(type(value), TYPES) and not name.startswith("_") and identity(value) not in self._followed:
                self._follow(value, [name])

    def _changed(self, each: _Followed, op: str, site: int | None, values: int | None = None) -> None:
        guard = torch._C._DisableTorchDispatch()
        try:
            now = read(each.generator)
        finally:
            del guard
        last, each.reading = each.reading, now
        again = now.raw == last.raw
        if again and (op or not self._seeded_alike(each)):
            return
        noted = self._seeded.pop(each.index, None)
        numbers = None if op or again else last.numbers_to(now)
        kind: DrawKind = "drew" if op or numbers is not None else "set"
        since, seeded = site if op else self._last_site, ""
        if kind == "set" and noted is not None and _has_seed(each.generator, noted[0]):
            op, since, site, seeded = "seed", noted[1], noted[1], str(noted[0])
        drawn = values if kind == "drew" and op else numbers
        known = self._sums.setdefault((each.index, kind, op, site, since), [0, 0, self._drawn])
        known[0] += 1
        known[1] = None if drawn is None or known[1] is None else known[1] + drawn
        if len(self._draws) < MOST_DRAWS:
            self._draws.append(Draw(each.index, kind, op, site, since, drawn, now.digest, seeded))
        self._drawn += 1

    def _seeded_alike(self, each: _Followed) -> bool:
        """Return whether the first that a run does with a generator is to give it the seed with which it stood there.

        That changes nothing, but in another run it would: two runs that begin with a seed are alike.
        """
        if each.index not in self._seeded or any(index == each.index for index, *_ in self._sums):
            return False
        default = identity(each.generator) in map(identity, self._defaults.values())
        return default and _has_seed(each.generator, self._seeded[each.index][0])

    def report(self) -> RngRunReport:
        """Return everything known so far."""
        left = [Gap("draws", why) for why in (self.gap, self.run.unheard) if why]
        return RngRunReport(
            **self.run.fields(),
            before=tuple(self._starts),
            after=self._ends,
            sums=tuple(DrawSum(*key, *described) for key, described in list(self._sums.items())),
            draws=tuple(self._draws),
            count=self._drawn,
            gaps=(*self._gaps, *self._sites.gaps(), *left),
            locations=self._sites.locations,  # last: what is above has its line, also while the run goes on
        )


def _has_seed(generator: Any, seed: int) -> bool:
    """Return whether a generator is torch's and was given this seed: it keeps a negative one as 64 bits."""
    return isinstance(generator, torch.Generator) and generator.initial_seed() in {seed, seed + 2**64, seed + 2**64 - 1}
