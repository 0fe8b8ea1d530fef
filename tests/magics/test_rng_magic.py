"""``%rng`` and ``%%rng``: what they show, bind and save, and what they say to bad input."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from IPython.core.error import UsageError

from tensormagic import views
from tensormagic.reports import RngComparison, RngReport, RngRunReport

CELL = """%%rng --into seen
x = torch.randn(3, 4)
np.random.rand(2)
y = torch.rand(
    2,
)
x.sum()"""


@pytest.fixture
def names(shell):
    """Bind NumPy and a generator; seed everything; put the global generators back."""
    numpy_state, python_state = np.random.get_state(), random.getstate()
    np.random.seed(7)
    random.seed(42)
    torch.manual_seed(3)
    shell.user_ns.update(np=np, torch=torch, own=torch.Generator().manual_seed(1))
    yield shell.user_ns
    np.random.set_state(numpy_state)
    random.setstate(python_state)


def test_the_generators(cell, names):
    """Both forms in one display, with the seeds that NumPy and Python forgot."""
    (bundle,) = cell("%rng --into states").shown
    rows = {line.split()[0]: line for line in bundle["text/plain"].splitlines() if line.startswith(" ")}
    assert " 7 " in rows["numpy.random"]
    assert " 42 " in rows["random"]
    assert "own" in rows
    assert "tm-rng" in bundle["text/html"]
    assert isinstance(names["states"], RngReport)


def test_a_cell(cell, names):
    """The cell's value comes back; each draw stands at its line, those of NumPy too."""
    ran = cell(CELL)
    assert ran.value.equal(names["x"].sum())
    seen = names["seen"]
    assert isinstance(seen, RngRunReport)
    rows = [(seen.before[one.generator].name, one.op, seen.location(one.location).line) for one in seen.sums]
    assert rows == [("torch, CPU", "aten.randn", 2), ("numpy.random", "", 3), ("torch, CPU", "aten.rand", 4)]
    assert [one.values for one in seen.sums] == [12, 4, 2]


def test_what_the_last_expression_draws_is_its_own(cell, names):
    """NumPy and Python are looked at after it as after any statement: not the line before gets its draws."""
    names["random"] = random
    cell("%%rng --into seen\na = random.random()\nrandom.shuffle([1, 2, 3])")
    seen = names["seen"]
    assert seen.sums[0].values == 2
    assert [seen.location(one.location).line for one in seen.sums] == [2, 3]


def test_a_generator_that_the_cell_makes(cell, names):
    """NumPy's and Python's are followed from the statement that names them; their draws stand at their lines."""
    names["random"] = random
    cell("%%rng --into seen\nrng = np.random.default_rng(3)\na = rng.random(4)\ndice = random.Random(5)\ndice.random()")
    seen = names["seen"]
    rows = [(seen.before[one.generator].name, seen.location(one.location).line, one.values) for one in seen.sums]
    assert rows == [("rng", 3, 4), ("dice", 5, 2)]
    assert [(one.seed, one.drawn) for one in seen.before if one.name in {"rng", "dice"}] == [("3", 0), ("5", 0)]


def test_draws_of_a_last_expression_that_fails(cell, names):
    """Nobody looked after it: its draws are told as those after the line that was looked at last."""
    names["random"] = random
    cell("%%rng --into seen --text\na = random.random()\n[random.random(), 1 / 0]")
    assert [one.location for one in names["seen"].sums] == [0, None]
    assert "random: drew (between statements), 2 × 32 bits, after this line" in views.render(names["seen"], "txt")


def test_numbers_are_those_without_the_magic(cell, names):
    """The same seeds give the same x and y."""
    cell(CELL)
    with_magic = names["x"], names["y"]
    torch.manual_seed(3)
    np.random.seed(7)
    cell(CELL.partition("\n")[2])
    assert with_magic[0].equal(names["x"])
    assert with_magic[1].equal(names["y"])


def test_two_runs_compared(cell, names):
    """%compare says where they part; a saved run compares like one in memory."""
    cell(CELL.replace("seen", "one"))
    torch.manual_seed(4)
    cell(CELL.replace("seen", "two"))
    ran = cell("%compare one two --into parted --text")
    assert "torch, CPU was not in the same state when one and two began." in " ".join(ran.out.split())
    assert isinstance(names["parted"], RngComparison)


def test_two_runs_that_seed_first(cell, names):
    """How the generator stood before makes no difference, nor does it that one run was given the seed that it had."""
    for name, before, seed in (("one", 5, 0), ("again", 0, 0), ("other", 5, 1)):
        torch.manual_seed(before)
        cell(f"%%rng --into {name}\ntorch.manual_seed({seed})\ntorch.rand(2)")
    assert "one and again drew the same: 1 draw." in cell("%compare one again --text").out
    assert "one seeds torch, CPU with 0, other with 1." in cell("%compare one other --text").out


def test_two_saved_runs(cell, names, tmp_path):
    """Files that --save wrote."""
    cell(CELL)
    for name in ("a", "b"):
        names["seen"].save(tmp_path / f"{name}.json")
    text = cell(f"%compare {tmp_path / 'a.json'} {tmp_path / 'b.json'} --text").out
    assert "a and b drew the same: 3 draws." in text


def test_two_sorts_of_runs_are_refused(cell, names):
    """A traced run and a run of draws have nothing to compare."""
    cell(CELL)
    cell("%%tracegrad --into traced --text\nnet(torch.ones(1, 2)).sum().backward()")
    error = cell("%compare seen traced").error
    assert "two runs of one sort" in str(error)


def test_a_failing_cell_fails(cell, names):
    """The error is the cell's own, after the report; names that were bound stay."""
    ran = cell("%%rng --into seen\nz = torch.rand(2)\n1 / 0")
    assert isinstance(ran.error, ZeroDivisionError)
    assert names["seen"].state == "failed"
    assert names["z"].shape == (2,)


@pytest.mark.parametrize("line", ["%rng --figure", "%%rng --figure\nx = 1", "%rng --sav x.html", "%rng --into 3"])
def test_bad_options(cell, names, line):
    """One plain message; nothing has run."""
    assert isinstance(cell(line).error, UsageError)


def test_the_last_expression_may_stand_alone(cell, names):
    """A cell of one expression is run and watched."""
    assert cell("%%rng --into seen\ntorch.rand(2)").value.shape == (2,)
    assert names["seen"].count == 1
