"""``python -m tensormagic``: what a person does outside a notebook. A command parses, calls ``api``, prints.

To add a command, write a module with ``NAME``, ``HELP``, ``add_arguments(parser)`` and ``run(given) -> int``, and add a
line to ``COMMANDS``.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module, metadata

from tensormagic.errors import TensorMagicError

COMMANDS = ("doctor", "demo", "examples", "show", "ranks", "help")


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands; its help is the command's help."""
    made = argparse.ArgumentParser(prog="python -m tensormagic", description="PyTorch code that explains itself.")
    made.add_argument("--version", action="store_true", help="print the version")
    commands = made.add_subparsers(dest="command", metavar="COMMAND")
    for name in COMMANDS:
        module = import_module(f"tensormagic.commands.{name}")
        module.add_arguments(commands.add_parser(name, help=module.HELP, description=module.HELP))
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name.

    Args:
        arguments: By default those of the process.

    Returns:
        The exit status: 0 where all went well.
    """
    commands = parser()
    given = commands.parse_args(arguments)
    if given.version:
        print(f"tensormagic {metadata.version('tensormagic')}")
        return 0
    if given.command is None:
        commands.print_help()
        return 0
    try:
        status: int = import_module(f"tensormagic.commands.{given.command}").run(given)
    except TensorMagicError as error:
        print(f"tensormagic: {error}")
        return 1
    except BrokenPipeError:  # `… | head`: nobody reads on, and that is no fault
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status
