"""A run gone through line by line: bytes at the lines of the functions that were asked for."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn

import tensormagic as tm
from tensormagic.errors import UnknownNameError
from tests.support.gaps import own_gaps

KIB = 2**10


def scaled(x):
    """Is called by what is gone through."""
    return x * 2


def work(x, kept):
    """Is gone through."""
    for _ in range(3):
        y = scaled(x)
        kept.append(y + 1)
    del y
    z = torch.zeros(512)
    return z.sum()


class Block(nn.Module):
    """Has a forward of its own."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(256, 256, bias=False)

    def forward(self, x):
        hidden = self.linear(x)
        return hidden.relu()


def of(report, name):
    """Return what is beside each line of a function that did something: allocated, backward, freed, kept."""
    (function,) = (function for function in report.functions if function.name == name)
    lines = [report.lines[at] for at in function.lines]
    found = {line.location.text: (line.allocated, line.backward, line.freed, line.kept) for line in lines}
    # From Python 3.12 on all lines that ran are there.
    return {text: numbers for text, numbers in found.items() if any(numbers) or sys.version_info < (3, 12)}


def test_the_lines_of_a_function():
    """What it calls counts at its own line; what it frees at the line where that happens."""
    x, kept = torch.ones(256), []
    with tm.track_memory(functions=[work]) as run:
        work(x, kept)
    report = run.report
    assert of(report, "work") == {
        "y = scaled(x)": (3 * KIB, 0, 2 * KIB, 0),
        "kept.append(y + 1)": (3 * KIB, 0, 0, 3 * KIB),
        "del y": (0, 0, KIB, 0),
        "z = torch.zeros(512)": (2 * KIB, 0, 0, 0),
        "return z.sum()": (4, 0, 0, 0),
    }
    (function,) = report.functions
    assert function.source[0] == "def work(x, kept):"
    line = next(each for each in report.lines if each.location.text == "z = torch.zeros(512)")
    assert (line.calls, line.largest, line.peak) == (1, 2 * KIB, report.timelines[0].before[0] + 5 * KIB)


def test_a_line_without_functions_counts_where_it_allocates():
    """As ever."""
    with tm.track_memory() as run:
        work(torch.ones(256), [])
    texts = {line.location.text: line.allocated for line in run.report.lines}
    assert texts["return x * 2"] == 3 * KIB
    assert run.report.functions == ()


def test_the_backward_counts_at_the_line_that_made_the_node():
    """Inside of a forward that was asked for, and of torch's own."""
    net, x = Block(), torch.ones(4, 256)
    with tm.track_memory(functions=["net.forward", "nn.Linear.forward"], namespace={"net": net, "nn": nn}) as run:
        net(x).sum().backward()
    mine, theirs = of(run.report, "net.forward"), of(run.report, "nn.Linear.forward")
    assert list(theirs.values()) == [(260 * KIB, 256 * KIB, 0, 256 * KIB)]
    assert mine["return hidden.relu()"][:2] == (8 * KIB, 4 * KIB)
    assert "hidden = self.linear(x)" not in mine


def test_the_bytes_of_all_lines_are_those_without_functions():
    """Going into a function moves bytes from line to line, and loses none."""
    totals = []
    for functions in ([], [work], [work, scaled, "torch.Tensor.sum"][:2]):
        with tm.track_memory(functions=functions) as run:
            work(torch.ones(256), [])
        lines = run.report.lines
        totals.append((sum(line.allocated for line in lines), sum(line.kept for line in lines)))
    assert totals[0] == totals[1] == totals[2]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python tells of single functions' lines from 3.12 on")
def test_how_often_lines_ran():
    """Lines that did nothing to memory are told as well."""
    with tm.track_memory(functions=[work]) as run:
        work(torch.ones(256), [])
    (function,) = run.report.functions
    counts = {run.report.lines[at].location.text: run.report.lines[at].executions for at in function.lines}
    assert (counts["y = scaled(x)"], counts["for _ in range(3):"], counts["del y"]) == (3, 4, 1)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python tells of single functions' lines from 3.12 on")
def test_where_executions_are_not_counted_it_says_so():
    """A gap, where a function was asked for."""
    with tm.track_memory(functions=[work]) as run:
        work(torch.ones(256), [])
    assert [gap.reason for gap in own_gaps(run.report)] == ["counting how often a line ran needs Python 3.12"]


def test_what_is_no_function_is_refused_before_anything_runs():
    """By what a user wrote."""
    with pytest.raises(UnknownNameError, match="cannot follow nothing"):
        tm.track_memory(functions=["nothing"])
