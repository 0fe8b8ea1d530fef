"""Runs the body of a cell magic exactly as IPython would run the cell.

The source is transformed and cached by IPython's own means, so that ``%magic`` and ``!command`` lines, multi-line
strings and the line numbers of a traceback are what they would be; what the cell binds is bound in the user's
namespace; the value of a last expression is returned, to become ``Out[n]``. A failing cell raises what it raised.

``shell.run_cell`` would be simpler and wrong: the outer cell would count as a success, and Run All would go on.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from tensormagic.magics.shared_assets import cell_number, name_of_cell

if TYPE_CHECKING:
    from tensormagic.reports import Cell

Passed = Callable[[str, int, int], None]


class CellSyntaxError(Exception):
    """A cell that is not Python, shown as without the magic: the error alone, without the frames that lead to it.

    Some of it only the compiler sees, a ``return`` outside a function for one: what stands above has run then.

    IPython shows all frames of a `SyntaxError` that is raised while a cell runs, and lets other classes say themselves
    how they are shown.
    """

    def __init__(self, shell: Any, error: SyntaxError) -> None:
        super().__init__(str(error))
        self.lineno = error.lineno
        self._lines: list[str] = shell.SyntaxTB.structured_traceback(type(error), error, [])

    def _render_traceback_(self) -> list[str]:
        return self._lines


class CellSource:
    """One cell, transformed and parsed, not yet run.

    ``first_line``, that of the magic itself, counts as line 1, as it does in the notebook's margin: a line number in a
    traceback or a report is the one that the user sees beside the line.

    Raises:
        UsageError: for a cell with a top-level ``await``, which cannot run inside a magic.
        CellSyntaxError: for a cell that is not Python.
    """

    def __init__(self, shell: Any, cell: str, first_line: str) -> None:
        from tensormagic.reports import Cell

        self._shell = shell
        transformed: str = shell.transform_cell(cell)
        dropped = "\n" * (_blank_lines(cell) - _blank_lines(transformed))  # by IPython, at the top of the cell
        source = f"# {first_line}\n{dropped}{transformed}"
        self._filename = name_of_cell(shell, source, cell)
        self._tree = self._python(lambda: shell.transform_ast(shell.compile.ast_parse(source, self._filename)))
        self.cell: Cell = Cell(
            self._filename, cell_number(shell, self._filename), (first_line, *source.rstrip("\n").split("\n")[1:])
        )
        _refuse_await(self._tree)

    def run(self, passed: Passed | None = None) -> Any:
        """Run the cell; return the value of its last expression, or None.

        ``passed`` is called after each statement, with the file's name, the statement's first and last line.
        """
        __tracebackhide__ = "__ipython_bottom__"  # IPython shows a traceback from the cell's own frame on
        shown = self._shell.ast_node_interactivity
        if not self._tree.body:
            return None
        *statements, last = self._tree.body
        if shown == "last_expr_or_assign" and (name := _assigned_name(last)):
            statements = self._tree.body
            last = ast.fix_missing_locations(ast.Expr(ast.Name(name, ast.Load()), lineno=1, col_offset=0))
        if shown not in {"last_expr", "last_expr_or_assign"} or not isinstance(last, ast.Expr):
            mode = "none" if shown in {"last_expr", "last_expr_or_assign"} else shown
            return self._run_all([*statements, last], mode, passed)
        self._execute(statements, passed)
        expression = ast.fix_missing_locations(ast.Expression(last.value))
        value = eval(self._compiled(expression, "eval"), self._shell.user_global_ns, self._shell.user_ns)  # noqa: S307
        if passed is not None and last is self._tree.body[-1]:
            self._tell(passed, last)
        return value

    def _run_all(self, statements: list[ast.stmt], mode: str, passed: Passed | None) -> None:
        """Run without a value to return; with ``ast_node_interactivity = "all"`` every expression shows itself."""
        __tracebackhide__ = "__ipython_bottom__"
        for statement in statements:
            if mode == "all" and isinstance(statement, ast.Expr):
                code = self._compiled(ast.Interactive([statement]), "single")
                exec(code, self._shell.user_global_ns, self._shell.user_ns)  # noqa: S102
            else:
                self._execute([statement])
            if passed is not None:
                self._tell(passed, statement)

    def _tell(self, passed: Passed, statement: ast.stmt) -> None:
        passed(self._filename, statement.lineno, statement.end_lineno or statement.lineno)

    def _execute(self, statements: list[ast.stmt], passed: Passed | None = None) -> None:
        __tracebackhide__ = "__ipython_bottom__"
        if passed is not None:
            self._run_all(statements, "none", passed)
        elif statements:
            code = self._compiled(ast.Module(statements, type_ignores=[]), "exec")
            exec(code, self._shell.user_global_ns, self._shell.user_ns)  # noqa: S102  (running the cell is the point)

    def _compiled(self, tree: ast.AST, mode: str) -> Any:
        return self._python(self._shell.compile, tree, self._filename, mode)

    def _python(self, read: Callable[..., Any], *given: Any) -> Any:
        """Return what parses or compiles the cell; where it is not Python, the error is the cell's own."""
        try:
            return read(*given)
        except SyntaxError as error:
            named = type(type(error).__name__, (CellSyntaxError,), {})  # what a report, and a kernel's reply, call it
            wrong = named(self._shell, error)
        raise wrong  # here, not above: the first error would be shown as its cause


def _blank_lines(text: str) -> int:
    """Return how many lines are blank before the first that is not."""
    return len(text[: len(text) - len(text.lstrip())].split("\n")) - 1


def _refuse_await(tree: ast.Module) -> None:
    for node in _outside_functions(tree):
        line = node.lineno if isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith) else None
        if isinstance(node, ast.comprehension) and node.is_async:
            line = node.iter.lineno
        if line is not None:
            raise UsageError(
                f"line {line}: a cell with a top-level await cannot run inside a cell magic; "
                "put it into `async def main(): ...` and await main() in a cell of its own"
            )


def _assigned_name(statement: ast.stmt) -> str:
    """Return the one name that a statement binds, as IPython's ``"last_expr_or_assign"`` understands it, or ``""``."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
    elif isinstance(statement, ast.AugAssign | ast.AnnAssign):
        target = statement.target
    else:
        return ""
    return target.id if isinstance(target, ast.Name) else ""


def _outside_functions(tree: ast.AST) -> list[ast.AST]:
    found, waiting = [], [tree]
    while waiting:
        node = waiting.pop()
        found.append(node)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting.extend(ast.iter_child_nodes(node))
    return found
