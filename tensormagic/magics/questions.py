"""The magics of one question each: what they take, which function of ``api`` answers, and what follows a cell.

A magic is a `Magic` in the table `MAGICS` at the end, and a function that calls ``api``.
"""

from __future__ import annotations

import functools
import sys
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError

from tensormagic import api
from tensormagic.magics.arguments import Magic, check_expression, expressions, several, unquoted, value
from tensormagic.magics.frames import (
    Explained,
    Followed,
    answer_of,
    check,
    explanation,
    one_expression,
    own_namespace,
    reported,
    value_of,
)
from tensormagic.magics.live_output import last_report
from tensormagic.magics.shared_assets import cell_number, running_number
from tensormagic.reports import Cell, Gap, Report, TraceReport
from tensormagic.reports.base import given_path
from tensormagic.words import binding


def _tensors(shell: Any, options: Namespace) -> Report:
    __tracebackhide__ = True
    asked = expressions(options.expression)
    named = {binding(expression): value_of(shell, expression) for expression in asked}
    return api.tensors(named or own_namespace(shell), title=", ".join(asked))


def _model(shell: Any, options: Namespace) -> Report:
    __tracebackhide__ = True
    expression = one_expression(options, "%model shows one model, but here are {}")

    def evaluated() -> Any:
        __tracebackhide__ = True
        return value_of(shell, expression)

    return api.model(evaluated, expression, trace=last_report(shell), namespace=shell.user_ns)


def _aliases(shell: Any, options: Namespace) -> Report:
    __tracebackhide__ = True
    only = {expression: value_of(shell, expression) for expression in expressions(options.expression)}
    return api.aliases(own_namespace(shell), only=only or None)


def _followed(kind: str) -> Callable[..., Followed]:
    """Return what follows a cell by a class of ``api``."""

    def follow(shell: Any, _live: str, options: Namespace, cell: Cell) -> Followed:
        watch = getattr(api, kind)(shell.user_ns, cell, cell_number=functools.partial(cell_number, shell))
        return watch, reported(shell, watch, options), Explained(shell)

    return follow


def _gradgraph(shell: Any, options: Namespace) -> Report:
    __tracebackhide__ = True
    expression = one_expression(options, "%gradgraph draws one graph, but here are {} expressions")
    found = value_of(shell, expression)
    if hasattr(found, "named_parameters"):
        computed = f"%gradgraph {expression}(x).sum()"
        raise UsageError(f"{expression} is a model and has no graph: draw what it computes, {computed}")
    return api.gradgraph(found, expression, namespace=shell.user_ns)


def _why(shell: Any, options: Namespace) -> Report:
    __tracebackhide__ = True
    if not options.expression:
        return _why_refused(shell, options)
    name = one_expression(options, "%why answers about one thing, but here are {}").removesuffix(".grad")
    found, loss = value_of(shell, name), unquoted(options.loss)
    if loss is not None:
        check_expression(loss)
        loss = value_of(shell, loss)
    number = functools.partial(cell_number, shell)
    return api.why(found, name, loss=loss, trace=last_report(shell), namespace=shell.user_ns, cell_number=number)


def _why_refused(shell: Any, options: Namespace) -> Report:
    """Return what is known of the call that torch refused last, from the exception that Python keeps for a debugger."""
    if options.loss is not None:
        raise UsageError(f"--loss {options.loss} is the loss of a gradient, but none is asked for: %why x --loss loss")
    error = getattr(sys, "last_value", None)
    report = None if error is None else explanation(shell, error)
    if report is None:
        last = "there was none" if error is None else f"{type(error).__name__} is not PyTorch's"
        if isinstance(error, UsageError):
            last = "that is a magic's UsageError now (run the cell that failed again)"
        del error  # what is raised here becomes the last error: its frames would keep those of this one
        raise UsageError(f"%why alone explains the last error, but {last}; %why x explains the gradient of x")
    number = report.stack[0].cell if report.stack else None
    if number is None or number >= running_number(shell) - 1:
        return report
    since = Gap("the operands as they were", f"cells have run since cell {number}; the names stand for these now")
    return replace(report, gaps=(*report.gaps, since))


def _compare(shell: Any, options: Namespace) -> Report:
    __tracebackhide__ = True
    check(options)
    runs = [run for given in options.run if (run := given.removesuffix(","))]  # %compare good, bad
    if len(runs) != 2:
        raise UsageError(f"%compare takes two runs, but was given {len(runs)}: {', '.join(runs)}")
    left, right = (_traced_run(shell, given) for given in runs)
    short = [path.stem if (path := _saved_run(one)) else one for one in runs]
    first, second = short if short[0] != short[1] else runs
    return api.compare(left, right, names=(first, second))


def _traced_run(shell: Any, given: str) -> Any:
    """Return the saved run's path, or what the expression gives in the user namespace."""
    if path := _saved_run(given):
        return path
    check_expression(given)
    if given.isidentifier() and given not in shell.user_ns:
        runs = [name for name, value in shell.user_ns.items() if isinstance(value, TraceReport | api.Trace)]
        here = f"here {'are' if len(runs) > 1 else 'is'} {', '.join(runs) or 'none'}"
        raise UsageError(f"there is no name {given!r} here; a run is a name that %%tracegrad --into NAME bound; {here}")
    return value_of(shell, given)


def _saved_run(given: str) -> Path | None:
    text = unquoted(given) or ""
    return answer_of(given_path, text, "%compare") if text.endswith(".json") else None


def _ranks(shell: Any, options: Namespace) -> Report:
    __tracebackhide__ = True
    check(options)
    if len(options.run) != 1:
        raise UsageError(f"%ranks takes one run, but was given {len(options.run)}: {', '.join(options.run)}")
    report = api.ranks(_run_of_ranks(shell, options.run[0]))
    return report if options.rank is None else api.rank_report(report, options.rank)


_LONGEST = 255  # characters that file systems take as a name; of more, asking for the folder is an error


def _run_of_ranks(shell: Any, given: str) -> Any:
    """Return the folder, or what the expression gives in the user namespace."""
    text = unquoted(given) or ""
    path = answer_of(given_path, text, "%ranks")
    names = given.split(".")
    is_name = all(name.isidentifier() for name in names)
    if text != given or (len(given) <= _LONGEST and path.is_dir()) or not (is_name or set(given) & set("[(")):
        return path
    if is_name and names[0] not in shell.user_ns:
        raise UsageError(f"there is no folder or name {given!r}; tensormagic.trace(ranks=...) writes such a folder")
    check_expression(given)
    return value_of(shell, given)


def _rng(shell: Any, options: Namespace) -> Report:
    __tracebackhide__ = True
    check(options)
    return api.rng(own_namespace(shell))


_WRITES = Magic(
    name="%%aliases",
    does="Run the cell and show, at the line of every in-place write, which other names it changes, and whether it "
    "reads memory it is overwriting.",
    makes="WritesReport",
    instead="the cell with all that its writes changed",
    follow=_followed("WriteWatch"),
)

MAGICS = {
    "tensors": Magic(
        name="%tensors",
        does="List all your tensors and NumPy arrays: shape, dtype, bytes, shared memory, gradient.",
        makes="TensorTable",
        takes={"expression": several("list only the tensors in these: net  batch  optimizer")},
        report=_tensors,
    ),
    "model": Magic(
        name="%model",
        does="Show a model as a tree: shapes, parameters, frozen or not, memory, optimizer, gradients.",
        makes="ModelReport",
        takes={"expression": several("a model, or a call of one, which runs: net  net(x)  net.encoder")},
        needs="expression",
        report=_model,
    ),
    "aliases": Magic(
        name="%aliases",
        does="Show who shares memory with whom: every name, container, attribute and array, with exact overlaps.",
        makes="AliasReport",
        takes={"expression": several("show only the memory of these: x  net.fc.weight  batch")},
        also=(_WRITES,),
        report=_aliases,
    ),
    "writes": _WRITES,
    "gradgraph": Magic(
        name="%gradgraph",
        does="Draw the autograd graph of a tensor, and what it saves for backward.",
        makes="TraceReport",
        takes={"expression": several("a Python expression for a tensor with a graph: loss")},
        needs="expression",
        figures=False,
        report=_gradgraph,
    ),
    "why": Magic(
        name="%why",
        does="Explain why a gradient is None, zero or NaN: the path to the loss, and where it breaks. Alone: the last "
        "PyTorch error.",
        makes="WhyReport",
        takes={
            "expression": several(
                "a tensor, x.grad, or a model: x  net.fc1.weight  net; without one, the last PyTorch error"
            ),
            "--loss": value("EXPR", "what backward was called on; by default a tensor that was computed from EXPR"),
        },
        report=_why,
    ),
    "compare": Magic(
        name="%compare",
        does="Compare two traced runs: graph structure, first diverging step, gradient ratios and loss.",
        makes="ComparisonReport",
        takes={
            "run": value(
                "RUN", "two runs: names that %%%%tracegrad --into bound, or .json files from --save", nargs="*"
            )
        },
        needs="run",
        report=_compare,
    ),
    "ranks": Magic(
        name="%ranks",
        does="Compare the ranks of a run: what differs, on which rank and from which step on.",
        makes="RankReport",
        takes={
            "run": value(
                "RUN",
                "the folder that every rank was given as tensormagic.trace(ranks=...), or a list of their reports",
                nargs="*",
            ),
            "--rank": value(
                "N",
                "show the full report of this rank, where saved: by rank 0, and by ranks that fail or differ",
                type=int,
            ),
        },
        needs="run",
        report=_ranks,
    ),
    "rng": Magic(
        name="%rng",
        does="Show every random generator: its seed, and how many numbers it has drawn. %%rng at the top of a cell: "
        "which call on which line draws from which generator.",
        makes="RngReport",
        instead="the generators as a table",
        report=_rng,
        follow=_followed("DrawWatch"),
    ),
}
