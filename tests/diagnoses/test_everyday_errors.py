"""Everyday errors, run for real: what clashes is named as a person would name it, and what is said to work works."""

from __future__ import annotations

import linecache
import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.diagnoses.everyday_errors import EVERYDAY

SIZES = re.compile(r"(\d+(?:x\d+)*)(?::(\w+))?(?:@(\w+))?")
# Said in words or for another line of the program: they cannot be put in the place of what failed.
ELSEWHERE = re.compile(r"#|…|\.\.\.|ignore_index|\.max\(\)|\.eval\(\)|to_empty|empty_like|\.to\(\w+\.device\)")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # sizes that broadcast, defaults that changed
IDS = [f"{line} with {names}" for line, names, _ in EVERYDAY]


def made(names: str) -> dict[str, Any]:
    """Return what the names of a case stand for."""
    space: dict[str, Any] = {"torch": torch, "F": F, "nn": nn}
    for each in names.split(" "):
        name, text = each.split("=", 1)
        found = SIZES.fullmatch(text)
        space[name] = _tensor(*found.groups()) if found else eval(text, space)
    return space


def _tensor(sizes: str, dtype: str | None, device: str | None) -> torch.Tensor:
    shape = [int(size) for size in sizes.split("x")]
    return torch.ones(shape, dtype=getattr(torch, dtype or "float32"), device=device or "cpu")


def explained(line: str, space: dict[str, Any]) -> Any:
    """Run a line and return its explanation; None where nothing was refused."""
    filename = f"<cell {len(linecache.cache)}>"
    linecache.cache[filename] = (len(line), None, [line + "\n"], filename)
    told = tm.explain(namespace=space)
    try:
        with told:
            exec(compile(line, filename, "exec"), space)
    except (RuntimeError, ValueError, IndexError, TypeError, AssertionError, AttributeError):
        return told.report
    return None


def points(report: Any) -> set[str]:
    """Return the operands that clash, by name, with the dimension where one is meant and there are several."""
    found = set()
    for part in report.mismatch.parts:
        operand = report.operands[part.operand]
        name = operand.name if operand.name and "`" not in operand.name else f"={operand.role}"
        whole = part.dimension is None or len(operand.shape) == 1
        found.add(name if whole else f"{name}.{part.dimension}")
    return found


@pytest.mark.parametrize(("line", "names", "expected"), EVERYDAY, ids=IDS)
def test_what_clashes_is_named(line, names, expected):
    """The kind, and the operands with their dimensions, are those of the table."""
    report = explained(line, made(names))
    assert report is not None
    assert report.mismatch is not None, report.error
    kind, *wanted = expected.split()
    assert (report.mismatch.kind, points(report)) == (kind, set(wanted)), report.mismatch


@pytest.mark.parametrize(("line", "names", "expected"), EVERYDAY, ids=IDS)
def test_what_is_said_to_work_works(line, names, expected):
    """Put in the place of the operand, the layer or the call, it runs."""
    report = explained(line, made(names))
    operands = [report.operands[part.operand].name for part in report.mismatch.parts]
    for way in report.mismatch.works:
        if not ELSEWHERE.search(way):
            space = made(names)
            assert explained(_applied(way, line, operands, space), space) is None, way


def _applied(way: str, line: str, operands: list[str], space: dict[str, Any]) -> str:
    """Return the line as it is with one way applied; a layer is put in the place of that which failed."""
    layer = re.match(r"(\w+)\(", line)
    if way.startswith("nn.") and layer is not None and isinstance(space.get(layer[1]), nn.Module):
        space[layer[1]] = eval(way, space)
        return line
    if re.match(r"\w+ = ", way):
        return f"{way}; {line}"
    names = [name for name in operands if re.search(rf"\b{re.escape(name)}\b", way)]
    if " @ " in way or way.startswith(("torch.", "F.", "~")) or len(set(names)) != 1:
        return way
    return re.sub(rf"(?<![\w.]){names[0]}(?![\w(])", f"({way})", line)
