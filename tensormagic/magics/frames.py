"""The frame of every magic: parse, run, deliver, and explain what goes wrong."""

from __future__ import annotations

import ast
import builtins
import difflib
import functools
import json
import os
import sys
import traceback
from argparse import Namespace
from collections.abc import Callable, Container, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from IPython.core.error import UsageError
from IPython.core.prefilter import PrefilterChecker
from IPython.display import display

from tensormagic import api
from tensormagic.collectors import requirements
from tensormagic.errors import TensorMagicError
from tensormagic.magics.arguments import Magic, expressions, unquoted
from tensormagic.magics.cell import CellSource
from tensormagic.magics.shared_assets import Placement, cell_number
from tensormagic.words import error_text

if TYPE_CHECKING:
    from tensormagic.reports import FailureReport, Report


# What follows a cell, what shows that, and what explains an error that ends it.
Answer = TypeVar("Answer")
Followed = tuple[Any, AbstractContextManager[Any], AbstractContextManager[Any]]


def run_line(shell: Any, line: str, magic: Magic) -> None:
    """Show the report that a line, the rest of the magic's, asks for, or the help.

    Raises:
        UsageError: for an unknown option, and for what the magic refuses.
    """
    __tracebackhide__ = True
    options = magic.given(line)
    if options is None:
        return
    report = answer_of(magic.report, shell, options)
    if report is not None:
        deliver(shell, report, options)


def answer_of(function: Callable[..., Answer], *given: Any, **named: Any) -> Answer:
    """Return what a function returns for what it is given.

    Raises:
        UsageError: what it refused, in one line.
    """
    __tracebackhide__ = True
    try:
        return function(*given, **named)
    except TensorMagicError as error:
        refused = str(error)
    del given, named  # raised here, not above: the frames of either error would keep what they hold
    raise UsageError(refused)


def one_expression(options: Namespace, refusal: str) -> str:
    """Return the one expression on a line.

    Raises:
        UsageError: where there are several: ``refusal``, which begins with the magic and has a place for their number.
    """
    asked = expressions(options.expression)
    if len(asked) > 1:
        refused = f"{refusal.format(len(asked))}: {', '.join(asked)}"
        raise UsageError(f"{refused}. Name one: {refusal.split(maxsplit=1)[0]} {asked[0]}")
    return asked[0]


def run_cell(shell: Any, line: str, cell: str, magic: Magic, *, live: str = "") -> Any:
    """Follow a cell while it runs, show the report, and return the value of the cell's last expression.

    Whatever the cell raises goes on, unchanged, after the report of what happened is shown. ``live`` is how a run is
    shown where the options on the line do not say.

    Raises:
        UsageError: for an unknown option, a figure, or a file that cannot be saved to; nothing has run then.
    """
    __tracebackhide__ = "__ipython_bottom__"
    options = magic.given(line)
    if options is None:
        return None
    check(options)
    source = CellSource(shell, cell, f"%%{magic.name.lstrip('%')} {line}".rstrip())
    followed, shown, explained = magic.follow(shell, live, options, source.cell)
    with explained, shown, followed:
        return source.run(passed=getattr(followed, "passed", None))


# Errors explained where they happen: below the traceback in any cell, and beside it under the other magics.
#
# IPython shows an exception's traceback and then says that the cell has run: that is when the explanation is added.
# It is read from the exception alone, so a cell that raises nothing costs nothing.

_EVENT = "post_run_cell"
_EXPLAINED: set[int] = set()  # shells whose running cell's error was explained already


class Explained:
    """Explains the error that ends a ``with`` block; the error goes on unchanged.

    A class, not a generator: that would leave frames in the traceback. ``source`` is of the expression that is run,
    where Python cannot know it; without ``memory`` the magic itself explains memory that ran out.
    """

    def __init__(self, shell: Any, source: str = "", *, memory: bool = True) -> None:
        self._shell, self._source, self._memory = shell, source, memory

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Show the explanation, where torch refused a call."""
        if error is None:
            return
        elsewhere = not self._memory and api.is_out_of_memory(error)
        if elsewhere or _explain(self._shell, error, self._source):
            note_explained(self._shell)


def note_explained(shell: Any) -> None:
    """Say that the error which is about to end the running cell was explained already."""
    _EXPLAINED.add(id(shell))


def explanation(shell: Any, error: BaseException, *, source: str = "") -> FailureReport | None:
    """Return what is known of the call that torch refused; None where the error is not torch's."""
    number = functools.partial(cell_number, shell)
    return api.explain_error(error, namespace=shell.user_ns, cell_number=number, source=source)


def install(shell: Any, settings: Any) -> Callable[[], None]:
    """Explain errors below the cells that raise them, while ``settings.explain`` says so; returns what undoes it."""

    def ended(result: Any) -> None:
        described = id(shell) in _EXPLAINED
        _EXPLAINED.discard(id(shell))
        if settings.explain and not described and result.error_in_exec is not None:
            _explain(shell, result.error_in_exec)

    def undo() -> None:
        shell.events.unregister(_EVENT, ended)
        _EXPLAINED.discard(id(shell))

    shell.events.register(_EVENT, ended)
    return undo


def _explain(shell: Any, error: BaseException, source: str = "") -> bool:
    """Show what is known of the call that torch refused; returns whether there was one."""
    if (report := explanation(shell, error, source=source)) is not None:
        show(report)
    return report is not None


# -- what is shown of a report ----------------------------------------------------------------------------------------

REPORT = ("tensormagic.reports.base", "Report")  # the base of all reports, by name: IPython takes that as well


def is_notebook(shell: Any) -> bool:
    """Return whether the shell belongs to a kernel, whose front end can show more than text."""
    return getattr(shell, "kernel", None) is not None


def relays_updates(shell: Any) -> bool:
    """Return whether what is shown may be replaced later: an engine of ipyparallel's sends outputs on, not updates."""
    return is_notebook(shell) and not type(shell.kernel).__module__.startswith("ipyparallel.")


def bundle(
    report: Report,
    *_include_exclude: Any,
    folded: bool = False,
    slide: bool = False,
    place: Placement | None = None,
    **_more: Any,
) -> dict[str, Any]:
    """Return a report in all the forms that a front end may choose from; at ``place``, where it is shown before."""
    from tensormagic.views.page import files

    shown = dict(files.bundle(report, folded=folded, slide=slide))
    if not slide:
        shown["text/html"] = (place or Placement()).deduplicate(shown["text/html"])
    return shown


def show(report: Report, *, folded: bool = False, slide: bool = False) -> None:
    """Show a report: rich in a notebook, and as text, in colours, in a terminal; ``folded`` where it can be opened."""
    from tensormagic.views.text_canvas import prints_best

    if prints_best():
        api.print_report(report, brief=report.kind_name == "tensor")
    else:
        display(bundle(report, folded=folded, slide=slide), raw=True)


def deliver(shell: Any, report: Report, options: Namespace, *, shown: bool = False, folded: bool = False) -> None:
    """Send a report where the options say: name, file, figure, text; and, unless ``shown`` already, to the output.

    Raises:
        UsageError: where the file or the figure cannot be made; the report is bound and shown all the same.
    """
    if options.into:
        shell.user_ns[options.into] = report
    failed: list[str] = []
    for given in options.save:
        with _noting(failed):
            path = _path(given)
            report.save(path, slide=options.slide and api.form_of(path) == "html")
            print(f"saved {path}")  # noqa: T201  (what was done, in one line)
    if options.figure is not None:
        before = len(failed)
        with _noting(failed):
            _show_figure(report, options.figure)
        if len(failed) > before and not shown:
            show(report, slide=options.slide)
    elif options.text:
        api.print_report(report)
    elif not shown:
        show(report, folded=folded and not options.slide, slide=options.slide)
    if failed:
        raise UsageError("; ".join(failed))


@contextmanager
def _noting(failed: list[str]) -> Iterator[None]:
    try:
        yield
    except TensorMagicError as error:
        failed.append(str(error))
    except OSError as error:
        failed.append(f"cannot write to {str(error.filename)!r}: {error.strerror}")


def deliver_after_run(shell: Any, report: Report, options: Namespace, *, shown: bool = False) -> None:
    """Send the report of a cell that has run; what fails is a line, not an error: the cell's own outcome counts."""
    try:
        deliver(shell, report, options, shown=shown)
    except UsageError as error:
        print(f"UsageError: {error}", file=sys.stderr)  # noqa: T201  (as IPython shows it)


@contextmanager
def reported(
    shell: Any, run: Any, options: Namespace, open_panel: Callable[[], Any] | None = None,
    deliver: Callable[..., None] = deliver_after_run,
) -> Iterator[None]:  # fmt: skip
    """Show the report of a run when the cell has ended, however it ended, and until then the panel that is opened.

    ``open_panel`` returns that, and what shows a report in its place.
    """
    __tracebackhide__ = "__ipython_bottom__"
    opened = open_panel() if open_panel is not None else None
    try:
        yield
    finally:
        if opened is None:
            deliver(shell, run.report, options)
        else:
            panel, show_instead = opened
            panel.stop()
            report = run.report
            report = replace(report, gaps=(*report.gaps, *panel.gaps)) if panel.gaps else report
            show_instead(report)
            panel.retire()
            deliver(shell, report, options, shown=True)


def check(options: Namespace) -> None:
    """Refuse before a cell runs what could only fail after it.

    Raises:
        UsageError: where a file to save to has an unknown ending, is a folder, or cannot be made where it should be.
    """
    for path in map(_path, options.save):
        answer_of(api.form_of, path)
        there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
        why = ""
        if path.is_dir():
            why = "it is a folder"
        elif there != path and not there.is_dir():
            why = f"{str(there)!r} is a file, not a folder"
        elif not os.access(there, os.W_OK):  # a folder that is not there will be made
            why = f"{str(there)!r} cannot be written to"
        if why:
            raise UsageError(f"cannot save to {str(path)!r}: {why}")


def _path(given: str) -> Path:
    from tensormagic.reports.base import given_path

    return answer_of(given_path, unquoted(given) or "", "--save")


def _show_figure(report: Report, kind: str) -> None:
    """Show a figure by its mimetype alone: plotly's own display would put all of plotly.js into the notebook."""
    from tensormagic.views.page import files

    figure = json.loads(report.figure(kind).to_json())
    display({"application/vnd.plotly.v1+json": figure, "text/plain": files.bundle(report)["text/plain"]}, raw=True)


def install_formatters(shell: Any) -> Callable[[], None]:
    """Make reports show themselves as the value of a cell; returns what undoes it."""
    formatter = shell.display_formatter.mimebundle_formatter
    formatter.for_type_by_name(*REPORT, bundle)
    return functools.partial(formatter.pop, ".".join(REPORT), None)


# -- names and expressions on a line ----------------------------------------------------------------------------------

MOST_NAMES = 6  # of the user's latest tensors, where nothing resembles the name that was typed


class PythonFirst(PrefilterChecker):
    """Keeps a line that is Python from becoming one of our magics, as automagic would have it.

    ``model(x)``, before there is a ``model``, is a `NameError`, as without the extension; ``tensor x`` is no Python.
    """

    priority = 650  # before automagic's
    names: Container[str] = ()

    def check(self, line_info: Any) -> Any:
        """Return the handler that leaves the line as it is; None where it may become a magic."""
        if line_info.esc or line_info.ifun not in self.names:
            return None
        try:
            ast.parse(line_info.line.strip())
        except (SyntaxError, ValueError):
            return None
        return self.prefilter_manager.get_handler_by_name("normal")  # type: ignore[union-attr]


def leave_python_alone(shell: Any, names: Container[str]) -> Callable[[], None]:
    """Let automagic take no line that is Python for a magic of these names; returns what undoes it."""
    checker = PythonFirst(shell, shell.prefilter_manager)  # type: ignore[no-untyped-call]
    checker.names = names
    return functools.partial(shell.prefilter_manager.unregister_checker, checker)


def value_of(shell: Any, expression: str) -> Any:
    """Return what an expression gives in the user namespace; its own errors come through as they are.

    Raises:
        UsageError: where a name in it is not there, or a path leads to nothing; near ones are named.
    """
    __tracebackhide__ = True
    check_names(shell, expression)
    with path_errors_in_one_line(expression), Explained(shell, expression):
        return eval(expression, shell.user_global_ns, shell.user_ns)  # noqa: S307  (evaluating it is what was asked for)


@contextmanager
def path_errors_in_one_line(expression: str) -> Iterator[None]:
    """Report in one line an attribute or key that is not there, ``net.wieght`` or ``d["c"]``; other errors go on."""
    __tracebackhide__ = True
    try:
        yield
    except (AttributeError, LookupError) as error:
        nodes, missing = list(ast.walk(ast.parse(expression, mode="eval"))), getattr(error, "name", None)
        owners = [ast.unparse(one.value) for one in nodes if isinstance(one, ast.Attribute) and one.attr == missing]
        called = [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)]
        # Whether the expression itself asks for the attribute that is missing, not code that it calls.
        typed = owners and "<module>" in called and set(called[called.index("<module>") + 1 :]) <= {"__getattr__"}
        if not typed and not all(isinstance(node, _PATH) for node in nodes):
            raise
        if not isinstance(error, AttributeError):
            raise UsageError(error_text(error)) from None
        near = difflib.get_close_matches(str(missing), [name for name in dir(error.obj) if name[0] != "_"], n=3)
        known = f"; did you mean {' or '.join(near)}?" if near else ""
        raise UsageError(f"{owners[0]} has no {missing}{known}" if owners else str(error)) from None


_PATH = (ast.Expression, ast.Attribute, ast.Subscript, ast.Name, ast.Constant, ast.Load, ast.Slice, ast.Tuple,
         ast.UnaryOp, ast.USub)  # fmt: skip


def own_namespace(shell: Any) -> dict[str, Any]:
    """Return the user's names, without those that IPython put there."""
    return {name: value for name, value in shell.user_ns.items() if name not in shell.user_ns_hidden}


def check_names(shell: Any, expression: str) -> None:
    """Raise where a name is not there, naming near ones: a typing error is the commonest."""
    nodes = list(ast.walk(ast.parse(expression, mode="eval")))
    bound = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    known = bound | {*shell.user_ns, *shell.user_global_ns, *dir(builtins)}
    for node in nodes:
        if isinstance(node, ast.Name) and node.id not in known:
            raise UsageError(f"there is no name {node.id!r} here{_near(shell, node.id)}")


def _near(shell: Any, name: str) -> str:
    from tensormagic.views.page.figures import KINDS

    if name in KINDS:
        return f"; a kind of figure is joined to its option: --figure={name}"
    own = [known for known in shell.user_ns if not known.startswith("_") and known not in shell.user_ns_hidden]
    near = difflib.get_close_matches(name, own, n=3)
    if near:
        return f"; did you mean {' or '.join(near)}?"
    tensors = [known for known in own if requirements.is_tensor(shell.user_ns[known])][-MOST_NAMES:]
    return f"; tensors here: {', '.join(tensors)}" if tensors else "; there are no tensors yet"
