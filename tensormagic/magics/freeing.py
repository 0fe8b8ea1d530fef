"""``%gpumem --free [--yes]``: what only outputs and the last error keep, and letting go of it."""

from __future__ import annotations

import argparse
from typing import Any

from IPython.core.error import UsageError

from tensormagic import api
from tensormagic.magics.arguments import Parser, output_of
from tensormagic.magics.display import deliver


def add_options(parser: Parser) -> None:
    """Add ``--free`` and ``--yes`` to a magic's options."""
    parser.add_argument(
        "--free", action="store_true",
        help="list memory kept only by outputs (Out, _) and the last error; your own names stay",
    )  # fmt: skip
    parser.add_argument("--yes", action="store_true", help="with --free: release it, and show what was freed")


def run(shell: Any, options: argparse.Namespace) -> None:
    """List what the history keeps, or let go of it.

    Raises:
        UsageError: where something is asked for that does not go together.
    """
    __tracebackhide__ = True
    if not options.free:
        raise UsageError("--yes releases what --free lists: %gpumem --free --yes")
    if options.expression or options.device or options.snapshot:
        raise UsageError("--free only releases outputs and the last error; use del for your own names")
    deliver(shell, api.free_history(shell.user_ns, drop=options.yes), output_of(options))
