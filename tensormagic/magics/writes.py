"""``%%aliases``: run a cell and say, line by line, whose elements its in-place writes change."""

from __future__ import annotations

import argparse
import functools
from typing import Any

from tensormagic import api
from tensormagic.magics.arguments import Output, Parser, make_parser
from tensormagic.magics.cell import cell_number
from tensormagic.magics.frames import Explained, Followed, reported
from tensormagic.reports import Cell, WritesReport

NAME = "%%aliases"


def parser() -> Parser:
    """Return the parser of ``%%aliases``; its help is the magic's help."""
    made = make_parser(
        NAME,
        "Run the cell and show, at the line of every in-place write, which other names it changes, and whether it "
        "reads memory it is overwriting.",
        WritesReport,
    )
    made.instead = "the cell with all that its writes changed"
    return made


def follow(shell: Any, _live: str, _options: argparse.Namespace, output: Output, cell: Cell) -> Followed:
    """Follow the writes of a cell."""
    watch = api.WriteWatch(shell.user_ns, cell, cell_number=functools.partial(cell_number, shell))
    return watch, reported(shell, watch, output), Explained(shell)
