"""Explaining errors where they happen: the call that torch refused, what it was given, and what would work."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from tensormagic.api.running import CellNumber, _Run
from tensormagic.api.watching import diagnosed
from tensormagic.collectors.requirements import require_torch
from tensormagic.reports import FailureReport


class Explanation(_Run[Any]):
    """What a ``with`` block ran into: ``with tensormagic.explain() as explained: …``, then ``explained.report``.

    The exception goes on unchanged. While the block runs, one function mode that only passes calls on is on torch's
    stack.
    """

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        from tensormagic.collectors.failures.failures import FailureListener
        from tensormagic.collectors.runs.run import Run

        self._follower = Run(failure=FailureListener(namespace))

    @property
    def report(self) -> FailureReport | None:
        """The call that torch refused, with what is wrong with it; None where none was refused."""
        found = self._follower.report()
        return None if found is None else diagnosed(found)


def explain(*, namespace: Mapping[str, Any] | None = None) -> Explanation:
    """Return a context manager that explains the error by which torch ends its block.

    Args:
        namespace: Where names are looked up, besides the functions that were running; by default the caller's globals.

    Raises:
        RequirementError: where torch is missing or too old.

    >>> import torch, tensormagic
    >>> try:
    ...     with tensormagic.explain() as explained:
    ...         torch.ones(2, 3) @ torch.ones(4, 5)
    ... except RuntimeError:
    ...     [operand.shape for operand in explained.report.operands]
    [(2, 3), (4, 5)]
    """
    require_torch()
    caller = sys._getframe(1)  # noqa: SLF001  (documented default)
    return Explanation(caller.f_globals if namespace is None else namespace)


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether an exception says that memory ran out: torch's of any device, NumPy's, Python's own."""
    require_torch()
    from tensormagic.collectors.memory.live_memory import out_of_memory_of

    return out_of_memory_of(error) is not None


def explain_error(
    error: BaseException,
    *,
    namespace: Mapping[str, Any] | None = None,
    cell_number: CellNumber | None = None,
    source: str = "",
) -> FailureReport | None:
    """Return what is known of the call that torch refused, from the exception alone; None where it is not torch's.

    Nobody watched when it was raised: operands that were computed in the failing line itself are not known.

    Args:
        error: The exception, with its traceback; it is left as it is, and nothing of it is kept.
        namespace: Where names are looked up, besides the functions that were running.
        cell_number: Gives a cell's execution count from its file name.
        source: The source of the user's innermost code, where Python cannot know it: an expression's.

    Raises:
        RequirementError: where torch is missing or too old.
    """
    require_torch()
    from tensormagic.collectors.failures.failures import MODE_CALLS, Surroundings, failure_of

    found = failure_of(error, Surroundings(namespace or {}, cell_number, MODE_CALLS, source=source))
    return None if found is None else diagnosed(found)
