"""``%gpumem --snapshot FILE``: what a CUDA memory snapshot holds, read without running anything that is in it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from IPython.core.error import UsageError

from tensormagic import api
from tensormagic.errors import SnapshotError
from tensormagic.magics.arguments import unquoted
from tensormagic.magics.cell import cell_number
from tensormagic.reports import SnapshotReport


def read_snapshot(shell: Any, path: str, names: Sequence[str] = ()) -> SnapshotReport:
    """Return the snapshot in a file; lines of this notebook's cells are told by their numbers.

    Args:
        shell: The IPython shell.
        path: The file, in quotes or not.
        names: What else was asked for.

    Raises:
        UsageError: where it is none, or more than plain data, the message says what; or where names were given too.
    """
    __tracebackhide__ = True
    if names:
        raise UsageError(f"--snapshot shows a file without names: leave out {', '.join(names)}")
    try:
        return api.read_snapshot(unquoted(path) or "", cell_number=functools.partial(cell_number, shell))
    except SnapshotError as error:
        raise UsageError(str(error)) from None
