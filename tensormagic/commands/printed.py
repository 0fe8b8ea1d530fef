"""Commands that print: a saved report, the ranks of a run, a page of the documentation."""

from __future__ import annotations

import argparse
import os
import socket
import tempfile
import time
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import Any

from tensormagic import api
from tensormagic.commands import Command
from tensormagic.errors import UnknownTopicError

_SECONDS = 2.0


def _add_save(parser: argparse.ArgumentParser, forms: str) -> None:
    help_ = f"write it as {forms}; can be repeated"
    parser.add_argument("--save", action="append", default=[], type=Path, metavar="FILE", help=help_)


def _show_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("report", type=Path, help="a .json file from report.save or --save")
    _add_save(parser, ".html, .svg or .txt")
    parser.add_argument("--browser", action="store_true", help="open it as a page in the browser")


def _show(given: argparse.Namespace) -> int:
    """Show the report, where it was asked for.

    Raises:
        ReportFormatError: where the file holds no report.
        TensorMagicError: where it has no such form.
    """
    report = api.load(given.report)
    for path in given.save:
        report.save(path)
        print(f"saved {path}")
    if given.browser:
        page = Path(tempfile.mkdtemp(prefix="tensormagic-")) / f"{given.report.stem}.html"
        report.save(page)
        webbrowser.open(page.as_uri())
        print(f"opened {page}")
    elif not given.save:
        api.print_report(report)
    return 0


def _ranks_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="the folder that every rank was given")
    _add_save(parser, ".html, .svg, .txt or .json")
    parser.add_argument("--rank", type=int, metavar="N", help="show the full report of that rank, where it saved one")
    parser.add_argument("--watch", action="store_true", help="refresh every two seconds, while a rank still runs")


def _ranks(given: argparse.Namespace) -> int:
    """Show the ranks; the exit status is 1 where an error was found, for scripts.

    Raises:
        ReportFormatError: where the folder holds nothing that a rank wrote.
        TensorMagicError: where a file cannot be written in that form, or that rank saved no full report.
    """
    report: Any = api.ranks(given.folder)
    while given.watch and any(map(_still_runs, report.ranks)):
        api.print_report(report)
        time.sleep(_SECONDS)
        report = api.ranks(given.folder)
    if given.rank is not None:
        report = api.rank_report(report, given.rank)
    for path in given.save:
        report.save(path)
        print(f"saved {path}")
    if given.watch or not given.save:
        api.print_report(report)
    return int(any(finding.severity == "error" for finding in report.findings))


def _still_runs(one: Any) -> bool:
    """Return whether a rank has not said that it ended; of one on this machine, also whether its process is there."""
    if one.state == "running" and os.name == "posix" and one.host == socket.gethostname():
        with suppress(PermissionError):
            try:
                os.kill(one.pid, 0)
            except ProcessLookupError:
                return False
    return bool(one.state == "running")


def _help_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", nargs="*", help="a page: tracegrad, TM302, how it works")


def _help(given: argparse.Namespace) -> int:
    """Show the page, list the topics, or list the pages that hold the words.

    Raises:
        UnknownTopicError: where no page does; says which topics are near.
    """
    asked, command = " ".join(given.topic), "python -m tensormagic help"
    if not asked:
        print(api.help_index())
        return 0
    try:
        page = api.help_page(asked, command)
    except UnknownTopicError:
        if not (found := api.help_found(asked, command)):
            raise
        print(found)
    else:
        api.print_markdown(page)
    return 0


COMMANDS = {
    "show": Command("show a report that was saved as .json", _show_arguments, _show),
    "ranks": Command(
        "compare the ranks of a run: a folder that they wrote with tensormagic.trace(ranks=...)",
        _ranks_arguments,
        _ranks,
    ),
    "help": Command(
        "show a page of the documentation: a magic, a finding, a recipe; without a topic, list the pages",
        _help_arguments,
        _help,
    ),
}
