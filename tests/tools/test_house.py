"""What ``make house`` counts, on a small made-up package that has one of each fault."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.kernel import ROOT
from tools import house, house_walk

SETTINGS = """
[importlinter:contract:packages]
type = layers
containers = made
layers =
    edge  # what a person sees
    left | right
    (missing) | base

[importlinter:contract:inner]
type = layers
containers = made.base
layers =
    high : tall
    low
ignore_imports =
    made.base.low.known -> made.base.*

[importlinter:contract:heavy]
type = forbidden
source_modules = made
forbidden_modules = torch
"""
HEALTHY = {
    "__init__.py": '"""Made up."""\n',
    "edge.py": "from made import left\nfrom made.base.high import top\n",
    "left.py": "import os\nfrom made.base import low\n",
    "right.py": "from made.base.tall import *\n",
    "base/__init__.py": "",
    "base/high.py": "from made.base.low import deep\nfrom .tall import far\ntop = 1\n",
    "base/tall.py": "far = 1\n",
    "base/low/__init__.py": "",
    "base/low/deep.py": "",
    "base/low/known.py": "import made.base.tall\n",
}


@pytest.fixture
def measured(tmp_path):
    """A function that writes the made-up package, with changed or added files, and measures it."""

    def write_and_measure(files=None):
        for name, text in {**HEALTHY, **(files or {})}.items():
            path = tmp_path / "made" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (tmp_path / "setup.cfg").write_text(SETTINGS)
        return house.measure(tmp_path / "made", tmp_path / "setup.cfg")

    return write_and_measure


def test_a_package_in_order_has_no_fault(measured):
    """Downwards, within a folder, between siblings that may, and what a contract lets pass: nothing is told."""
    found = measured()
    assert (found.circles, found.circles_for_types, found.against) == ([], [], [])
    assert (found.long_functions, found.long_files, found.small_functions) == ([], [], [])
    assert len(found.python) == len(HEALTHY)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("base/tall.py", "from made.base.high import top"),
        ("base/tall.py", "import made.base.high"),
        ("base/tall.py", "from . import high"),
        ("base/tall.py", "def later():\n    from made.base.high import top"),
        ("base/tall.py", "try:\n    from made.base import high\nexcept ImportError:\n    pass"),
        ("base/tall.py", "if TYPE_CHECKING:\n    pass\nelse:\n    from made.base import high"),
    ],
)
def test_a_circle_is_found(measured, name, line):
    """However an import is written, and within a function too, it closes the circle."""
    assert measured({name: line}).circles == ["made.base.high - made.base.tall"]


def test_a_longer_circle_is_one(measured):
    """Three files that import one another are one circle, and what only leads to it is no part of it."""
    ring = {
        "base/low/deep.py": "from made.base.low import known",
        "base/low/known.py": "from made.base.low import more",
    }
    found = measured({**ring, "base/low/more.py": "from made.base.low.deep import x"})
    assert found.circles == ["made.base.low.deep - made.base.low.known - made.base.low.more"]


def test_an_import_for_types_alone_is_a_circle_of_types(measured):
    """It costs nothing at run time, and is counted by itself."""
    found = measured({"base/tall.py": "if TYPE_CHECKING:\n    from made.base.high import top"})
    assert (found.circles, found.circles_for_types) == ([], ["made.base.high - made.base.tall"])


@pytest.mark.parametrize(
    ("name", "line", "told"),
    [
        ("base/low/deep.py", "import made.edge", "made.base.low.deep imports made.edge"),
        ("base/low/deep.py", "from made.base.high import top", "made.base.low.deep imports made.base.high"),
        ("left.py", "from made import right", "made.left imports made.right"),
        ("left.py", "if TYPE_CHECKING:\n    from made import right", "made.left imports made.right"),
    ],
)
def test_an_import_against_the_layers_is_found(measured, name, line, told):
    """Upwards, in either contract, and between neighbours that are kept apart."""
    assert measured({name: line}).against == [told]


def test_a_function_over_fifty_lines_is_found(measured):
    """Its docstring does not count, its body does: fifty are allowed, fifty-one are not."""

    def function(name, lines):
        return f'def {name}():\n    """Say\n\n    more."""\n' + "    x = 1\n" * lines

    found = measured({"left.py": function("fits", 50) + function("long", 51)})
    assert found.long_functions == ["made/left.py:55 long: 51 lines"]


def test_a_file_over_five_hundred_lines_is_found(measured):
    """Five hundred are allowed."""
    assert measured({"left.py": "x = 1\n" * 500}).long_files == []
    assert measured({"left.py": "x = 1\n" * 501}).long_files == ["made/left.py: 501 lines"]


METHOD = "class A:\n    def _part(self):\n        return 1\n    def whole(self):\n        return self._part()\n"
SMALL = "def _small(x):\n    y = x + 1\n    return y\n"


def test_a_small_private_function_used_once_is_found(measured):
    """A function, and a method that no other class has."""
    found = measured({"left.py": f"{SMALL}print(_small(1))\n{METHOD}"})
    assert found.small_functions == ["made/left.py:1 _small", "made/left.py:6 _part"]


@pytest.mark.parametrize(
    "source",
    [
        f"{SMALL}print(_small(1), _small(2))",
        f"{SMALL}print(map(_small, []))",
        SMALL.replace("_small", "small") + "small(1)",
        SMALL.replace("    return", "    z = 2\n    w = 3\n    return") + "_small(1)",
        SMALL.replace("return", "yield") + "_small(1)",
        f"@cache\n{SMALL}_small(1)",
        f"{METHOD}class B(A):\n    def _part(self):\n        return 2\n",
        "class C(list):\n    def _part(self):\n        return super()._part()\n",
    ],
    ids=["used twice", "handed on", "public", "four lines", "yields", "decorated", "overridden", "overrides"],
)
def test_what_cannot_go_inline_is_not_told(measured, source):
    """Used twice, handed to another function, public, longer, a generator, decorated, overridden, or overriding."""
    assert measured({"left.py": source}).small_functions == []


def test_code_lines_are_those_that_run(measured):
    """Docstrings, comments and blanks are lines, but no code; a string that is no docstring is."""
    text = '"""Say.\n\nMore.\n"""\n\n# why\nx = """a\nb"""\n\n\ndef f():\n    """Do."""\n    return x\n'
    left = next(file for file in measured({"left.py": text}).files if file.path == "made/left.py")
    assert (left.lines, left.code) == (13, 4)


def test_the_table_is_put_between_its_marks(measured):
    """The page around it stays; a measure that was not taken stays empty; a page without marks is refused."""
    written = house.table(measured())
    page = house.with_table(f"before\n{house.BEGIN}\nold\n{house.END}\nafter\n", written)
    assert page == f"before\n{house.BEGIN}\n{written}\n{house.END}\nafter\n"
    assert f"| Python files in the package | {len(HEALTHY)} | at most 330 |" in written
    assert "| files that `%tensor x` takes |  | at most 60 |" in written
    with pytest.raises(ValueError, match="the page has no"):
        house.with_table("before\nafter\n", written)


def test_a_walk_counts_files_and_functions_below_a_folder(tmp_path):
    """What is elsewhere does not count, and a comprehension is part of its function."""
    (tmp_path / "inside").mkdir()
    for name in ("inside/one.py", "inside/two.py", "outside.py"):
        (tmp_path / name).write_text("def f(g=None):\n    return [g and g() for _ in range(2)], (lambda: 1)()\n")
    one, two, outside = (_functions(tmp_path / name) for name in ("inside/one.py", "inside/two.py", "outside.py"))
    with house_walk.Walk(tmp_path / "inside") as walk:
        one(lambda: two(outside))
    assert len(walk.files) == 2
    assert len(walk.functions) == 2
    assert sys.getprofile() is None


def test_a_cell_that_fails_is_no_walk():
    """A figure of a run that broke off would look like progress."""
    code = "from tools import house_walk; house_walk.walked({'broken': '1 / 0'}, house_walk.ROOT)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "this cell failed:\n1 / 0" in done.stderr


@pytest.mark.processes
def test_uses_of_magics_are_walked_and_the_walks_stay_short():
    """The figures are of real runs, each through magic, collector and panel; none takes more files than it may."""
    taken = house.walks()
    assert list(taken) == list(house_walk.USES)
    assert all(5 < walk["files"] < walk["functions"] < 2000 for walk in taken.values())
    walked = house.House([], [], [], [], [], [], taken)
    targets = {name: row for name, row in house.MEASURES.items() if name.startswith("files that") and row[1]}
    assert len(targets) == 3
    for name, (count, target) in targets.items():
        assert count(walked) <= int(target.removeprefix("at most ")), name


def _functions(path):
    names = {}
    exec(compile(path.read_text(), str(path.resolve()), "exec"), names)
    return names["f"]
