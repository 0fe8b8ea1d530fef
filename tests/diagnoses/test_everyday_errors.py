"""Everyday errors, run for real: what clashes is named as a user would name it, and what is said to work works."""

from __future__ import annotations

import linecache
import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tensormagic.api.diagnosing import explain_error
from tests.diagnoses.everyday_errors import EVERYDAY as ALL
from tests.sweeps.ways import applied

SIZES = re.compile(r"(\d+(?:x\d+)*)(?::(\w+))?(?:@(\w+))?")
# For another device: what is empty there, or cannot be copied from there.
ELSEWHERE = re.compile(r"to_empty|empty_like")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # sizes that broadcast, defaults that changed
# torch 2.10 takes tensors of any two lengths.
EVERYDAY = [case for case in ALL if "TensorDataset" not in case[0] or torch.__version__ >= "2.11"]
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
    linecache.cache[filename] = (len(line), None, f"{line}\n".splitlines(keepends=True), filename)
    told = tm.explain(namespace=space)
    try:
        with told:
            exec(compile(line, filename, "exec"), space)
    except (RuntimeError, ValueError, LookupError, TypeError, AssertionError, AttributeError):
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
            assert explained(applied(way, line, operands, space), space) is None, way


UNSEEN = [
    ("x + torch.ones(4)", "x=2x3", "x (2 × 3) has 3 and the result of `torch.ones(4)` has 4"),
    ("torch.ones(4) * x", "x=2x3", "the result of `torch.ones(4)` has 4 and x (2 × 3) has 3"),
    ("torch.ones(5, 4) - torch.ones(4, 5)", "x=1", "in dimension 1 of the result"),
    ("torch.ones(3, 4) @ x", "x=3x4", "has 4 columns, x (3 × 4) has 3 rows"),
    ("torch.cat([x, torch.ones(4, 4)])", "x=2x3", "the result of `torch.ones(4, 4)` has 4 where the first has 3"),
    ("torch.cat([torch.ones(4, 4), x])", "x=2x3", "x (2 × 3) has 3 where the first has 4"),
    ("torch.cat([torch.ones(4, 4), torch.ones(2, 3)])", "x=2x3", "tensor 1 of the list has 3 where the first has 4"),
    ("torch.stack([x + 1, torch.ones(3)])", "x=2", "the first is 2, and that at 1 is 3"),
    (
        "torch.tensor([torch.ones(2), torch.ones(2)])",
        "x=2",
        "holds numbers, and this one holds tensors of several elements: torch.stack",
    ),
    (
        "torch.ones(2, 3).t().view(-1)",
        "x=1",
        "The elements of the result of `torch.ones(2, 3).t()` do not lie in memory in the order",
    ),
]


@pytest.mark.parametrize(("line", "names", "says"), UNSEEN, ids=[line for line, *_ in UNSEEN])
def test_an_error_alone_is_explained_from_the_sizes_in_its_message(line, names, says):
    """Nobody watched: an operand that was computed in the failing line is known by its code alone."""
    space = made(names)
    filename = f"<cell {len(linecache.cache)}>"
    linecache.cache[filename] = (len(line), None, [line + "\n"], filename)
    with pytest.raises((RuntimeError, ValueError)) as refused:
        exec(compile(line, filename, "exec"), space)
    report = explain_error(refused.value, namespace=space)
    assert report.mismatch is not None
    assert says in report.mismatch.rule
    assert [found.code for found in report.findings] == {"shape": ["TM804"], "view": ["TM101"]}.get(
        report.mismatch.kind, []
    )


@pytest.mark.parametrize(
    ("run", "remedy"),
    [
        (lambda: torch.ones(3, 4).add_(torch.ones(2, 3, 4)), "torch.ones(3, 4) + torch.ones(2, 3, 4)"),
        (lambda: torch.ones(3, dtype=torch.long).add_(torch.ones(3)), "torch.ones(3, dtype=torch.long).float()"),
        (lambda: torch.ones(2, 3) + torch.ones(4), "Look at where `torch.ones(2, 3)` and `torch.ones(4)` are made."),
        (lambda: torch.cat([torch.ones(2, 3), torch.ones(2, 4, 1)]), "`unsqueeze` adds a dimension"),
    ],
)
def test_the_result_of_a_call_is_never_assigned_to(run, remedy):
    """It has no name: the remedy is an expression, or says what to change, in words for shapes or for dimensions."""
    with pytest.raises((RuntimeError, TypeError)), tm.explain() as explained:
        run()
    (found,) = explained.report.findings
    assert remedy in found.remedy
    assert " = " not in found.remedy


@pytest.mark.parametrize(
    ("line", "remedies"),
    [
        ("x[1:].copy_(x[:-1])", ["x[:-1].clone()"]),
        ("torch.add(x[1:], 1, out=x[:-1])", ["x[1:].clone()"]),
        ("x[1:] = x[:-1]", []),
        ("wide.add_(1)", ["wide.clone()"]),
    ],
)
def test_what_is_read_is_copied_not_what_is_written_to(line, remedies):
    """A result that is written to a copy is lost."""
    space = {"x": torch.zeros(6), "wide": torch.zeros(3, 1).expand(3, 4), "torch": torch}
    filename = f"<cell {len(linecache.cache)}>"
    linecache.cache[filename] = (len(line), None, [line + "\n"], filename)
    with pytest.raises(RuntimeError), tm.explain() as explained:
        exec(compile(line, filename, "exec"), space)
    text = str(explained.report)
    assert [words for words in ("x[:-1].clone()", "x[1:].clone()", "x.clone()", "wide.clone()", "v.clone()")
            if words in text] == remedies  # fmt: skip
