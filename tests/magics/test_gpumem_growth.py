"""%%gpumem: what grows in a cell, at which line of it, and functions gone through line by line."""

from __future__ import annotations

import sys

import pytest

STORES = """\
losses = []
wide = nn.Linear(2, 2**18)
for _ in range(8):
    loss = wide(torch.ones(2, 2)).square().mean()
    losses.append(loss)
"""
TRAINS = """\
memory = torch.zeros(0, 2**20)
wide = nn.Linear(1, 2**20, bias=False)
for _ in range(6):
    out = wide(torch.ones(4, 1))
    out.sum().backward()
    memory = torch.cat([memory, out.detach()])
"""
DEFINES = """\
def doubled(x):
    y = x * 2
    return y.clone()

z = doubled(torch.ones(2**10))
"""


def test_stored_graphs_are_told_at_the_line_that_stores(cell):
    """By cell and line, with the name; the line that allocated stands beside it."""
    shown = cell(f"%%gpumem --into r\n{STORES}").shown[0]
    report = cell("r").value
    (leak,) = report.leaks
    assert (leak.holder, leak.graph, leak.iterations) == ("losses", True, 8)
    (found,) = report.findings
    assert (found.code, found.severity, found.subject) == ("TM503", "warning", "losses")
    assert (found.location.line, found.location.text) == (6, "losses.append(loss)")
    assert found.location.cell is not None
    assert [line.location.line for line in found.related] == [5]
    for form in ("text/plain", "text/html"):
        assert "more after each of 8 iterations" in shown[form]
        assert "TM503" in shown[form]


def test_a_tensor_that_is_joined_again_and_again(cell):
    """16 MiB an iteration: a warning in a training loop."""
    cell(f"%%gpumem --into r\n{TRAINS}")
    report = cell("r").value
    (found,) = report.findings
    assert (found.code, found.severity, found.subject, found.location.line) == ("TM504", "warning", "memory", 7)
    assert found.message.startswith("16 MiB more after each of 5 iterations, 80 MiB in total: memory is replaced each")


FAILS = """\
def train(net):
    outputs = []
    for number in range(8):
        loss = net(torch.ones(2, 2)).square().mean()
        outputs.append(loss)
    raise ValueError("no more memory")

train(nn.Linear(2, 2**18))
"""


def test_the_variables_of_a_function_that_failed_are_looked_through(cell):
    """That is where a user looks when memory ran out."""
    ran = cell(f"%%gpumem --into r\n{FAILS}")
    assert isinstance(ran.error, ValueError)
    (found,) = cell("r").value.findings
    assert (found.code, found.subject, found.location.line) == ("TM503", "outputs", 6)


def test_nothing_is_told_of_a_cell_that_keeps_numbers(cell):
    """The same loop, without the graph."""
    cell(f"%%gpumem --into r\n{STORES.replace('append(loss)', 'append(loss.item())')}")
    assert (cell("r").value.leaks, cell("r").value.findings) == ((), ())


def test_a_function_of_an_earlier_cell(cell):
    """Its source stands beside what each line did."""
    cell(DEFINES)
    shown = cell("%%gpumem --func doubled --into r\nz = doubled(torch.ones(2**10))").shown[0]
    (function,) = cell("r").value.functions
    assert (function.name, function.first, function.source[1]) == ("doubled", 1, "    y = x * 2")
    lines = [cell("r").value.lines[at] for at in function.lines]
    assert [(line.location.line, line.allocated, line.kept) for line in lines] == [(2, 4096, 0), (3, 4096, 4096)]
    for form in ("text/plain", "text/html"):
        assert "doubled" in shown[form]


def test_a_function_that_the_cell_itself_defines(cell):
    """It need not be there before; what is in the cell beside it, a magic say, is no matter."""
    cell(f"%%gpumem --func doubled --into r\n{DEFINES}")
    (function,) = cell("r").value.functions
    lines = [cell("r").value.lines[at] for at in function.lines]
    assert [(line.location.text, line.allocated) for line in lines] == [("y = x * 2", 4096), ("return y.clone()", 4096)]


def test_functions_of_a_library(cell):
    """By the name of their module; a module of the user's stands for its forward."""
    cell("%%gpumem --func torch.nn.functional.softmin --func net --into r\nnn.functional.softmin(net(x), 0)")
    report = cell("r").value
    assert [function.name for function in report.functions] == ["torch.nn.functional.softmin", "net"]
    lines = [report.lines[at] for function in report.functions for at in function.lines]
    texts = {line.location.text for line in lines if line.allocated or sys.version_info < (3, 12)}
    assert texts == {"ret = (-input).softmax(dim)", "return F.linear(input, self.weight, self.bias)"}


@pytest.mark.parametrize("name", ["nowhere", "x", "torch.relu"])
def test_what_is_no_function_is_an_error_before_anything_runs(cell, name):
    """The cell has not run."""
    ran = cell(f"%%gpumem --func {name}\nran = 1")
    assert f"cannot follow {name}" in ran.err
    assert cell("'ran' in globals()").value is False
