"""Watches a run for in-place writes: which line, which op, to what, and whose elements that changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from math import prod
from time import process_time
from types import FrameType
from typing import Any

import torch

from tensormagic.collectors.aliasing.storage_aliases import StorageAliases
from tensormagic.collectors.aliasing.write_effects import (
    Call,
    Suspicion,
    SwapWatch,
    WriteSeen,
    WriteTarget,
    WriteTotal,
    effects,
    refusal,
    repeats,
    settle,
    statement_of,
    suspect,
    through,
    written_name,
)
from tensormagic.collectors.geometry.overlap import index_at, place_of, touched, written_elements
from tensormagic.collectors.geometry.strides import Written, counter_of, counter_place, does_write, written_by
from tensormagic.collectors.hooks.mode_suspension import Listener, OperationListener
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.where.caller import Engine
from tensormagic.collectors.where.source import innermost_own, names_of, own_frames
from tensormagic.reports import Clash, Gap, WritesReport
from tensormagic.words import error_text, listed, plural, seconds_text

# What is known of the writes so far: a tally for each line and op, with the names that it changed.
#
# Whoever may share the memory is asked for only when something can have changed: a storage got another user, a name
# died, or a line wrote for the first few times. A loop of a thousand steps looks the names up a dozen times.

MOST_REPLAYS = 8  # suspicious calls of one line and op that are done once more, to see what they should give
FREE_SEARCHES = 0.1  # seconds of this process for looking names up whenever something may have changed; beyond that,
FIRST_SEARCHES = 1.0  # the same, for a line that has not had its look-up yet
SEARCH_SHARE = 8  # a look-up waits until so many times what the last one took has passed
CALLERS = 4  # of the user's functions, from the write outwards, that are asked what they passed
_ALONE = 2  # users of a storage when one tensor and the question itself are all
_use_count = torch._C._storage_Use_Count


# A dispatch mode sees every op, the ones inside torch's own functions included; nearly all of them write to nothing.
# What a write needs more is looked at in steps, each only where the one before gave reason to: does anything else use
# the storage, does anybody have a name for it, do the bytes meet.

_UNSEEN = "{} changed by writes that were not seen: of another thread, or within a compiled function"
_graph_task: Callable[[], int] = torch._C._current_graph_task_id


class WriteListener(Listener, OperationListener):
    """Watches a run for in-place writes; arguments as `Listener` takes them."""

    used_before = "this watch was used before; make a new one with tensormagic.watch_writes()"

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._storage_aliases = StorageAliases(self._namespace)
        self._swaps = SwapWatch()
        self._totals: dict[tuple[Any, ...], WriteTotal] = {}  # by line, op and instruction
        self._gaps: dict[str, Gap] = {}
        self._search_seconds = self._search_took = self._searched = 0.0
        self._seen = self._names_searched = 0
        self._engine_writes = 0  # how often backward itself wrote
        # Of what had a name when the run began: where it lies, and its version. No weak reference to it: where there is
        # one, `torch.utils.swap_tensors` refuses.
        self._versions: dict[str, tuple[int, int]] = {}
        self._counted: dict[int, int] = {}  # how often ops that were seen raised the version counters of these
        self._unseen = ""
        self.operations = self

    def prepare(self) -> None:
        """Find version counters: under the mode autograd is out of reach, and they could not be found any more."""
        counter_place()
        named = self._named()
        self._versions = {name: (x._cdata, x._version) for name, x in named.items()}
        self._counted = {counter: 0 for x in named.values() if (counter := counter_of(x)) is not None}

    def wants(self, op: Any) -> tuple[Any, Written] | None:
        """Return an operation, and what it may write to; nothing is what it only lays out anew, as ``t_`` does."""
        written = written_by(op)
        return (op, written) if written.slots or torch.Tag.inplace_view in op.tags else None

    def around(self, call: Any, known: Any, frame: FrameType | None, op: Any, args: Any, kwargs: Any) -> Any:  # noqa: PLR0913, PLR0917
        """Make a call, and note what it writes to."""
        made = known[0], args, kwargs or {}
        try:
            total = self._due(known[1], made, frame)
        except Exception as error:
            self._add_gap(error)
            total = None
        if total is None or frame is None:
            return call(op, args, kwargs)
        try:
            result = call(op, args, kwargs)
        except BaseException as error:
            self._refused(total, made, error, frame)
            raise
        self._done(total, made, frame)
        return result

    def finish(self, error: BaseException | None, frame: FrameType | None) -> None:  # noqa: ARG002  (a listener's)
        """Let go of everything but numbers."""
        self._storage_aliases, self._swaps = StorageAliases({}), SwapWatch()
        for total in self._totals.values():
            total.suspicion = None
        written = []
        for name, x in self._named().items():
            identity, before = self._versions.get(name, (0, 0))
            counter, seen = counter_of(x), self._seen + self._engine_writes
            if counter is not None:
                seen = self._counted.get(counter, 0)
            more = x._version - before - seen  # by how much its version rose that ops that were seen do not account for
            if identity == x._cdata and more > 0 and not (more <= seen and _may_mark()):
                written.append(name)
        self._unseen = _UNSEEN.format(listed(written, most=4)) if written else ""
        self._versions, self._counted = {}, {}

    def _named(self) -> dict[str, torch.Tensor]:
        plain = (torch.Tensor, torch.nn.Parameter)  # the class of anything else is not even asked for its hash
        named = list(self._namespace.items())
        return {name: x for name, x in named if any(type(x) is kind for kind in plain) and not x.is_inference()}

    def _count(self, tensors: Iterable[Any]) -> None:
        with torch._C.DisableTorchFunction():
            for x in tensors:
                counter = counter_of(x)
                if counter in self._counted:
                    self._counted[counter] += 1

    def report(self) -> WritesReport:
        """Return everything known so far."""
        gaps = list(self._gaps.values())
        totals = list(
            {id(total): total for total in self._totals.values()}.values()
        )  # in the order of their first writes
        if unsearched := sum(total.searched is False for total in totals):
            places = "one line" if unsearched == 1 else plural(unsearched, "line")
            reason = (
                f"the names were not searched again for the writes of {places}, because that takes "
                f"{seconds_text(self._search_took)} each time: a recently bound name may be missing there"
            )
            gaps.append(Gap("names", reason))
        return WritesReport(
            **self.run.fields(),
            writes=tuple(total.report(self._sites) for total in totals),
            writes_seen=self._seen,
            engine_writes=self._engine_writes,
            names_searched=self._names_searched,
            gaps=(
                *gaps,
                *self._sites.gaps(),
                *(Gap("writes", reason) for reason in (self.run.unheard, self._unseen) if reason),
            ),
        )

    # -- around a write -------------------------------------------------------------------------------------------

    def _due(self, written: Written, call: Call, frame: FrameType | None) -> WriteTotal | None:
        """Return where to note what a call is about to write; None where it writes nothing, or backward writes."""
        self._count(written.tensors(call[1], call[2]) if written.slots else call[1][:1])
        if not written.slots or not does_write(written, *call):
            return None
        if frame is None or (_graph_task() != -1 and frame.f_code in {Engine.code, Engine.stand_in}):
            self._engine_writes += 1
            return None
        return self._begun(written, call, frame)

    def _begun(self, written: Written, call: Call, frame: FrameType) -> WriteTotal:
        own = innermost_own(frame)
        key = (self._sites.of_frame(own), written.name, own and own.f_lasti)
        total = self._totals.get(key)
        if total is None:
            total = self._totals[key] = self._same(key[:2], written, call, frame) or WriteTotal(key[0], written)
        total.calls += 1
        self._seen += 1
        if total.replays < MOST_REPLAYS:
            try:
                targets = written.tensors(call[1], call[2])
                total.suspicion = suspect(written, call, targets) or self._swap(total, call, targets, frame)
                total.replays += total.suspicion is not None
            except Exception as error:
                self._add_gap(error)
        return total

    def _same(self, place: tuple[Any, ...], written: Written, call: Call, frame: FrameType) -> WriteTotal | None:
        """Return the writes of another instruction of a line with the same op, if it does not name another target."""
        others = [total for key, total in self._totals.items() if key[:2] == place]
        try:
            via = through(frame, written.tensors(call[1], call[2])[0])[1] if others else None
        except Exception:  # what it writes to is found out later, and why not is said there
            via = None
        return next((total for total in others if via is None or total.target in {"", via.name}), None)

    def _swap(self, total: WriteTotal, call: Call, targets: list[torch.Tensor], frame: FrameType) -> Suspicion | None:
        if total.swaps is False or total.written.name != "copy_" or not isinstance(call[1][1], torch.Tensor):
            return None
        if (own := innermost_own(frame)) is None:
            return None
        if total.swaps is None:
            total.swaps = statement_of(own).swaps
        return self._swaps.suspect(own, targets[0], call[1][1]) if total.swaps else None

    def _refused(self, total: WriteTotal, call: Call, error: BaseException, frame: FrameType) -> None:
        suspicion, total.suspicion = total.suspicion, None
        try:
            self._describe(total, call, frame)
            if kind := refusal(error):
                known = suspicion.clash if suspicion is not None and suspicion.clash.kind == kind else None
                plain = known or Clash(kind, "", None, prod(total.shape))  # type: ignore[arg-type]
                total.clash = replace(plain, tensor=total.target, refused=True)
        except Exception as odd:
            self._add_gap(odd)

    def _done(self, total: WriteTotal, call: Call, frame: FrameType) -> None:
        """Note what a write that was made has changed. Never raises."""
        suspicion, total.suspicion = total.suspicion, None
        try:
            if suspicion is not None and (clash := settle(suspicion, pointwise=total.written.pointwise)) is not None:
                self._describe(total, call, frame)
                _, via = through(frame, suspicion.target)
                _note_worse(total, _in_terms_of(clash, suspicion.target, via))
            for target in total.written.tensors(call[1], call[2]):
                self._look(total, target, call, frame)
        except Exception as error:
            self._add_gap(error)

    def _add_gap(self, error: Exception) -> None:
        reason = f"a write could not be inspected: {error_text(error)}"
        self._gaps.setdefault(reason, Gap("writes", reason))

    # -- looking, in steps ----------------------------------------------------------------------------------------

    def _look(self, total: WriteTotal, target: torch.Tensor, call: Call, frame: FrameType) -> None:
        self._describe(total, call, frame)
        if target.layout != torch.strided or not target.numel():
            return
        storage = target.untyped_storage()
        identity, foreign = storage._cdata, not storage.resizable()
        total.storage = total.storage or identity
        total.several = total.several or total.storage != identity
        users, calls = _use_count(identity), total.calls
        due = calls <= 4 or calls & (calls - 1) == 0  # whatever is known: the first four times, then at each doubling
        if users <= _ALONE and not due and not foreign:
            return
        if due or not self._storage_aliases.knows(identity, users):
            if self._search(frame, free=FREE_SEARCHES if total.searched else FIRST_SEARCHES):
                self._storage_aliases.note(identity)
                total.searched = True
            else:
                total.missed = True
                total.searched = total.searched or False
        region = place_of(target)
        hits = list(self._storage_aliases.of(storage, region))
        if hits or (due and users > _ALONE):
            self._follow(WriteSeen(total, target, region, call, hits), frame, due=due)

    def _search(self, frame: FrameType, *, free: float = FREE_SEARCHES) -> bool:
        """Look the names up anew, unless that has taken long and the last time is not long ago; says whether it did."""
        began = process_time()
        if self._search_seconds > free and began - self._searched < SEARCH_SHARE * self._search_took:
            return False
        self._storage_aliases.learn(frame)
        self._names_searched = self._storage_aliases.searched
        self._searched = process_time()
        self._search_took = self._searched - began
        self._search_seconds += self._search_took
        if not self._storage_aliases.complete:
            reason = (
                f"{self._names_searched} names and items were searched, not all: only the start of a long container is "
                "searched, and unreadable objects are skipped"
            )
            self._gaps.setdefault("too many", Gap("names", reason))
        return True

    def _follow(self, seen: WriteSeen, frame: FrameType, *, due: bool) -> None:
        total = seen.total
        statement, via = through(frame, seen.target)
        total.target = total.target or self._storage_aliases.name_of(written_name(seen))
        with quiet():
            seen.mask, seen.certain = written_elements(total.written.name, seen.target, seen.call[1])
            if (
                due
                and seen.certain
                and via is not None
                and via.tensor is not seen.target
                and repeats(via.tensor) is not None
            ):
                # A write to a part of a tensor that repeats its elements changes more than that part.
                reached = touched(place_of(via.tensor), seen.region, seen.mask).elements
                written = seen.target.numel() if seen.mask is None else int(seen.mask.sum())
                if reached is not None and reached > written:
                    _note_worse(total, Clash("repeats", via.name, reached, written))
            arguments = _arguments(seen.target, frame, named=via is not None) if due else {}
            handed = [seen.change(name, "argument", x, noticed=True) for name, x in arguments.items()]
            for changed in (*effects(seen, statement, via), *handed):
                total.counts[changed.name] = total.counts.get(changed.name, 0) + 1
                known = total.changed.get(changed.name)
                if known is None or changed.items > known.items:
                    other = ""  # what was written to, where it is not what the line wrote to first
                    if not total.named and seen.target.untyped_storage()._cdata != total.storage:
                        other = via.name if via is not None else self._storage_aliases.name_of(seen.target)
                        other = other or "a tensor without a name"
                    total.changed[changed.name] = replace(changed, through=other)

    def _describe(self, total: WriteTotal, call: Call, frame: FrameType) -> None:
        if total.described or not (targets := total.written.tensors(call[1], call[2])):
            return
        target = targets[0]
        total.described, total.shape = True, tuple(target.shape)
        _, via = through(frame, target)
        if via is not None:
            total.target, total.named = via.name, True
            return
        if not self._storage_aliases.name_of(target):
            self._search(frame)
        total.target = self._storage_aliases.name_of(target)


def _arguments(target: torch.Tensor, frame: FrameType | None, *, named: bool) -> dict[str, torch.Tensor]:
    """Return what the user handed to a running call that writes to it unsaid; if it is ``named``, to its callers'."""
    found: dict[str, torch.Tensor] = {}
    written = [x for x in (target, target._base) if x is not None]
    for depth, own in enumerate(islice(own_frames(frame), CALLERS)):
        passed = statement_of(own).passed if depth or not named else ()
        values = names_of(own) if passed else {}
        found |= {name: values[name] for name in passed if any(values.get(name) is x for x in written)}
    return found


def _note_worse(total: WriteTotal, clash: Clash) -> None:
    """Keep the clash that says more: one that is known to have gone wrong."""
    if total.clash is None or (clash.wrong or 0) > (total.clash.wrong or 0):
        total.clash = clash


def _in_terms_of(clash: Clash, target: torch.Tensor, via: WriteTarget | None) -> Clash:
    """Return a clash with its index in the tensor that the line names; none where that is unknown."""
    if via is None or clash.index is None:
        return replace(clash, tensor=via.name if via is not None else "")
    region = place_of(target)
    byte = region.start + sum(at * step for at, step in zip(clash.index, region.stride, strict=True))
    index = clash.index if via.tensor is target else index_at(place_of(via.tensor), byte)
    return replace(clash, tensor=via.name, index=index)


def _may_mark() -> bool:
    """Return whether there is a Function that marks what it writes to as dirty: torch counts such a write twice."""
    waiting: list[type] = [torch.autograd.Function]
    while waiting:
        kind = waiting.pop()
        waiting += type.__subclasses__(kind)
        for name in ("forward", "setup_context"):
            method = vars(kind).get(name)
            code = getattr(getattr(method, "__func__", method), "__code__", None)
            if code is not None and "mark_dirty" in code.co_names:
                return True
    return False
