"""What did not fit in a call that torch refused, worked out from its operands and from what torch said.

A message of torch names numbers; whose they are is found among the operands, and what is not found there is not
claimed. One table of what torch says, a family a file; where none of its rows fits, the sizes, dtypes and devices of
the operands are held against the rule of the function itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tensormagic.diagnoses.mismatches import (
    arguments,
    broadcasting,
    convolution,
    devices,
    dimensions,
    dtypes,
    index_shapes,
    indexing,
    joining,
    losses,
    particular,
    products,
    recurrent,
    views,
    wrong_kinds,
)
from tensormagic.diagnoses.mismatches.call import Call
from tensormagic.diagnoses.mismatches.unknown import by_function
from tensormagic.reports import FailureReport, Mismatch

Check = Callable[[Call, re.Match[str]], Mismatch | None]

# In this order, as far as two rows fit one message: those that ask for a certain function stand first.
_FAMILIES = (
    recurrent, devices, dtypes, losses, convolution, products, joining, views, broadcasting, index_shapes,
    indexing, particular, dimensions, wrong_kinds, arguments,
)  # fmt: skip
# Compiled where they are first needed, after an error: two hundred at once would be felt in every start.
_TABLE: tuple[tuple[str, Check], ...] = tuple(row for family in _FAMILIES for row in family.MESSAGES)


def mismatch_of(report: FailureReport) -> Mismatch | None:
    """Return what did not fit in a failed call; None where that is not what was wrong, or cannot be told.

    Args:
        report: The failed call; its own ``mismatch`` is not looked at.
    """
    call = Call(report)
    for pattern, check in _TABLE:
        found = re.search(pattern, report.error, re.DOTALL)
        explained = _checked(check, call, found) if found else None
        if explained is not None:
            return explained
    return by_function(call)


def _checked(check: Check, call: Call, found: re.Match[str]) -> Mismatch | None:
    """Return what a check explains; nothing where the operands lack the very dimensions that the message is about."""
    try:
        return check(call, found)
    except (IndexError, ZeroDivisionError):
        return None
