"""Remembers which lines wrote to which memory in place: a backward that finds a saved tensor changed can name them.

Autograd counts writes and compares the count when backward comes to a saved tensor; who wrote is not kept. Here each
write leaves five numbers: the address written to, the version afterwards, the sequence numbers of autograd around it,
and its line. What is saved keeps its memory alive, so that an address within it, written to after it was saved, is
its own. An optimizer's step is one event, of which the versions of its parameters are kept.

A write costs about half a microsecond, a call that writes nothing no more than looking it up.
"""

from __future__ import annotations

import sys
import weakref
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any, NamedTuple

import torch

from tensormagic.collectors.quiet import answers_itself
from tensormagic.collectors.where.source import Sites

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

_sequence_number: Callable[[], int] = torch.autograd._get_sequence_nr  # type: ignore[attr-defined]


def _writing() -> Iterator[tuple[Any, str]]:
    """Yield every function of torch's that writes to its first argument, and its name."""
    owners = (torch.Tensor, torch, torch._C._nn, torch._C._VariableFunctions)
    for owner in owners:
        for name in dir(owner):
            if name.endswith("_") and not name.endswith("__") and name not in _NO_ELEMENTS:
                function = getattr(owner, name)
                if callable(function) and not isinstance(function, type):
                    yield function, name
    yield from ((getattr(torch.Tensor, name), name) for name in _OPERATORS if hasattr(torch.Tensor, name))


_SETS_DATA: Any = torch.Tensor.data.__set__  # type: ignore[attr-defined]
IN_PLACE: dict[Any, str] = {**dict(_writing()), _SETS_DATA: "data"}


class WriteRecord(NamedTuple):
    """One write: where to, and between which autograd nodes.

    Attributes:
        address: First byte of what was written to.
        version: Of it, afterwards.
        start: Number that autograd would have given a node before the write.
        stop: The same after it: not ``start`` where the write is in the graph.
        site: The line; None where the node of the write tells it, and where none is known.
        call: What wrote.
        blind: Whether autograd could not see it.
    """

    address: int
    version: int
    start: int
    stop: int
    site: int | None
    call: str
    blind: bool


@dataclass(slots=True)
class Step:
    """One step of an optimizer.

    Attributes:
        optimizer: Weak.
        name: Of its class.
        versions: Of its parameters, in order, afterwards.
        number: Sequence number of autograd.
        site: The line.
    """

    optimizer: weakref.ref[Any]
    name: str
    versions: array[int]
    number: int
    site: int | None

    def versions_at(self, low: int, high: int) -> list[int]:
        """Return the versions that parameters between two addresses had afterwards."""
        optimizer = self.optimizer()
        parameters = _parameters(optimizer) if optimizer is not None else []
        if len(parameters) != len(self.versions):
            return []
        pairs = zip(parameters, self.versions, strict=True)
        return [version for parameter, version in pairs if low <= parameter.data_ptr() < high]


def _parameters(optimizer: Any) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


class WriteBook:
    """The writes of a run that are remembered.

    Args:
        sites: Interns the person's lines.
    """

    def __init__(self, sites: Sites) -> None:
        self._sites = sites
        self._records: deque[Any] = deque(maxlen=MOST_WRITES)  # what makes a `WriteRecord`: quicker
        self._steps: deque[Step] = deque(maxlen=MOST_STEPS)

    def note(self, call: str, target: Any, start: int, frame: FrameType, blind: bool = False) -> None:  # noqa: FBT001, FBT002
        """Note that ``target``, a tensor or a list of them, was written to; the rest as in `WriteRecord`."""
        if frame.f_code is _BATCH_NORM:
            return  # its counter of batches
        stop = _sequence_number()
        site = None if stop != start else self._sites.of_frame(frame)
        try:
            for tensor in target if type(target) in _SEVERAL else (target,):
                if answers_itself(tensor):
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
        versions = array("q", [parameter._version for parameter in _parameters(optimizer)])
        site, name = self._sites.of_frame(sys._getframe(2)), type(optimizer).__name__
        self._steps.append(Step(weakref.ref(optimizer), name, versions, _sequence_number(), site))

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
            if step.number > number:
                versions = step.versions_at(low, high)
                found += [
                    WriteRecord(low, version, step.number, step.number, step.site, f"{step.name}.step", blind=False)
                    for version in versions
                ]
        return sorted(found, key=lambda one: (one.stop, one.version))
