"""Whether an explanation names what truly clashes: against a table judged by hand, and by mending what it names."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import Any

import torch

from tensormagic.reports import Clashing
from tests.sweeps.error_cases import ErrorCase, Told, tell

_NUMBER = re.compile(r"\d+")


def places(told: Told) -> dict[int, int]:
    """Return which of the given tensors each operand of the explanation is, by their numbers."""
    assert told.report is not None
    left = list(enumerate(told.given))
    found = {}
    for index, operand in enumerate(told.report.operands):
        facts = operand.shape, operand.dtype, operand.device
        number = next((number for number, given in left if operand.is_tensor and given == facts), None)
        if number is not None:
            found[index] = number
            left = [each for each in left if each[0] != number]
    return found


def names_all(told: Told) -> bool:
    """Whether every tensor that was given stands among the operands, with its shape, dtype and device."""
    return told.report is not None and len(places(told)) == len(told.given)


def judged(told: Told, expected: str) -> bool:
    """Whether kind and clashing tensors, with their dimensions, are those of the table."""
    if told.report is None or told.report.mismatch is None:
        return False
    mismatch, numbers = told.report.mismatch, places(told)
    kind, *wanted = expected.split()
    found = {_point(part, numbers, told) for part in mismatch.parts}
    plain = {point for point in found if point[0] != "="}
    return mismatch.kind == kind and plain == {point for point in wanted if point[0] != "="} and found >= set(wanted)


def _point(part: Clashing, numbers: dict[int, int], told: Told) -> str:
    operand = told.report.operands[part.operand]  # type: ignore[union-attr]
    if part.operand not in numbers:
        return f"={operand.role}"
    number = numbers[part.operand]
    return f"{number}" if part.dimension is None or len(operand.shape) == 1 else f"{number}.{part.dimension}"


# -- mending -------------------------------------------------------------------------------------------------------


def mended(told: Told) -> bool | None:
    """Whether the call goes through, or fails otherwise, once a part that is named is as it is expected to be.

    Each operand is mended by itself, then all together. None where no part says what is expected of a given tensor.
    """
    assert told.report is not None
    assert told.report.mismatch is not None
    numbers, by_tensor = places(told), defaultdict(list)
    for part in told.report.mismatch.parts:
        if part.operand in numbers and part.expected:
            by_tensor[numbers[part.operand]].append(part)
    if not by_tensor:
        return None
    trials = [{number: parts} for number, parts in by_tensor.items()] + [dict(by_tensor)]
    return any(_helps(told, trial) for trial in trials)


def _helps(told: Told, parts: dict[int, list[Clashing]]) -> bool:
    case, given = told.case, told.case.tensors
    fresh = {id(tensor): _mend(tensor, parts.get(number, [])) for number, tensor in enumerate(given)}
    again = tell(case.mended(lambda tensor: fresh[id(tensor)]))
    return again is None or _NUMBER.sub("N", again.plain[1]) != _NUMBER.sub("N", told.plain[1])


def _mend(tensor: torch.Tensor, parts: list[Clashing]) -> Any:
    """Return a tensor that is as the parts say it should be; a copy where they say nothing."""
    result = tensor.detach().clone()
    for part in parts:
        result = _as_expected(result, part)
    return result


def _as_expected(tensor: torch.Tensor, part: Clashing) -> torch.Tensor:
    text, shape = part.expected, list(tensor.shape)
    if isinstance(getattr(torch, text, None), torch.dtype):
        return torch.zeros_like(tensor, dtype=getattr(torch, text))
    if re.fullmatch(r"(cpu|meta|cuda)(:\d+)?", text):
        return torch.zeros_like(tensor, device=text)
    numbers = [int(found) for found in _NUMBER.findall(text)]
    if not numbers:
        return tensor
    if part.dimension is not None:
        shape[part.dimension] = numbers[0] + text.startswith("more")
    elif text.endswith("-D"):
        shape = _with_dimensions(shape, numbers[0])
    else:
        shape = numbers
    return torch.zeros(shape, dtype=tensor.dtype, device=tensor.device)


def _with_dimensions(shape: list[int], count: int) -> list[int]:
    return shape[len(shape) - count :] if count <= len(shape) else [1] * (count - len(shape)) + shape


# -- counting ------------------------------------------------------------------------------------------------------


class Score:
    """How many of each kind passed, and which did not."""

    def __init__(self) -> None:
        self.passed: Counter[str] = Counter()
        self.total: Counter[str] = Counter()
        self.missed: list[str] = []

    def add(self, kind: str, name: str, passed: bool) -> None:
        """Count one."""
        self.total[kind] += 1
        self.passed[kind] += passed
        if not passed:
            self.missed.append(name)

    @property
    def share(self) -> float:
        """How large a part passed, of all kinds together."""
        return sum(self.passed.values()) / max(sum(self.total.values()), 1)

    def __str__(self) -> str:
        kinds = ", ".join(f"{kind} {self.passed[kind]} of {self.total[kind]}" for kind in self.total)
        return f"{sum(self.passed.values())} of {sum(self.total.values())} ({kinds}); missed: {self.missed}"


def told_of(cases: list[ErrorCase]) -> list[Told]:
    """Make every call, with and without an explanation; those that do not raise here are left out."""
    return [told for case in cases if (told := tell(case)) is not None]
