"""``%tensor EXPR [EXPR ...]``: what a tensor is; of a list, a dict, a module: the tensors in it, then each."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from IPython.core.error import UsageError

from tensormagic import api
from tensormagic.collectors import requirements
from tensormagic.errors import TensorMagicError
from tensormagic.magics.arguments import Magic, expressions, flag, several, slice_of, value
from tensormagic.magics.frames import Explained, answer_of, check_names, deliver, path_errors_in_one_line
from tensormagic.magics.shared_assets import cell_number, cell_numbers
from tensormagic.reports import Report, TensorReport, TensorTable
from tensormagic.reports.base import with_cells
from tensormagic.words import binding

MOST_PANELS = 6  # of a collection's tensors, shown in full below the table
_OF_PANELS = ("figure", "save", "into", "slide", "dims", "at", "picture")  # options that a line has no use for


def _report(shell: Any, options: Namespace) -> None:
    """Show every tensor that the line names itself: no frame is to keep one of them."""
    __tracebackhide__ = True
    asked = expressions(options.expression)
    if len(asked) > 1 and (options.save or options.into):
        raise UsageError(f"--save and --into take one tensor, but here are {len(asked)}: {', '.join(asked)}")
    others = [f"--{name}" for name in _OF_PANELS if getattr(options, name) not in (None, False, [])]
    if options.line and others:
        raise UsageError(f"--line prints a line and makes nothing else: leave out --line or {' '.join(others)}")
    found: list[Any] = []
    try:
        for expression in asked:  # a loop, not a comprehension: that would be a frame in the user's traceback
            found.append(_evaluated(shell, expression))  # noqa: PERF401  (as above)
        if options.line:
            _print_lines(list(zip(asked, found, strict=True)))
            return
        _show(shell, list(zip(asked, found, strict=True)), options)
    finally:  # an error's traceback keeps these frames, and must not keep the tensors
        for one in found:
            one.value = None


def _print_lines(found: list[tuple[str, Any]]) -> None:
    __tracebackhide__ = True
    lines: list[str] = []
    for expression, one in found:
        lines += answer_of(api.tensor_lines, one.value, binding(expression))
    print("\n".join(lines))  # noqa: T201  (asked for)


def _show(shell: Any, found: list[tuple[str, Any]], options: Namespace) -> None:
    """Show what several have in common, then each; folded where a picture of all of them stands above."""
    __tracebackhide__ = True
    besides = [one.value for _, one in found]
    try:
        drawn = _show_together(shell, {expression: one.value for expression, one in found}, options)
        chosen = {**slice_of(options), "besides": besides, "picture": options.picture}
        for expression, one in found:
            report = _inspect(shell, expression, one, chosen)
            deliver(shell, report, options, folded=drawn and isinstance(report, TensorReport))
    finally:
        besides.clear()


def _show_together(shell: Any, values: Mapping[str, Any], options: Namespace) -> bool:
    """Show what the tensors among ``values`` have of the same memory; nothing for fewer than two.

    Returns:
        Whether some of them share memory, so that a picture of it is there now.
    """
    tensors = {expression: value for expression, value in values.items() if _is_one(value)}
    if len(tensors) < 2 or options.figure is not None:
        return False
    try:
        overlay = api.overlay(tensors)
    except TensorMagicError as error:
        print(f"not drawn together: {error}")  # noqa: T201  (the panels follow)
        return False
    deliver(shell, overlay, Namespace(**{**vars(options), "save": [], "into": None}))
    return bool(overlay.shared)


def _is_one(value: Any) -> bool:
    return requirements.is_tensor(value) or requirements.is_array(value)


def _evaluated(shell: Any, expression: str) -> Any:
    __tracebackhide__ = True
    from tensormagic.collectors.aliasing.expression import evaluate

    check_names(shell, expression)
    with path_errors_in_one_line(expression), Explained(shell, expression):
        return evaluate(expression, shell.user_global_ns, shell.user_ns)


def _inspect(shell: Any, expression: str, found: Any, chosen: dict[str, Any]) -> Report:
    """Return the report of a tensor, or the table of a collection that holds some."""
    __tracebackhide__ = True
    if not _is_one(found.value) and (table := _collection(shell, expression, found.value)):
        return table
    name = binding(expression) if _is_one(found.value) else expression
    # No name for the namespace: the error that a refusal leaves would hold everything in it.
    report = answer_of(api.inspect, found.value, name, namespace=shell.user_ns, verdict=found.verdict, **chosen)
    holders = with_cells(report.holders, partial(cell_number, shell))  # of the lines of tracebacks and generators
    return _with_hooks_in_cells(shell, replace(report, holders=holders))


def _with_hooks_in_cells(shell: Any, report: TensorReport) -> TensorReport:
    autograd = report.autograd
    if autograd is None or autograd.details is None or not autograd.details.hooks:
        return report
    numbers = cell_numbers(shell)
    hooks = []
    for hook in autograd.details.hooks:
        filename, _, line = hook.place.rpartition(", ")
        hooks.append(replace(hook, place=f"cell {numbers[filename]}, {line}") if filename in numbers else hook)
    return replace(report, autograd=replace(autograd, details=replace(autograd.details, hooks=tuple(hooks))))


def _collection(shell: Any, expression: str, value: Any) -> TensorTable | None:
    """Return the tensors inside a collection, the first few in full; None where it holds none."""
    path = binding(expression)
    table = api.tensors({path: value}, title=expression, panels=MOST_PANELS, around=shell.user_ns)
    if hasattr(type(value), "named_modules"):
        table = replace(table, hint=f"As a tree of modules: `%model {expression}`")
    return table if any(row.name != path for row in table.rows) else None


MAGICS = {
    "tensor": Magic(
        name="%tensor",
        does="Show a tensor or array: metadata, strides, storage, aliases, values and autograd state.",
        makes="TensorReport",
        takes={
            "expression": several(
                "Python expressions that evaluate to tensors or containers of tensors: x  x.t()  net.fc.weight  batch"
            ),
            "--dims": value("ROWS,COLUMNS", "which dimensions the grid draws, by number or letter: 0,2  i,k"),
            "--at": value("INDEX", "which slice it draws, ':' for the drawn dimensions: 1,:,3,:"),
            "--line": flag("print one line for each tensor, and nothing else"),
            "--picture": flag("also draw the values as images or signals"),
        },
        needs="expression",
        report=_report,
    )
}
