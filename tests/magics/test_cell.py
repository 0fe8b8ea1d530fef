"""The cell runner's corners that the honesty suite does not reach."""

from __future__ import annotations

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
