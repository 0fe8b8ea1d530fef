"""The cell runner's corners that the honesty suite does not reach."""

from __future__ import annotations

import hashlib
import inspect
import linecache

import pytest
from IPython.core.compilerop import CachingCompiler
from IPython.core.error import UsageError


@pytest.mark.parametrize(
    "body",
    [
        "import asyncio\nawait asyncio.sleep(0)",
        "async def items():\n    yield 1\nasync for item in items():\n    pass",
        "value = [item async for item in items()]",
        "print(await thing())",
    ],
)
def test_top_level_await_is_refused(cell, shell, body):
    """Every form of it, before anything ran, with its line."""
    ran = cell(f"%%tracegrad\nran = True\n{body}")
    assert isinstance(ran.error, UsageError)
    assert "top-level await" in str(ran.error)
    assert "ran" not in shell.user_ns


def test_await_inside_a_function_is_no_top_level_await(cell):
    """Defining a coroutine is fine."""
    assert cell("%%tracegrad\nasync def f():\n    await g()\nx = lambda: 1").error is None


@pytest.mark.parametrize(
    ("body", "value"), [("# nothing", None), ("y = 3", None), ("y = 3\ny", 3), ("y = 3\ny;", None)]
)
def test_values(cell, body, value):
    """A cell of comments, of statements, of an expression."""
    ran = cell(f"%%tracegrad --text\n{body}")
    assert (ran.error, ran.value) == (None, value)


def test_a_last_assignment_is_shown_where_that_is_wished(cell, shell):
    """With ast_node_interactivity = "last_expr_or_assign" IPython shows the value of a last assignment."""
    shell.ast_node_interactivity = "last_expr_or_assign"
    try:
        assert cell("%%tracegrad --text\nvalue = 3").value == cell("value = 3").value == 3
    finally:
        shell.ast_node_interactivity = "last_expr"


class Forgetful(CachingCompiler):
    """Knows the number of no cell that it compiled, as that of IPython 7."""

    def cache(self, transformed_code, number=0, raw_code=None):
        self._filename_map = {}
        name = super().cache(transformed_code, number, raw_code)
        del self._filename_map
        return name


@pytest.fixture(params=[False, True], ids=["kept", "forgotten"])
def compiler(request, shell, monkeypatch):
    """What compiles cells, of IPython 8 and of IPython 7."""
    if request.param:
        monkeypatch.setattr(shell, "compile", Forgetful())
        shell.compile.cache("")


@pytest.mark.usefixtures("compiler")
def test_the_cell_number_is_that_of_the_prompt(cell, shell):
    """Findings and the report name the cell as the notebook does."""
    cell("pass")
    count = shell.execution_count
    cell("%%tracegrad --into r\n(x * 2).sum().backward()")
    report = cell("r").value
    assert report.cell.count == count
    assert report.locations[0].cell == count
    assert report.locations[0].label == f"cell {count}, line 2"


@pytest.mark.usefixtures("compiler")
def test_functions_of_earlier_cells_keep_their_number(cell, shell):
    """A line in a function that an earlier cell defined is named with that cell."""
    count = shell.execution_count
    cell("def model(t):\n    h = t.exp()\n    return h.sum()")
    cell("%%tracegrad --into r\nmodel(x).backward()")
    lines = {(location.cell, location.line, location.function) for location in cell("r").value.locations}
    assert (count, 2, "model") in lines


def named_as_by_a_kernel(monkeypatch, shell):
    """Let cells be named by their text, typed as it is, alone: as in a notebook."""

    def by_text(self, raw_code, code, number):
        return f"/tmp/ipykernel_1/{hashlib.sha1(raw_code.encode()).hexdigest()}.py"

    monkeypatch.setattr(type(shell.compile), "get_code_name", by_text)


def test_a_cell_is_compiled_under_the_name_of_the_running_one(cell, shell, monkeypatch):
    """A notebook's debugger sets breakpoints under that name, which it makes from all of the text."""
    named_as_by_a_kernel(monkeypatch, shell)
    text = "%%tracegrad --text\nimport sys\nfilename, line = (f := sys._getframe()).f_code.co_filename, f.f_lineno"
    cell(text)
    filename, line = shell.user_ns["filename"], shell.user_ns["line"]
    assert filename == shell.compile.get_code_name(text, "", 0)
    assert line == 3
    assert linecache.getline(filename, line) == f"{text.split(chr(10))[2]}\n"


def test_a_cell_that_calls_magics_itself_keeps_its_lines(cell, shell, monkeypatch):
    """Where the magic is not all of the running cell, that cell's own source stays."""
    named_as_by_a_kernel(monkeypatch, shell)
    text = "import sys\nfor n in range(2):\n    get_ipython().run_cell_magic('tracegrad', '--text', 'y = 1')"
    cell(f"{text}\nname = sys._getframe().f_code.co_filename")
    assert linecache.getlines(shell.user_ns["name"])[:3] == [f"{line}\n" for line in text.split("\n")]


@pytest.mark.parametrize("first", ["", "%%time\n"])
def test_a_cell_with_and_without_the_magic_has_two_names(cell, shell, monkeypatch, first):
    """What a function's lines say stays true when its cell runs again with the magic, or that inside another."""
    named_as_by_a_kernel(monkeypatch, shell)
    body = "def f():\n    return 1\n"
    cell(body)
    before = shell.user_ns["f"]
    cell(f"{first}%%tracegrad --text\n{body}")
    followed = shell.user_ns["f"]
    assert inspect.getsource(before) == inspect.getsource(followed) == body
