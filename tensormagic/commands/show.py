"""``python -m tensormagic show run.json``: a saved report, in the terminal, as another file, or in the browser."""

from __future__ import annotations

import argparse
import tempfile
import webbrowser
from pathlib import Path

from tensormagic import api

HELP = "show a report that was saved as .json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("report", type=Path, help="a .json file from report.save or --save")
    parser.add_argument(
        "--save", action="append", default=[], type=Path, metavar="FILE",
        help="write it as .html, .svg or .txt; can be repeated",
    )  # fmt: skip
    parser.add_argument("--browser", action="store_true", help="open it as a page in the browser")


def run(given: argparse.Namespace) -> int:
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
        api.print_text(report)
    return 0
