"""Which in-place writes changed which memory, on which line, and the writes that autograd cannot see."""

from __future__ import annotations

import sys
import weakref
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch.nn.parameter import is_lazy

from tensormagic.collectors.geometry.overlap import Region, overlap
from tensormagic.collectors.graphs.live_nodes import inputs_of
from tensormagic.collectors.graphs.saved_tensors import Saved, region_of, saved_by
from tensormagic.collectors.objects.children import updated_by
from tensormagic.collectors.objects.identity import Marks, holds
from tensormagic.collectors.quiet import dispatches_to_python
from tensormagic.collectors.where.caller import sequence_number
from tensormagic.collectors.where.source import SourceLines

# Remembers which lines wrote to which memory in place: a backward that finds a saved tensor changed can name them.
# Autograd counts writes; who wrote is not kept. Here each write leaves the address written to, the version afterwards,
# the sequence numbers of autograd around it, and its line (half a microsecond). What is saved keeps its memory alive,
# so that an address within it, written to after it was saved, is its own. An optimizer's step is one event, of which
# the versions of its parameters are kept.

MOST_WRITES = 2048  # remembered; the oldest are forgotten first
MOST_STEPS = 8  # of optimizers

_OPERATORS = (
    "__setitem__", "__iadd__", "__isub__", "__imul__", "__idiv__", "__itruediv__", "__ifloordiv__", "__imod__",
    "__ipow__", "__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__",
)  # fmt: skip
_NO_ELEMENTS = frozenset({
    "requires_grad_", "detach_", "resize_", "resize_as_", "squeeze_", "unsqueeze_", "transpose_", "t_", "swapaxes_",
    "swapdims_", "as_strided_", "rename_", "share_memory_", "apply_",
})  # fmt: skip

_BATCH_NORM = torch.nn.modules.batchnorm._BatchNorm.forward.__code__
_SEVERAL = frozenset({list, tuple})


def _writing() -> Iterator[tuple[Any, str]]:
    """Yield every function of torch's that writes to its first argument, and its name."""
    for owner in (torch.Tensor, torch, torch._C._nn, torch._C._VariableFunctions):
        for name in dir(owner):
            if name.endswith("_") and not name.endswith("__") and name not in _NO_ELEMENTS:
                function = getattr(owner, name)
                if callable(function) and not isinstance(function, type):
                    yield function, name
    yield from ((getattr(torch.Tensor, name), name) for name in _OPERATORS if hasattr(torch.Tensor, name))


IN_PLACE: dict[Any, str] = {**dict(_writing()), torch.Tensor.data.__set__: "data"}  # type: ignore[attr-defined]


class WriteRecord(NamedTuple):
    """One write: where to, and between which autograd nodes."""

    address: int  # first byte of what was written to
    version: int  # of it, afterwards
    start: int  # number that autograd would have given a node before the write
    stop: int  # the same after it: not ``start`` where the write is in the graph
    site: int | None  # the line; None where the node of the write shows it, and where none is known
    call: str  # what wrote
    blind: bool  # whether autograd could not see it


class Step(NamedTuple):
    """One step of an optimizer."""

    optimizer: weakref.ref[Any]  # weak
    name: str  # of its class
    versions: array[int]  # of its parameters, in order, afterwards
    number: int  # sequence number of autograd
    site: int | None  # the line


class WriteBook:
    """The writes of a run that are remembered."""

    def __init__(self, sites: SourceLines) -> None:
        self._sites = sites
        self._records: deque[Any] = deque(maxlen=MOST_WRITES)  # what makes a `WriteRecord`: quicker
        self._steps: deque[Step] = deque(maxlen=MOST_STEPS)

    def note(self, call: str, target: Any, start: int, frame: FrameType, blind: bool = False) -> None:  # noqa: FBT001, FBT002
        """Note that ``target``, a tensor or a list of them, was written to; the rest as in `WriteRecord`."""
        if frame.f_code is _BATCH_NORM:
            return  # its counter of batches
        stop = sequence_number()
        site = None if stop != start else self._sites.of_frame(frame)
        try:
            for tensor in target if type(target) in _SEVERAL else (target,):
                if dispatches_to_python(tensor):
                    continue  # it has no memory of its own, and a fake one warns when it is asked
                self._records.append((tensor.data_ptr(), tensor._version, start, stop, site, call, blind))
        except (RuntimeError, AttributeError):  # no memory of its own, no version, or no tensor
            return

    @property
    def last(self) -> WriteRecord | None:
        """The write that was noted last."""
        return WriteRecord(*self._records[-1]) if self._records else None

    def note_step(self, optimizer: Any) -> None:
        """Note that a step of an optimizer has ended."""
        versions = array("q", [parameter._version for parameter in updated_by(optimizer)])
        site, name = self._sites.of_frame(sys._getframe(2)), type(optimizer).__name__
        self._steps.append(Step(weakref.ref(optimizer), name, versions, sequence_number(), site))

    def forget(self) -> None:
        """Forget everything: calls go by unseen from now on."""
        self._records.clear()
        self._steps.clear()

    # -- looking back ---------------------------------------------------------------------------------------------

    def since(self, number: int, low: int, high: int) -> list[WriteRecord]:
        """Return the writes to memory from byte ``low`` to ``high``, after the node with that number was made."""
        records = map(WriteRecord._make, self._records)
        found = [one for one in records if low <= one.address < high and one.stop > number]
        for step in self._steps:
            optimizer = step.optimizer() if step.number > number else None
            parameters = updated_by(optimizer) if optimizer is not None else []
            if len(parameters) == len(step.versions):
                found += [
                    WriteRecord(low, version, step.number, step.number, step.site, f"{step.name}.step", blind=False)
                    for parameter, version in zip(parameters, step.versions, strict=True)
                    if low <= parameter.data_ptr() < high
                ]
        return sorted(found, key=lambda one: (one.stop, one.version))


# Finds writes that autograd cannot see to tensors that a graph has saved: its gradients are then silently wrong.
# ``x.data`` shares the memory of ``x`` and not its count of writes. So what ``.data`` returned is known for as long as
# it lives, and a write through it is noted with the memory it reached. When a backward begins, the nodes that were made
# before such a write are asked what they have saved; where none came after the graph's oldest node (weights that are
# clamped after each step, averages of weights) nothing is asked at all.

MOST_UNTRACKED_WRITES = 128
MOST_ALIASES = 512
MOST_COMPARED = 1 << 20  # elements, where data is set
_RESTORING = frozenset({"copy_", "data", "set_data"})
# Saved for their sizes alone, or not used in training: what they hold does not matter to the gradient.
_UNUSED = frozenset({"running_mean", "running_var"})
_SIZES_ALONE = ("MaxPool", "AvgPool", "AdaptiveAvgPool", "NllLoss", "Upsample")
_PLAIN_INDEX = (int, slice, type(None), type(Ellipsis))


Untracked = tuple[WriteRecord, Region]  # a write as any other, and the memory it reached


def suspects_of(
    silent: Any, nodes: Sequence[Any], numbers: Sequence[int]
) -> Iterator[tuple[int, Saved, tuple[WriteRecord, ...]]]:
    """Yield what the nodes of a backward that begins had saved before it was written to; `concern` comes first.

    ``silent`` are writes that autograd was not told of, such as `UntrackedWrites`. With the place of its node in the
    walk comes each saved tensor, and the writes to it.
    """
    for place, (node, number) in enumerate(zip(nodes, numbers, strict=True)):
        for saved in saved_by(node) if not hasattr(node, "variable") else ():
            looked_at = saved.versions is None and matters(node, saved.slot)
            if looked_at and (records := silent.reaching(node, number, saved.tensor)):
                yield place, saved, records


class UntrackedWrites:
    """What was written through ``.data`` in a run."""

    def __init__(self) -> None:
        self._aliases = Marks(MOST_ALIASES)
        self._writes: deque[Untracked] = deque(maxlen=MOST_UNTRACKED_WRITES)

    def got_data(self, alias: Any) -> None:
        """Note what ``.data`` returned."""
        self._aliases.put(alias, None)

    @property
    def live(self) -> bool:
        """Whether anything that ``.data`` returned is still there."""
        return bool(self._aliases)

    @property
    def any(self) -> bool:
        """Whether a write is remembered."""
        return bool(self._writes)

    def is_untracked(self, target: Any) -> bool:
        """Return whether ``target`` is what ``.data`` returned, or a view of it."""
        aliases = self._aliases
        if not aliases or not isinstance(target, torch.Tensor):
            return False
        base = target._base if target._is_view() and not target.requires_grad else None
        return holds(aliases, target) or (base is not None and holds(aliases, base))

    def add(self, record: WriteRecord, target: torch.Tensor, index: Any = None) -> None:
        """Note a write to ``target``, or to what a plain ``index`` picks of it."""
        items = index if isinstance(index, tuple) else (index,)
        if index is not None and all(isinstance(item, _PLAIN_INDEX) for item in items):
            target = target[index]
        if (region := region_of(target)) is not None and region.elements:
            self._writes.append((record, region))

    def last_at(self, address: int) -> int:
        """Return the number that autograd had come to at the last write to what begins there; -1 without any."""
        return next((write.start for write, _ in reversed(self._writes) if write.address == address), -1)

    def forget(self) -> None:
        """Forget everything."""
        self._aliases.clear()
        self._writes.clear()

    def concern(self, numbers: Sequence[int]) -> bool:
        """Return whether anything was written since the oldest of the nodes with these numbers was made."""
        return bool(self._writes) and len(numbers) > 0 and self._writes[-1][0].start > min(numbers)

    def reaching(self, _: Any, number: int, saved: torch.Tensor) -> tuple[WriteRecord, ...]:
        """Return the writes that reached what the node with that number had saved.

        None where what was there at first may have been put back.
        """
        writes = [one for one in self._writes if number < one[0].start]
        region = region_of(saved) if writes else None
        records = tuple(one for one, reached in writes if region is not None and overlap(region, reached) == "yes")
        # Weights are swapped for a while so.
        return () if len(records) > 1 and records[-1].call in _RESTORING else records


def matters(node: Any, slot: str) -> bool:
    """Return whether the gradient that a node passes on depends on what it saved there."""
    if slot == "weight" and (inputs := inputs_of(node)):
        return inputs[0] is not None
    return slot not in _UNUSED and not (slot == "self" and node.name().startswith(_SIZES_ALONE))


def differs(old: torch.Tensor, new: Any) -> bool:
    """Return whether ``old.data = new`` puts other values there; False also where finding out would cost too much.

    A network of binary weights sets its weights in every forward, and mostly to what they are.
    """
    if is_lazy(old) or not isinstance(new, torch.Tensor) or old.shape != new.shape or old.dtype != new.dtype:
        return False
    if old.device.type != "cpu" or new.device.type != "cpu" or old.numel() > MOST_COMPARED:
        return False
    return not torch.equal(old, new)
