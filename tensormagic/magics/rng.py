"""``%rng``: every random generator; ``%%rng``: run a cell and say which call on which line drew from which of them."""

from __future__ import annotations

import argparse
import functools
from typing import Any

from tensormagic import api
from tensormagic.magics.arguments import Output, Parser, make_parser
from tensormagic.magics.cell import cell_number
from tensormagic.magics.display import check
from tensormagic.magics.frames import Explained, Followed, reported
from tensormagic.magics.names import own_namespace
from tensormagic.reports import Cell, RngReport

NAME = "%rng"


def parser() -> Parser:
    """Return the parser of ``%rng`` and ``%%rng``; its help is the magic's help."""
    made = make_parser(
        NAME,
        "Show every random generator: its seed, and how many numbers it has drawn. %%rng at the top of a cell: which "
        "call on which line draws from which generator.",
        RngReport,
    )
    made.instead = "the generators as a table"
    return made


def report(shell: Any, _options: argparse.Namespace, output: Output) -> RngReport:
    """Return the generators."""
    __tracebackhide__ = True
    check(output)
    return api.rng(own_namespace(shell))


def follow(shell: Any, _live: str, _options: argparse.Namespace, output: Output, cell: Cell) -> Followed:
    """Follow the draws of a cell."""
    watch = api.DrawWatch(shell.user_ns, cell, cell_number=functools.partial(cell_number, shell))
    return watch, reported(shell, watch, output), Explained(shell)
