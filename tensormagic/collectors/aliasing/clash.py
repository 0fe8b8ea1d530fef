"""Memory that one write uses twice: a target that overlaps itself, or an operand that lies in what is written to.

torch refuses such a write where it can tell cheaply, and lets it through where it cannot: then the result depends on
the order in which it visits elements. Whether that went wrong is not guessed: the op is done once more on separate
memory, and the results are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from tensormagic.collectors.aliasing.storage_aliases import place_of
from tensormagic.collectors.geometry.layout import count_distinct
from tensormagic.collectors.geometry.overlap import overlap, touched
from tensormagic.collectors.geometry.storage import Written, is_same_place
from tensormagic.collectors.geometry.strides import Pattern
from tensormagic.collectors.quiet import quiet
from tensormagic.reports import Clash

REPLAY_LIMIT = 2**20  # elements of what is written to; a larger write is not done again
_REFUSED = ("more than one element of the written-to tensor", "some elements of the input tensor and the written-to")


@dataclass(slots=True)
class Suspicion:
    """A write that may clash, before it was done.

    Attributes:
        clash: What is known so far.
        target: What will be written to.
        expected: What the op gives on separate memory; None where that was not tried.
    """

    clash: Clash
    target: torch.Tensor
    expected: torch.Tensor | None = None


Call = tuple[Any, tuple[Any, ...], dict[str, Any]]


def suspect(written: Written, call: Call, targets: list[torch.Tensor]) -> Suspicion | None:
    """Return what may go wrong with a call that is about to be made; None, quickly, for nearly every call."""
    if not targets:  # of batch norm without running statistics, say
        return None
    target = targets[0]
    if target.is_sparse or target.layout != torch.strided or len(targets) > 2 or not target.numel():
        return None
    operand = next(_clashing(written, call, target), None)
    overlapping = not target.is_contiguous() and not written.same_value and repeats(target)
    if operand is None and not overlapping:
        return None
    with quiet():
        clash = _about_itself(target) if overlapping else _about_operand(target, operand)
        if clash is None:
            return None
        return Suspicion(clash, target, None if written.random else _done_apart(written, call, target))


def repeats(x: torch.Tensor) -> bool:
    """Return whether two indices of a tensor are the same element."""
    if not torch._debug_has_internal_overlap(x):
        return False
    pattern = Pattern.of(tuple(x.shape), x.stride(), 0)
    distinct = count_distinct(pattern) if pattern is not None else None
    return distinct is not None and distinct < x.numel()


def _clashing(written: Written, call: Call, target: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield operands that lie in the target's storage and are not read element by element where they are written."""
    storage = target.untyped_storage()._cdata
    for operand in _operands(written, call):
        if operand.layout != torch.strided or operand.untyped_storage()._cdata != storage:
            continue
        if written.pointwise and is_same_place(operand, target):
            continue
        yield operand


def _operands(written: Written, call: Call) -> Iterator[torch.Tensor]:
    _, args, kwargs = call
    positions = {position for position, _ in written.slots}
    names = {name for _, name in written.slots}
    read = [value for position, value in enumerate(args) if position not in positions]
    for value in (*read, *(value for name, value in kwargs.items() if name not in names)):
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from (item for item in value if isinstance(item, torch.Tensor))


def _about_itself(target: torch.Tensor) -> Clash:
    pattern = Pattern.of(tuple(target.shape), target.stride(), 0)
    return Clash("overlaps itself", "", count_distinct(pattern) if pattern is not None else None, target.numel())


def _about_operand(target: torch.Tensor, operand: torch.Tensor | None) -> Clash | None:
    if operand is None or overlap(place_of(operand), place_of(target)) != "yes":
        return None
    return Clash("reads what it writes", "", touched(place_of(target), place_of(operand)).elements, target.numel())


def _done_apart(written: Written, call: Call, target: torch.Tensor) -> torch.Tensor | None:
    """Return what the op gives when every tensor in the target's storage is a copy of its own."""
    func, args, kwargs = call
    if target.device.type != "cpu" or target.numel() > REPLAY_LIMIT:
        return None
    result = target.detach().clone(memory_format=torch.contiguous_format)
    apart = _Apart(written, target, result)
    try:
        func(*apart.positional(args), **apart.named(kwargs))
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
        return None
    return result


@dataclass(frozen=True, slots=True)
class _Apart:
    """Replaces the target by ``result`` where a call writes to it, and by a copy of its own where it reads it."""

    written: Written
    target: torch.Tensor
    result: torch.Tensor

    def positional(self, args: tuple[Any, ...]) -> list[Any]:
        places = {position for position, _ in self.written.slots}
        return [self._of(value, written=place in places) for place, value in enumerate(args)]

    def named(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        names = {name for _, name in self.written.slots}
        return {name: self._of(value, written=name in names) for name, value in kwargs.items()}

    def _of(self, value: Any, *, written: bool) -> Any:
        if written and value is self.target:
            return self.result
        if type(value) in {list, tuple}:
            return type(value)(self._of(item, written=written) for item in value)
        return value.detach().clone() if self._must_be_copied(value, written=written) else value

    def _must_be_copied(self, value: Any, *, written: bool) -> bool:
        if not isinstance(value, torch.Tensor):
            return False
        return written or value.untyped_storage()._cdata == self.target.untyped_storage()._cdata


def settle(suspicion: Suspicion, *, pointwise: bool) -> Clash | None:
    """Return what came of a suspicion after the write; None where the result is what it should be."""
    clash, target, expected = suspicion.clash, suspicion.target, suspicion.expected
    if expected is None:
        return clash if pointwise else None
    with quiet():
        differs = _differences(target, expected)
        wrong = int(differs.sum())
        if not wrong:
            return replace(clash, wrong=0) if pointwise and clash.kind == "reads what it writes" else None
        at = tuple(map(int, differs.nonzero()[0]))
        return replace(clash, wrong=wrong, index=at, got=_text(target[at]), expected=_text(expected[at]))


def _differences(got: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Return where two results differ by more than rounding: another memory layout may add up in another order."""
    if not (got.is_floating_point() or got.is_complex()):
        return got != expected
    scale = expected.abs().nan_to_num(posinf=0, neginf=0).max().item()
    return ~torch.isclose(got, expected, rtol=1e-3, atol=1e-6 * scale, equal_nan=True)


def _text(element: torch.Tensor) -> str:
    value = element.item()
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def refusal(error: BaseException) -> str:
    """Return what an error of torch's says a write would have done: a kind of clash, or ``""``."""
    text = str(error) if isinstance(error, RuntimeError) else ""
    return next((kind for kind, sentence in zip(("overlaps itself", "reads what it writes"), _REFUSED, strict=True)
                 if sentence in text), "")  # fmt: skip
