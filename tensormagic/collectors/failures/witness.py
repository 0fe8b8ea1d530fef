"""A function mode that only passes calls on, so that the one that fails can be read from the exception's traceback.

It keeps nothing and looks at nothing: a call costs what an empty mode costs. Its frame in the traceback of an exception
still holds the function and the arguments; `failing_call` reads them there.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import CodeType
from typing import Any

from tensormagic.collectors.calls.forward import ForwardRecorder
from tensormagic.collectors.failures.failures import Surroundings, failure_of
from tensormagic.collectors.hooks.capturing import Captures, Return, kept_compiled
from tensormagic.collectors.hooks.followed_run import FollowedRun
from tensormagic.collectors.hooks.modes import TransparentMode
from tensormagic.collectors.hooks.undoing import Undoing
from tensormagic.collectors.where.caller import Callers, calling_frame
from tensormagic.reports import Cell, FailureReport


class PassthroughMode(TransparentMode):
    """Makes every call as its own line would."""

    def __init__(self) -> None:
        super().__init__()
        self._callers = Callers()

    def __torch_function__(
        self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Make the call."""
        return self._callers.standing_in_for(calling_frame(sys._getframe(1)))(func, args, kwargs)

    def leave_alone(self) -> Return | None:
        """Leave while torch writes down what runs: see `Captures`."""
        return self.step_back if self.step_aside() else None


MODE_CALLS: frozenset[CodeType] = frozenset(
    mode.__torch_function__.__code__ for mode in (PassthroughMode, ForwardRecorder)
)  # fmt: skip


class Explainer(FollowedRun):
    """Reads the exception that ends what runs between `start` and `stop`.

    Args:
        namespace: Where names are looked up, besides the functions that were running.

    Attributes:
        found: What is known of the call that torch refused; None where there was none.
    """

    used_before = "this was used before; make a new one with tensormagic.explain()"

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        super().__init__(Cell("", None, ()))
        self._around = Surroundings(namespace, None, MODE_CALLS)
        self.found: FailureReport | None = None

    def _enter_run(self, undoing: Undoing) -> None:
        mode = PassthroughMode()
        undoing.enter_context(mode)
        undoing.enter_context(kept_compiled(mode))
        undoing.enter_context(Captures(mode.leave_alone))

    def _explain_error(self, error: BaseException) -> None:
        self.found = failure_of(error, self._around)

    def report(self) -> FailureReport | None:
        """Return what is known of the call that torch refused; None where there was none."""
        return self.found
