"""Makes the first panel of a notebook as quick as the second: what it needs is imported after ``%load_ext`` came back.

Loading imports next to nothing. The rest is done by a thread that ends by itself, while the user reads or types; in a
kernel alone, since a terminal has no panel. A cell that uses something before the thread is there imports it itself, or
waits for the one module that the thread has begun: that is what Python's import locks do. The thread is not alive
while the process forks.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from importlib import import_module

from tensormagic.background import Background
from tensormagic.magics.about import FILES

DELAY = 0.2  # seconds after loading: the cell that loads is answered first

# In this order. First the packages that import all their modules: two threads of which one begins such a package and
# the other a module inside can refuse each other (Python ends the wait of the one in the package), and so it is never
# the cell's import that fails.
_PACKAGES = (
    "reports", "diagnoses", "diagnoses.mismatches", "comparisons", "collectors.kinds", "views",
)  # fmt: skip
_OF_TENSOR = (
    "api.looking", "collectors.tensors.tensor", "collectors.tensors.picture", "collectors.tensors.arrays",
    "collectors.aliasing.copies", "collectors.aliasing.expression",
    "views.page.files", "views.page.terminal", "views.to_text",
    "views.to_html", "views.to_svg", "views.panels.tensor", "views.page.figures", "magics.tensor",
)  # fmt: skip
_OF_TRACE = (
    "magics.tracegrad", "api.running", "collectors.runs.run", "collectors.runs.trace", "collectors.training.training",
    "collectors.training.updates", "collectors.detachment.detachment_log",
    "collectors.autograd_errors.failed_backward", "views.panels.trace", "views.to_text",
)  # fmt: skip
NEEDED = (*_PACKAGES, *_OF_TENSOR, *_OF_TRACE, "views.page.live", *(f"magics.{name}" for name in FILES))


def preload_soon(*, delay: float = DELAY) -> Callable[[], object]:
    """Begin to import after a moment; returns what calls it off, and waits for the module that has begun."""
    thread = Background(_Preload(delay), "tensormagic-preload")
    thread.start()
    return thread.stop


class _Preload:
    """Imports one module after another, until there is no more, one cannot be had, or it is called off.

    Called again, after the process has forked, it goes on where it was; after a moment again, since many forks may
    follow one another.
    """

    def __init__(self, delay: float) -> None:
        self._delay = delay
        self._missing = [f"tensormagic.{name}" for name in reversed(NEEDED)]

    def __call__(self, off: threading.Event) -> None:
        if off.wait(self._delay):
            return
        with contextlib.suppress(Exception):  # what is missing is reported by the first panel
            while self._missing:
                import_module(self._missing[-1])
                self._missing.pop()
                if off.is_set():
                    return
            from tensormagic.views.page import live

            live.preload()
