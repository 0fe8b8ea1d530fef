"""Follows what the gradient cannot follow: values whose history a call did not pass on, to the nodes that use them.

The function mode sees the call that ended the way; nothing of it is left in the graph. What came out is known from then
on by a weak reference. A call that makes no node passes the mark on from what goes in to what comes out; a call that
makes nodes, one of which has an input without a way back, is where it was used. In-place writes into other tensors pass
it on quietly: a buffer that is updated from detached values (an exponential moving average, a queue of keys) is no end
of a way, unless something misses its gradient because of it.

Nothing is done in a call while no marked value lives, gradients are on and the function is not among the `ROLES`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.utils.checkpoint

from tensormagic.collectors.detachment.detachment_facts import (
    GRAD_MODE,
    INTO,
    OVERWRITE,
    VALUELESS,
    WRITTEN,
    DetachedLeaves,
    Detachment,
    NumberMark,
    Trained,
    differentiable,
    dtype_of,
    receiver_of,
    shape_of,
)
from tensormagic.collectors.graphs.live_nodes import flat, history_of, without_history
from tensormagic.collectors.objects.children import has_history, is_leaf
from tensormagic.collectors.objects.identity import Marks
from tensormagic.collectors.quiet import Looking, TensorRef
from tensormagic.collectors.where.caller import DECORATING
from tensormagic.collectors.where.source import SourceLines, is_ours, is_own_code, outwards
from tensormagic.reports.graph import EXPLICIT_CUTS, CutKind
from tensormagic.words import error_text

MOST_LIVE = 512  # marked values followed at the same time; the oldest are let go first
MOST_OPEN = 512  # cuts of one forward that wait for a backward to say which node is which
MOST_RECEIVERS, MOST_REGIONS = 16, 64

_TORCH = Path(torch.__file__).parent
_OF_TORCH = str(_TORCH) + os.path.sep
_DISTRIBUTIONS = f"{os.path.sep}distributions{os.path.sep}"  # torch's, and Pyro's and GPyTorch's beside them
_SWITCHES = (str(_TORCH / "autograd" / "grad_mode.py"), DECORATING)
_IGNORED = (str(_TORCH / "optim") + os.path.sep, str(_TORCH / "utils" / "checkpoint.py"))
_CHECKPOINT = torch.utils.checkpoint.CheckpointFunction.forward.__code__
_ON_THE_WAY = frozenset({"grad", "__torch_function__", "handle_torch_function"})  # from `autograd.grad`, also by modes
_NUMBERS = (float, complex)  # a fresh object each time; small integers are shared by all

Call = tuple[Any, "str | None", bool]  # a function, its role, and whether gradients are off
Given = tuple[tuple[Any, ...], dict[str, Any]]


class Region(NamedTuple):
    """Where gradients were switched off."""

    site: int | None  # the user's line
    ignored: bool  # whether that is nobody's business: an optimizer's
    by_library: bool  # whether code did it that is neither the user's own nor torch's on the user's behalf
    op: str  # what did it, where that is no switch: a re-entrant checkpoint none of whose inputs asks for a gradient


class DetachedValues(Looking):
    """What is known of ended ways while a run goes on."""

    def __init__(self, sites: SourceLines, module_path: Callable[[FrameType | None], str]) -> None:
        self._sites, self._module_path = sites, module_path
        self._region: Region | None = None
        self._regions: list[Region | None] = []
        self._numbers: list[int] = []
        self._last_roots: frozenset[int] = frozenset()
        self.live = Marks(MOST_LIVE)  # falsy where there are none: then a call costs nothing more
        self.open: dict[int, Detachment] = {}  # those that wait for a backward pass
        self.trained = Trained()
        self._leaves_at: dict[tuple[str, str, int | None], DetachedLeaves] = {}

    def before(self, func: Any, role: str, args: tuple[Any, ...], frame: FrameType) -> tuple[int, str] | None:
        """Look at a call with a role before it is made; returns what `passed` will need afterwards. Never raises."""
        history: tuple[int, str] | None = None
        if role is GRAD_MODE:
            self.guarded(self._switch, bool(args) and args[0] is False, frame)
        elif func is _DETACH_IN_PLACE and args and not _is_backward():
            history = self.guarded(history_of, args[0])
        return history

    def passed(
        self, call: tuple[Any, str | None, tuple[int, str] | None], given: Given, result: Any, frame: FrameType
    ) -> None:
        """Look at a call that made no node: the function, its role, what `before` returned; its arguments."""
        func, role, history = call
        if role in _BLIND or (role is None and not isinstance(result, _FOLLOWED)) or (role is INTO and not self.live):
            return
        if _is_backward():
            return
        if off := not _is_grad_enabled():
            # For a reason that is none of the user's: an optimizer's step, the forward of a custom Function, or a
            # switch from before the trace.
            region = self._region
            if region.ignored if region is not None else not torch.is_inference_mode_enabled():
                return
        values = (*given[0], *given[1].values()) if given[1] else given[0]
        try:
            if role is not None or (off and _asks_for_gradient(values)) or _any_of(self.live, values):
                if history is None:
                    self.guarded(self._pass, (func, role, off), values, result, frame)
                elif history[0] >= 0:  # of an in-place detach: the node that made what it was
                    self.guarded(self._lost_in_place, history, result, frame)
        except Exception as error:
            self.gap = error_text(error)

    def used(self, made: tuple[int, int], given: Given, result: Any) -> None:
        """Look at a call that made the nodes ``made`` (from, to) while marked values lived. Never raises."""
        values = (*given[0], *given[1].values()) if given[1] else given[0]
        if not _is_backward() and _any_of(self.live, values):
            self.guarded(self._use, made, list(flat(values)), result)

    def returned(
        self, gradients: Iterable[Any], roots: Iterable[Any], inputs: Iterable[Any], frame: FrameType | None
    ) -> None:
        """Follow what the user's own call of ``autograd.grad`` returned without a graph."""
        while frame is not None and (
            is_ours(code := frame.f_code) or (code.co_name in _ON_THE_WAY and code.co_filename.startswith(_OF_TORCH))
        ):
            frame = frame.f_back
        if frame is None or not is_own_code(frame.f_code.co_filename) or not _is_grad_enabled():
            return
        sources = [root for root in roots if has_history(root)]
        found = [each for each in gradients if without_history(each)]
        if sources and found:
            detachment = self._detach(("grad", "torch.autograd.grad"), sources[0], found[0], frame)
            detachment.with_sources(sources)
            for asked in inputs:
                detachment.detached_leaves.leaves.pop(id(asked), None)  # its gradient was returned
            for each in found:
                self._mark(each, detachment)

    def detachments_of(self, values: Iterable[Any]) -> list[Detachment]:
        """Return what ended the ways of those of ``values`` that are followed and have no history of their own."""
        with torch._C.DisableTorchFunction():
            return [found for value in values if (found := self._marked([value])) is not None]

    def finish_pass(self, roots: frozenset[int]) -> None:
        """Say that a pass has ended, and from which nodes it had started: reading those is mere logging now."""
        self._last_roots = roots
        while self._numbers:
            self.live.pop(self._numbers.pop(), None)

    def region_site(self) -> int | None:
        """Return the line that has switched gradients off, where they are and it is known."""
        return self._region.site if self._region is not None else None

    def pause(self) -> None:
        """Forget what is being followed: calls go by unseen from now on."""
        for each in (self.live, self.open, self._regions, self._numbers):
            each.clear()
        self._region = None

    def _switch(self, off: bool, frame: FrameType | None) -> None:  # noqa: FBT001  (as torch takes it)
        """Note that gradients were switched on or off, and where: on the way out of a block, what was before."""
        leaving = False
        while frame is not None and frame.f_code.co_filename.startswith(_SWITCHES):
            leaving |= frame.f_code.co_name == "__exit__"
            frame = frame.f_back
        if leaving:
            self._region = self._regions.pop() if self._regions else None
            return
        self._regions.append(self._region)
        del self._regions[:-MOST_REGIONS]
        lost = (
            off and self._region is None and frame is not None and frame.f_code is _CHECKPOINT
            and not _asks_for_gradient(frame.f_locals["args"])
        )  # fmt: skip
        ignored = frame is not None and frame.f_code.co_filename.startswith(_IGNORED) and not lost
        # Who calls `dist.sample()` need not know that torch draws under `no_grad`.
        caller = next((each for each in outwards(frame) if not each.f_code.co_filename.startswith(_OF_TORCH)), None)
        by_library = caller is not None and not is_own_code(caller.f_code.co_filename)
        region = Region(self._sites.of_frame(frame), ignored, by_library, "checkpoint" if lost else "")
        self._region = region if off else None

    def _lost_in_place(self, history: tuple[int, str], result: Any, frame: FrameType) -> None:
        detachment = self._detach(("detach", "detach_"), None, result, frame)
        detachment.number, detachment.source_name = history
        self._mark(result, detachment)

    def _pass(self, call: Call, values: tuple[Any, ...], result: Any, frame: FrameType) -> None:
        role, given = call[1], list(flat(values))
        first = result[0] if type(result) in _SEVERAL and result else result  # of ``torch._foreach_add_``, a list
        if role is OVERWRITE:
            self.live.pop(id(result), None)
        elif role == "frozen":
            if len(values) > 1 and values[1] is False and isinstance(result, torch.Tensor):
                self._detach(("frozen", "requires_grad_(False)"), result, result, frame)
        elif role is INTO:
            target, written = values[0], self._marked([values[-1]])
            if written is not None and isinstance(target, torch.Tensor) and not target.requires_grad:
                # Noted only where it explains something.
                self._mark(target, replace(written, receivers=[], listed=False, quiet=True))
        elif role is WRITTEN or any(first is value for value in given):
            self._write(call[0], list(flat(values[:1])), flat(values[1:]))
        else:
            results = [each for each in flat((result,)) if without_history(each) or (role == "copy" and is_leaf(each))]
            if results or role in EXPLICIT_CUTS:
                detachment = self._detachment_of(call, given, results[0] if results else result, frame)
                if role == "numpy" and detachment is not None and not (detachment.leaf is None or detachment.outside):
                    self._leave(detachment, frame)
                for each in results:
                    self._mark(each, detachment)

    def _detachment_of(self, call: Call, values: list[Any], result: Any, frame: FrameType) -> Detachment | None:
        """Return what ended the way of ``result``: this call, or one before it; None where it never had one."""
        func, role, off = call
        kind = _kind(role, result, off=off)
        sources = [value for value in values if isinstance(value, torch.Tensor) and value.requires_grad] if kind else []
        marked = self._marked(values)
        if marked is not None and marked.kind == "grad" and off and sources:
            marked = None  # a gradient says by how much to change: what changes is the leaf, and it is cut off here
        if role is None and marked is not None:
            return marked.with_sources(sources if off else ())
        source = next((value for value in sources if has_history(value)), None)
        if kind is None or not sources or (source is None and marked is not None):
            return marked
        source = sources[0] if source is None else source
        name = str(getattr(func, "__name__", kind))  # as a user knows it: ``detach``, ``.data``, ``float``, ``argmax``
        name = "state_dict" if frame.f_code is _OF_STATE else name
        op: str = kind if role != kind else ".data" if kind == "data" else _SHOWN.get(name, name)
        return self._detach((kind, op), source, result, frame).with_sources(sources)

    def _leave(self, detachment: Detachment, frame: FrameType) -> None:
        """Note that the value of a leaf goes on as NumPy or as numbers: in a forward that is no reading for a log."""
        if is_own_code(frame.f_code.co_filename) and self._module_path(frame):
            detachment.outside = detachment.listed = True
            self._wait(detachment)

    def _write(self, func: Any, written: list[Any], given: Iterable[Any]) -> None:
        """Note leaves that were written to by hand, or whose memory was, and whether other leaves' values went in."""
        if not str(getattr(func, "__name__", "")).endswith("_"):
            return
        values = list(given)
        behind = [found.detached_leaves.leaves for value in values if (found := self.live.of(value)) is not None]
        behind += [{id(value): TensorRef(value)} for value in values if is_leaf(value)]
        for each in written:
            shared = self.live.of(each)
            marked = shared.leaf() if shared is not None and shared.leaf else None
            if is_leaf(leaf := each if marked is None else marked):
                self.trained.write(leaf, behind)

    def _marked(self, values: list[Any]) -> Detachment | None:
        return next((self.live.of(each) for each in values if self.live.of(each) and not has_history(each)), None)

    def _detach(
        self, what: tuple[CutKind, str], source: torch.Tensor | None, result: Any, frame: FrameType
    ) -> Detachment:
        kind, op = what
        number, name = history_of(source) if source is not None else (-1, "")
        leaf = TensorRef(source) if source is not None and not has_history(source) else None
        site, called = self._sites.of_frame(frame), None
        # The density of a uniform distribution has a factor of 0 or 1: whether the value lies in its bounds.
        file = frame.f_code.co_filename
        by_library = kind == "non-differentiable" and _DISTRIBUTIONS in file and not is_own_code(file)
        if kind == "no_grad" and (region := self._region) is not None:
            called = site if leaf is not None else None
            op, site, by_library = region.op or op, region.site, region.by_library
        listed = is_own_code(frame.f_code.co_filename) and kind in _LISTED and (leaf is None or kind == "frozen")
        if leaf is not None and kind in {"no_grad", "inference_mode"}:
            name = self._module_path(frame)  # of a network that is only evaluated, its path says more than its leaf
        behind = self._leaves_at.setdefault((kind, op, site), DetachedLeaves())
        detachment = Detachment(
            kind, op, site, number, leaf, name, listed, shape_of(result), dtype_of(result), behind, by_library, called
        )
        if listed:
            self._wait(detachment)
        return detachment.with_sources(() if source is None else (source,))

    def _wait(self, detachment: Detachment) -> None:
        detachment.age = 0
        if len(self.open) < MOST_OPEN or id(detachment) in self.open:
            self.open[id(detachment)] = detachment

    def _mark(self, value: Any, detachment: Detachment | None) -> None:
        if detachment is None or (detachment.kind in _READ and detachment.number in self._last_roots):
            return  # the loss of a pass that is over, read for a log
        if type(value) in _NUMBERS:
            if detachment.kind in _NUMERIC:
                self.live.add(NumberMark(id(value), detachment, value))
                self._numbers.append(id(value))
        elif isinstance(value, torch.Tensor | np.ndarray):
            self.live.put(value, detachment)

    def _use(self, made: tuple[int, int], values: list[Any], result: Any) -> None:
        for at, value in enumerate(values):
            if (detachment := self.live.of(value)) is None:
                continue
            if has_history(value) or value is result:
                del self.live[id(value)]
            if has_history(value) and value is not result:
                continue  # what it is now has a way of its own
            if type(result) in _SEVERAL and isinstance(value, torch.Tensor):
                whole = value if value._base is None else value._base
                tensors = [x for x in result if isinstance(x, torch.Tensor) and without_history(x)]
                if views := [x for x in tensors if x is whole or x._base is whole]:
                    for view in views:  # of `broadcast_tensors`: what is used is the view
                        self._mark(view, detachment)
                    continue
            receiver = receiver_of(made, values, at, result)
            if receiver is not None and len(detachment.receivers) < MOST_RECEIVERS:
                detachment.receivers.append(receiver)
                self._wait(detachment)


_is_grad_enabled = torch.is_grad_enabled
_SHOWN = {"__float__": "float", "__int__": "int", "__index__": "index", "__complex__": "complex"}
_OF_STATE = torch.nn.Module._save_to_state_dict.__code__
_BLIND = frozenset({VALUELESS, GRAD_MODE})
_DETACH_IN_PLACE: Any = torch.Tensor.detach_
_FOLLOWED = (torch.Tensor, np.ndarray, tuple, list)
_SEVERAL = frozenset({list, tuple})
_LISTED = EXPLICIT_CUTS | {"frozen"}
_READ = frozenset({"detach", "item", "numpy"})
_NUMERIC = frozenset({"detach", "data", "item"})  # not of an accuracy, and not of an evaluation


def _is_backward() -> bool:
    """Say whether the engine runs, and calls: what it calls ends no way of the forward's."""
    return torch._C._current_autograd_node() is not None


def _any_of(live: Mapping[int, Any], values: tuple[Any, ...]) -> bool:
    for value in values if live else ():
        if id(value) in live or (type(value) in _SEVERAL and any(id(item) in live for item in value)):
            return True
    return False


def _asks_for_gradient(values: Iterable[Any]) -> bool:
    """Say whether a tensor that asks for a gradient is among the arguments of a call, or in a list of them."""
    with torch._C.DisableTorchFunction():
        for value in values:
            if isinstance(value, torch.Tensor):
                if value.requires_grad:
                    return True
            elif type(value) in _SEVERAL and _asks_for_gradient(value):
                return True
    return False


def _kind(role: str | None, result: Any, *, off: bool) -> CutKind | None:
    """Return in which way a call ends the way of a value that has one; None where it passes it on."""
    if role in EXPLICIT_CUTS or (role == "non-differentiable" and not off):
        return cast("CutKind", role)
    if role == "cast" and isinstance(result, torch.Tensor) and not differentiable(result):
        return "cast"
    if not off or not isinstance(result, torch.Tensor):
        return None
    return "inference_mode" if torch.is_inference_mode_enabled() else "no_grad"
