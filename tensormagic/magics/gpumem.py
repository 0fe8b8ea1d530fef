"""``%gpumem [NAMES]``: where the memory is, what it is for, and who holds it."""

from __future__ import annotations

import argparse
import functools
from typing import Any

from IPython.core.error import UsageError

from tensormagic import api
from tensormagic.magics import gpumem_cell
from tensormagic.magics.arguments import Output, Parser, expressions, make_parser, unquoted
from tensormagic.magics.cell import cell_number
from tensormagic.magics.names import path_of, value_of
from tensormagic.reports import MemoryReport, Report

NAME = "%gpumem"


def parser() -> Parser:
    """Return the parser of ``%gpumem``; its help is the magic's help."""
    made = make_parser(
        NAME,
        "Show what is using memory, on every device: each live storage once, with purpose, name and owner.",
        MemoryReport,
    )
    made.add_argument("expression", nargs="*", help="show only memory reachable from these: net  optimizer  losses")
    made.add_argument(
        "--device", action="append", metavar="NAME", help="show only this device: cpu, cuda, cuda:1; can be repeated"
    )
    made.add_argument(
        "--snapshot", metavar="FILE", help="show a CUDA memory snapshot that torch.cuda.memory._dump_snapshot wrote"
    )
    made.add_argument(
        "--free", action="store_true",
        help="list memory kept only by outputs (Out, _) and the last error; your own names stay",
    )  # fmt: skip
    made.add_argument("--yes", action="store_true", help="with --free: release it, and show what was freed")
    made.also = (gpumem_cell.parser(),)
    return made


def report(shell: Any, options: argparse.Namespace, _output: Output) -> Report:
    """Return where the memory is that is alive, or that which the names on the line lead to."""
    __tracebackhide__ = True
    if options.free or options.yes:
        return _freed(shell, options)
    asked, numbered = expressions(options.expression), functools.partial(cell_number, shell)
    if options.snapshot is not None:
        if options.device:
            raise UsageError("--snapshot shows all devices of the file: leave out --device")
        if asked:
            raise UsageError(f"--snapshot shows a file without names: leave out {', '.join(asked)}")
        return api.read_snapshot(unquoted(options.snapshot) or "", cell_number=numbered)
    only = {path_of(expression): value_of(shell, expression) for expression in asked}
    return api.memory(shell.user_ns, only=only or None, devices=options.device, cell_number=numbered)


def _freed(shell: Any, options: argparse.Namespace) -> Report:
    """List what only outputs and the last error keep, or let go of it."""
    __tracebackhide__ = True
    if not options.free:
        raise UsageError("--yes releases what --free lists: %gpumem --free --yes")
    if options.expression or options.device or options.snapshot:
        raise UsageError("--free only releases outputs and the last error; use del for your own names")
    return api.free_history(shell.user_ns, drop=options.yes)
