"""Shows reports in IPython: as mimebundles, so that every front end takes the best form it can."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.display import display

from tensormagic import api
from tensormagic.errors import TensorMagicError
from tensormagic.magics.arguments import Output, unquoted
from tensormagic.magics.shared_assets import Placement

if TYPE_CHECKING:
    from tensormagic.reports import Report

REPORT = ("tensormagic.reports.base", "Report")  # the base of all reports, by name: IPython takes that as well
DEFAULT_FIGURES = {  # by the kind of report
    "aliases": "memory_map",
    "comparison": "gradient_ratio",
    "memory": "treemap",
    "memory run": "timeline",
    "run": "gradient_flow",
    "tensor": "strides",
    "tensors": "sizes",
    "trace": "gradient_flow",
}


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
        shown["text/html"] = (place or Placement()).lean(shown["text/html"])
    return shown


def show(report: Report, *, folded: bool = False, slide: bool = False) -> None:
    """Show a report: rich in a notebook, and as text, in colours, in a terminal; ``folded`` where it can be opened."""
    if api.prints_best():
        api.print_text(report)
    else:
        display(bundle(report, folded=folded, slide=slide), raw=True)


def deliver(shell: Any, report: Report, output: Output, *, shown: bool = False, folded: bool = False) -> None:
    """Send a report where the options say: name, file, figure, text; and, unless ``shown`` already, to the output.

    Raises:
        UsageError: where the file or the figure cannot be made; the report is bound and shown all the same.
    """
    if output.into:
        shell.user_ns[output.into] = report
    failed = [_attempt(functools.partial(_save, report, given, slide=output.slide)) for given in output.save]
    if output.figure is not None:
        failed.append(
            _attempt(lambda: _show_figure(report, output.figure or DEFAULT_FIGURES.get(report.kind_name, "")))
        )
        if failed[-1] and not shown:
            show(report, slide=output.slide)
    elif output.text:
        api.print_text(report)
    elif not shown:
        show(report, folded=folded and not output.slide, slide=output.slide)
    if reasons := [reason for reason in failed if reason]:
        raise UsageError("; ".join(reasons))


def deliver_after_run(shell: Any, report: Report, output: Output, *, shown: bool = False) -> None:
    """Send the report of a cell that has run; what fails is a line, not an error: the cell's own outcome counts."""
    try:
        deliver(shell, report, output, shown=shown)
    except UsageError as error:
        print(f"UsageError: {error}", file=sys.stderr)  # noqa: T201  (as IPython shows it)


def check(output: Output) -> None:
    """Refuse before a cell runs what could only fail after it.

    Raises:
        UsageError: where a file to save to has an unknown ending, is a folder, or cannot be made where it should be.
    """
    for path in map(_path, output.save):
        if reason := _attempt(functools.partial(api.form_of, path)) or _obstacle(path):
            raise UsageError(reason)


def _obstacle(path: Path) -> str:
    """Return why no file can be written there; a folder that is not there will be made."""
    if path.is_dir():
        return f"cannot save to {str(path)!r}: it is a folder"
    there = next(folder for folder in path.absolute().parents if folder.exists())
    if not there.is_dir():
        return f"cannot save to {str(path)!r}: {str(there)!r} is a file, not a folder"
    target = path if path.exists() else there
    return "" if os.access(target, os.W_OK) else f"cannot save to {str(path)!r}: {str(target)!r} cannot be written to"


def _path(given: str) -> Path:
    return Path(unquoted(given) or "").expanduser()


def _attempt(action: Callable[[], Any]) -> str:
    try:
        action()
    except TensorMagicError as error:
        return str(error)
    except OSError as error:
        return f"cannot write to {str(error.filename)!r}: {error.strerror}"
    return ""


def _show_figure(report: Report, kind: str) -> None:
    """Show a figure by its mimetype alone: plotly's own display would put all of plotly.js into the notebook."""
    from tensormagic.views.page import files

    figure = json.loads(report.figure(kind).to_json())
    display({"application/vnd.plotly.v1+json": figure, "text/plain": files.bundle(report)["text/plain"]}, raw=True)


def _save(report: Report, given: str, *, slide: bool) -> None:
    path = _path(given)
    report.save(path, slide=slide and api.form_of(path) == "html")
    print(f"saved {path}")  # noqa: T201  (what was done, in one line)


def install_formatters(shell: Any) -> Callable[[], None]:
    """Make reports show themselves as the value of a cell; returns what undoes it."""
    formatter = shell.display_formatter.mimebundle_formatter
    formatter.for_type_by_name(*REPORT, bundle)
    return functools.partial(formatter.pop, ".".join(REPORT), None)
