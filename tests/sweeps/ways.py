"""Puts what is said to work in the place of what failed, as a user would who reads it."""

from __future__ import annotations

import re
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tensormagic.reports import FailureReport
from tests.sweeps.error_cases import Told

_WHOLE = ("torch.", "F.", "nn.utils.", "~")
_RESHAPES = {"view", "reshape", "view_as", "reshape_as", "view_copy"}
_RESHAPED = re.compile(r"\.(?:view|reshape)\([^()]*\)$")


def applied(way: str, line: str, operands: list[str], space: dict[str, Any]) -> str:
    """Return the line as it is with one way applied; a layer is put in the place of that which failed."""
    layer = re.match(r"(\w+)\(", line)
    if way.startswith("nn.") and layer is not None and isinstance(space.get(layer[1]), nn.Module):
        space[layer[1]] = eval(way, space)
        return line
    if re.match(r"\w+ = ", way):
        return f"{way}; {line}"
    names = {name for name in operands if re.search(rf"\b{re.escape(name)}\b", way)}
    if not names and way.startswith(("torch.zeros(", "torch.as_tensor(")):
        return re.sub(rf"(?<![\w.]){operands[0]}(?![\w(=])", way, line)
    if " @ " in way or way.startswith(_WHOLE) or way.endswith((".tolist()", ".item()")) or len(names) != 1:
        return way
    if _RESHAPED.search(way) and re.search(r"\.(?:view|reshape)\(|^reshape\(", line):
        return way
    return re.sub(rf"(?<![\w.]){names.pop()}(?![\w(=])", f"({way})", line)


def fails(told: Told) -> list[str]:
    """Return what is said to work in place of one of torch's error inputs, and does not."""
    report, case = told.report, told.case
    if report is None or report.mismatch is None:
        return []
    names = [f"given_{at}" for at in range(len(case.args))] + list(case.kwargs)
    called = "reshape" if report.function.rpartition(".")[2] in _RESHAPES else "function"
    line = f"{called}({', '.join([*names[: len(case.args)], *(f'{name}={name}' for name in case.kwargs)])})"
    values = dict(zip(names, [*case.args, *case.kwargs.values()], strict=True))
    return [way for way in report.mismatch.works if not _goes(way, line, report, values, case.function)]


def _goes(way: str, line: str, report: FailureReport, values: dict[str, Any], function: Any) -> bool:
    space = {"torch": torch, "F": F, "nn": nn, "function": function, **values}
    assert report.mismatch is not None
    operands = [report.operands[part.operand].name for part in report.mismatch.parts]
    try:
        exec(applied(way, line, operands, space), space)
    except Exception:
        return False
    return True
