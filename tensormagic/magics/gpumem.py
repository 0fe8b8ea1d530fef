"""``%gpumem [NAMES]``: where the memory is, what it is for, and who holds it."""

from __future__ import annotations

import functools
from typing import Any

from IPython.core.error import UsageError

from tensormagic import api
from tensormagic.errors import TensorMagicError
from tensormagic.magics import freeing, gpumem_cell
from tensormagic.magics.arguments import Parser, expressions, make_parser, output_of, print_help
from tensormagic.magics.cell import cell_number
from tensormagic.magics.display import deliver
from tensormagic.magics.names import path_of, value_of
from tensormagic.magics.snapshots import read_snapshot
from tensormagic.reports import MemoryReport

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
    freeing.add_options(made)
    return made


def run(shell: Any, line: str) -> None:
    """Show where the memory is that is alive, or that to which the names on ``line`` lead.

    Raises:
        UsageError: for an unknown option, an unknown name, or a device that torch does not know;
            for options that do not go together.
    """
    __tracebackhide__ = True
    options = parser().parse_line(line)
    if options.help:
        print_help(parser(), gpumem_cell.parser())  # a cell magic without a cell is refused by IPython, with --help too
        return
    if options.free or options.yes:
        freeing.run(shell, options)
        return
    output, asked = output_of(options), expressions(options.expression)
    if options.snapshot is not None:
        if options.device:
            raise UsageError("--snapshot shows all devices of the file: leave out --device")
        deliver(shell, read_snapshot(shell, options.snapshot, asked), output)
        return
    numbered = functools.partial(cell_number, shell)
    only = {path_of(expression): value_of(shell, expression) for expression in asked}
    refused = ""
    try:
        report = api.memory(shell.user_ns, only=only or None, devices=options.device, cell_number=numbered)
    except TensorMagicError as error:
        refused = str(error)
    if refused:  # raised here, not above: the first error's frames would keep what `only` holds
        raise UsageError(refused)
    deliver(shell, report, output)
