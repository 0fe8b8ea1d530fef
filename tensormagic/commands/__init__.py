"""``python -m tensormagic``: what a user does outside a notebook. A command parses, calls ``api``, prints.

To add a command, write a `Command` into the table ``COMMANDS`` of a module of this package, and its name and module
into the table below.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module, metadata

from tensormagic.errors import TensorMagicError

COMMANDS = {
    "doctor": "doctor", "demo": "demo", "examples": "demo", "show": "printed", "ranks": "printed", "help": "printed",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Command:
    """A command."""

    help: str  # What it does, in a sentence.
    # Adds what it takes to its parser; None where that is nothing.
    add_arguments: Callable[[argparse.ArgumentParser], None] | None
    run: Callable[[argparse.Namespace], int]  # Runs it and returns the exit status.


def command(name: str) -> Command:
    """Import a command: one of `COMMANDS`."""
    found: Command = import_module(f"tensormagic.commands.{COMMANDS[name]}").COMMANDS[name]
    return found


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands; its help is the command's help."""
    made = argparse.ArgumentParser(prog="python -m tensormagic", description="PyTorch code that explains itself.")
    made.add_argument("--version", action="store_true", help="print the version")
    commands = made.add_subparsers(dest="command", metavar="COMMAND")
    for name in COMMANDS:
        described = command(name)
        own = commands.add_parser(name, help=described.help, description=described.help)
        if described.add_arguments is not None:
            described.add_arguments(own)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments, by default those of the process, name; return the exit status."""
    commands = parser()
    given = commands.parse_args(arguments)
    if given.version:
        print(f"tensormagic {metadata.version('tensormagic')}")
        return 0
    if given.command is None:
        commands.print_help()
        return 0
    try:
        return command(given.command).run(given)
    except TensorMagicError as error:
        print(f"tensormagic: {error}")
        return 1
    except BrokenPipeError:  # `… | head`: the reader has closed the pipe, which is no error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
