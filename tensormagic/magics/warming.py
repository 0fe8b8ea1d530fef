"""Makes the first panel of a notebook as quick as the second: what it needs is imported after ``%load_ext`` came back.

Loading imports next to nothing. The rest is done by a thread that ends by itself, while the person reads or types; in a
kernel alone, since a terminal has no panel. A cell that uses something before the thread is there imports it itself, or
waits for the one module that the thread has begun: that is what Python's import locks do.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from importlib import import_module

from tensormagic.magics.about import MAGICS

DELAY = 0.2  # seconds after loading: the cell that loads is answered first

# In this order. First the packages that import all their modules: two threads of which one begins such a package and
# the other a module inside can refuse each other (Python ends the wait of the one in the package), and so it is never
# the cell's import that fails.
_PACKAGES = (
    "reports", "diagnoses", "diagnoses.mismatches", "comparisons", "collectors.kinds", "renderers",
)  # fmt: skip
_OF_TENSOR = (
    "api.looking", "collectors.tensors.tensor", "collectors.tensors.picture", "collectors.memory.arrays",
    "collectors.memory.shown_slice", "collectors.aliasing.copies", "collectors.names.expression", "renderers.bundles",
    "renderers.files", "renderers.terminal.terminal_screen", "renderers.tensor.tensor_text",
    "renderers.tensor.tensor_html", "renderers.figures", "magics.tensor",
)  # fmt: skip
_OF_TRACE = (
    "magics.tracegrad", "api.running", "collectors.tracing.paced", "renderers.trace.trace_text",
    "renderers.trace.trace_html",
)  # fmt: skip
NEEDED = (*_PACKAGES, *_OF_TENSOR, *_OF_TRACE, "renderers.live", *(f"magics.{name}" for name in MAGICS))


def warm_up_soon(*, delay: float = DELAY) -> Callable[[], None]:
    """Begin to warm up after a moment; returns what calls it off, and waits for the module that has begun."""
    off = threading.Event()
    thread = threading.Thread(target=_warm_up, args=(off, delay), name="tensormagic-warming", daemon=True)
    thread.start()

    def call_off() -> None:
        off.set()
        thread.join()

    return call_off


def _warm_up(off: threading.Event, delay: float) -> None:
    """Import one module after another, until there is no more, one cannot be had, or it is called off."""
    if off.wait(delay):
        return
    with contextlib.suppress(Exception):  # what is missing is told by the first panel
        for name in NEEDED:
            import_module(f"tensormagic.{name}")
            if off.is_set():
                return
        from tensormagic.renderers import live

        live.warm_up()
