"""Makes the first live panel as quick as the second: what it needs is imported as soon as the extension is loaded.

``%load_ext`` comes back first. The rest is done by a thread that ends by itself, while the person reads or types; in a
kernel alone, since a terminal has no panel.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

DELAY = 0.2  # seconds after loading: the cell that loads is answered first


def warm_up_soon(*, delay: float = DELAY) -> Callable[[], None]:
    """Begin to warm up after a moment; returns what calls it off, and waits for what has begun."""
    off = threading.Event()
    thread = threading.Thread(target=_warm_up, args=(off, delay), name="tensormagic-warming", daemon=True)
    thread.start()

    def call_off() -> None:
        off.set()
        thread.join()

    return call_off


def _warm_up(off: threading.Event, delay: float) -> None:
    if off.wait(delay):
        return
    with contextlib.suppress(Exception):  # what is missing is told by the first panel
        from tensormagic import api
        from tensormagic.renderers import live

        api.warm_up()
        live.warm_up()
