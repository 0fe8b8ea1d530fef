"""The lessons on tensors and autograd show what their prose says, and their folded answers are right.

Answers stand in the text, folded. When the examples run in the tests, each answer's code runs at its place
(`tests.notebooks.conftest.with_answers`): a wrong one fails there, by its own assertions.
"""

from __future__ import annotations

import re

import nbformat
import pytest

from tests.notebooks.conftest import with_answers
from tests.support.kernel import ROOT

LESSONS = sorted((ROOT / "examples").glob("0[2-8]_*.ipynb"))
LINK = re.compile(r"\]\(([\w.]+\.ipynb)\)")
# Lesson → cell → what its output says, whatever its line breaks.
SHOWN = {
    "02_storage": {
        "column": ("stride (4,); contiguous would be (1,)", "storage offset 1", "offset(1) = 1 + 4·1 = 5"),
        "part": ("stride (4, 2)", "storage offset 4"),
        "together": ("one storage of 48 B", "nothing in common: column and part"),
        "bytes": ("[0, 0, 128, 63,", "ones and raw have 8 B in common: 2 elements of ones, 8 elements of raw"),
        "copy": ("owns its storage", "nothing found among"),
    },
    "03_views_and_copies": {
        "basic": ("VIEW shares 4 of the 12 elements of a",),
        "advanced": ("COPY (16 B copied) shares no memory with a: writing to it leaves a alone",),
        "table": ("view, 15:", "separate, 8: a.repeat(2,1) a.flip(0)", "same object, 1: a.contiguous()"),
        "reshape": ("a.t() view of a", ".reshape(-1) copy, 48 B"),
        "view": ("TM101", "the stride of dimension 0 is 1, not 3 × 4 = 12"),
        "repeat": ("COPY (24 B copied) shares no memory with bias: writing to it leaves bias alone",),
        "expand": ("VIEW shares both elements of bias", "TM202", "6 elements are 2 stored elements"),
        "expand-write-cell": ("changes 6 elements of rows, not 2", "bias: 2 of 2 elements"),
        "detach": ("like w.data", "like w.detach()", "Autograd does not notice writes through by_data"),
    },
    "04_contiguity": {
        "turned": ("jumps +4, +4, −7", "j has stride 4, a contiguous tensor has 1 there; .contiguous() copies 48 B"),
        "half": ("False (12, 4, 2) (2,)", "every .view(shape) of 12 elements works"),
        "reshape": ("VIEW shares all 12 elements of half",),
        "contiguous": ("COPY (48 B copied) shares no memory with half: writing to it leaves half alone",),
        "format": ("stride (60, 1, 15, 3)", "False True", "channels_last, not contiguous"),
        "mixed": ("warning TM103 conv2d brings batch, 1.5 MiB, into the channels_last order of net.weight",),
        "mended-check": ("['TM103'] []",),
    },
    "05_leaves": {
        "why": ("y.grad is None because y is not a leaf: mul made it",),
        "no-grad": ("made requires_grad True", "computed requires_grad False", "is_leaf True inference True"),
        "cut": ("0.2500, 0.2500", "warning TM303 x gets no gradient", "detach, line 4"),
        "cut-why": ("x.grad is None because .detach() (cell", "line 4) cut its path to the loss"),
        "no-grad-cut": ("note TM303 x gets no gradient",),
        "exercise": ("no problems found", "a scalar ▃ 18", "b scalar ▁ 12"),
    },
    "06_backward": {
        "hand": ("loss 48", "w1 scalar ▆ 24", "w2 scalar ▆ 22", "w3 scalar ▄ 6"),
        "vector": ("error TM305 y has 3 elements",),
        "vjp": ("v @ Jacobian tensor([ 2., 40., 600.])", "x.grad tensor([ 2., 40., 600.])"),
        "accumulate": ("after pass 3: [6.0, 6.0]", "3 backward passes"),
        "forgotten": ("warning TM309", "in 4 of its 5 steps"),
        "kept": ("keeps 4 KiB in 1 storage", "backward can run"),
        "freed": ("error TM304", "line 3: loss.backward() freed by the earlier backward"),
        "double": ("s 1.0, velocity 3.0, acceleration 6.0, t.grad None", "2 backward passes"),
    },
    "07_in_place": {
        "version": ("version 2",),
        "memory": ("relu reuses the memory: False", "relu_ reuses the memory: True"),
        "break": ("error TM301 y was changed in place by y += 1 after sigmoid had saved it", "version 0 then"),
        "which": ("x.sin() works", "x.exp() raises", "x.relu() raises"),
        "spoilt": ("backward would fail: 1 saved tensor was changed in place afterwards",),
        "leaf": ("error TM308 w is a leaf",),
        "silent": ("80., 160., 240.", "error TM302 w was changed by w.data.mul_(10) after pow had saved it"),
        "versions": ("counter 1 at 0", "counter 2 at 0"),
        "detach": ("error TM301 w was changed in place by w.detach().mul_(10)",),
        "exercise": ("error TM302 h was changed", "1.6487, 2.7183, 3.0000"),
    },
    "08_aliasing_and_numpy": {
        "ways": ("torch.Tensor shares torch.float32", "torch.Tensor copies torch.float32"),
        "share": ("48 B on cpu, 4 objects", "no version counter"),
        "writes": ("TM201 Writing to x changes half and best", "TM204"),
        "history": ("TM201 3 items of history share one memory",),
        "clash-cell": ("TM203", "6 elements come out wrong, the first table[1, 1] as 5 instead of 1"),
        "swap": ("[[2.0, 2.0], [2.0, 2.0]]", "TM203"),
        "tensors": ("torch.int64 torch.float32 torch.bool", "torch.Size([]) torch.Size([3])", "tensor(5.)"),
        "uninitialised": ("nothing was written to this memory: its values are left over from earlier use",),
        "read": ("error TM104 add reads total, of shape (3,), before anything was written to it",),
        "double": ("torch.float64", "warning TM805 features * scale computes in float64"),
        "exercise-cell": ("signal: 1 of 6 elements", "signal: 2 of 6 elements"),
    },
}  # fmt: skip

pytestmark = pytest.mark.notebook


def told(cell):
    """Return all that a cell shows as text, on one line."""
    texts = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.outputs]
    return " ".join(" ".join(texts).split())


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_the_panels_show_what_the_prose_says(lesson, run_example):
    """Numbers, verdicts, findings and lines: nothing in a lesson is only claimed."""
    cells = {cell.id: cell for cell in run_example(lesson).notebook.cells}
    missing = {
        (name, words): told(cells[name])
        for name, expected in SHOWN[lesson.stem].items()
        for words in expected
        if words not in told(cells[name])
    }
    assert missing == {}


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_has_an_exercise_whose_answer_runs(lesson):
    """The answer is folded away, and its code is part of every run of the tests."""
    content = nbformat.read(lesson, as_version=4)
    assert any(cell.id.endswith("-answer-1") for cell in with_answers(content).cells)


def test_lessons_lead_to_one_another():
    """Every linked notebook stands beside them, and each lesson names the next."""
    linked = {path.stem: LINK.findall(path.read_text(encoding="utf-8")) for path in LESSONS}
    names = [path.name for path in LESSONS]
    assert [before for before, after in zip(LESSONS, names[1:], strict=False) if after not in linked[before.stem]] == []
    there = {path.name for path in (ROOT / "examples").iterdir()}
    assert {name for found in linked.values() for name in found} <= there
