"""Functions that are gone through: how they are found, and which line of theirs is running."""

from __future__ import annotations

import functools
import sys

import pytest
import torch
from torch import nn

from tensormagic.collectors.memory_runs.functions import FunctionPlaces, Functions
from tensormagic.collectors.where.source import SourceLines
from tensormagic.errors import UnknownNameError
from tensormagic.reports import Cell, LineMemory, Location

NOTHING = Cell("", None, ())


class Doubling(nn.Module):
    """Doubles."""

    def forward(self, x):
        return x * 2


def here() -> int | None:
    """Return the line that counts, of the caller's."""
    return current.site_of(sys._getframe(1))


def helper():
    """Is called by what is gone through."""
    return here()


def measured(many: int):
    """Is gone through."""
    first = helper()
    listed = [helper() for _ in range(many)]
    made = list(map(lambda _: helper(), "a"))  # noqa: C417
    return first, listed, made[0]


class Walking:
    """What the test's functions ask: the walk of the moment."""

    def __init__(self) -> None:
        self.sites = SourceLines()
        self.walk = None

    def site_of(self, frame):
        return self.walk.site_of(frame)

    def text(self, site):
        return self.sites.locations[site].text

    def through(self, *wanted, **names):
        """Go through functions from here on."""
        self.walk = FunctionPlaces(self.sites, lambda _frame: "", Functions(wanted, names, NOTHING))


current = Walking()


def test_the_line_of_the_function_counts_and_not_what_it_calls():
    """Comprehensions and lambdas are part of it."""
    current.through("measured", measured=measured)
    first, listed, last = measured(2)
    assert current.text(first) == "first = helper()"
    assert [current.text(site) for site in listed] == ["listed = [helper() for _ in range(many)]"] * 2
    assert current.text(last) == 'made = list(map(lambda _: helper(), "a"))  # noqa: C417'


def test_elsewhere_the_persons_line_counts():
    """As without functions to go through."""
    current.through("measured", measured=measured)
    assert current.text(helper()) == "return here()"


def test_the_innermost_of_several_counts():
    """A function inside one that is gone through is gone through itself, where it was asked for."""
    current.through("measured", "helper", measured=measured, helper=helper)
    assert current.text(measured(1)[0]) == "return here()"


def test_a_librarys_function_has_lines_too():
    """Inside of torch, which is nobody's line otherwise."""
    current.through("torch.nn.Sequential.forward")
    net = nn.Sequential(Doubling())
    seen = []
    net[0].register_forward_hook(lambda *_: seen.append(here()))
    net(torch.ones(1))
    (location,) = (current.sites.locations[site] for site in seen)
    assert (location.text, location.function) == ("input = module(input)", "forward")


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ("net", Doubling.forward),
        ("net.forward", Doubling.forward),
        ("nets[0]", Doubling.forward),
        ("Doubling", Doubling.forward),
        ("Doubling.forward", Doubling.forward),
        ("part", measured),
        ("quiet", measured),
        ("torch.nn.functional.relu", nn.functional.relu),
        (measured, measured),
        (Doubling().forward, Doubling.forward),
    ],
    ids=lambda value: getattr(value, "__qualname__", value),
)
def test_how_functions_are_found(wanted, code):
    """By what a user writes; behind methods, partials and decorators; a module stands for its forward."""
    net = Doubling()
    names = {"net": net, "nets": [net], "Doubling": Doubling, "part": functools.partial(measured, 3)}
    names["quiet"] = torch.no_grad()(measured)
    assert code.__code__ in Functions([wanted], names, NOTHING).codes


def test_a_compiled_module_stands_for_what_it_compiles():
    """Its own forward is torch's."""
    compiled = torch.compile(Doubling())
    assert set(Functions(["compiled"], {"compiled": compiled}, NOTHING).codes) == {Doubling.forward.__code__}


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("missing", "cannot follow missing (NameError: name 'missing' is not defined)"),
        ("x.nothing", "has no attribute 'nothing'"),
        ("torch.relu", "of type builtin_function_or_method: it is not a Python function"),
        ("boom()", "cannot follow boom(): give the function by its name, boom"),
        ("x", "cannot follow x, of type Tensor"),
        ("1 +", "SyntaxError"),
    ],
)
def test_what_is_no_function_is_refused(wanted, words):
    """What was given, and what is expected."""
    with pytest.raises(UnknownNameError) as told:
        Functions([wanted], {"x": torch.zeros(1)}, NOTHING)
    assert words in str(told.value)


def test_a_function_that_the_cell_defines():
    """It is found once it is there; one of the same name elsewhere is another."""
    cell = Cell("<ipython-input-3>", 3, ("%%gpumem --func step", "!ls", "def step():", "    return 1"))
    found = Functions(["step"], {}, cell)
    space, other = {}, {}
    exec(compile("def step():\n    return 1", cell.filename, "exec"), space)
    exec(compile("def step():\n    return 1", "other.py", "exec"), other)
    assert other["step"].__code__ not in found
    assert space["step"].__code__ in found
    assert [each.name for each in found.described(())] == ["step"]


def test_the_source_stands_beside_its_lines():
    """In the order of the source; lines of other functions are left out."""
    found = Functions(["measured"], {"measured": measured}, NOTHING)
    begin = measured.__code__.co_firstlineno
    lines = [LineMemory(Location(__file__, begin + offset)) for offset in (3, -1, 2, 40)]
    (told,) = found.described(lines)
    assert (told.name, told.first, told.lines) == ("measured", begin, (2, 0))
    assert told.source[0] == "def measured(many: int):"
    assert told.source[-1] == "    return first, listed, made[0]"
