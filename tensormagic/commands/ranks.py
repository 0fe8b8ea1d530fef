"""``python -m tensormagic ranks runs/a``: the ranks of a run, held against each other, also while they run."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from tensormagic import api

HELP = "compare the ranks of a run: a folder that they wrote with tensormagic.trace(ranks=...)"
_SECONDS = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("folder", type=Path, help="the folder that every rank was given")
    parser.add_argument(
        "--save", action="append", default=[], type=Path, metavar="FILE",
        help="write it as .html .svg .txt or .json; may be given several times",
    )  # fmt: skip
    parser.add_argument("--watch", action="store_true", help="refresh every two seconds, until all ranks have ended")


def run(given: argparse.Namespace) -> int:
    """Show the ranks; the exit status is 1 where an error was found, for scripts.

    Raises:
        ReportFormatError: where the folder holds nothing that a rank wrote.
        TensorMagicError: where a file cannot be written in that form.
    """
    report = api.ranks(given.folder)
    while given.watch and any(one.state == "running" for one in report.ranks):
        api.print_text(report)
        time.sleep(_SECONDS)
        report = api.ranks(given.folder)
    for path in given.save:
        report.save(path)
        print(f"saved {path}")
    if given.watch or not given.save:
        api.print_text(report)
    return int(any(finding.severity == "error" for finding in report.findings))
