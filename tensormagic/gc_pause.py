"""Python's search for reference cycles waits while something large is built that has none.

The search starts by itself after so many new objects, and then goes through all that are young, from time to time
through all there are. While a report of a hundred thousand nodes is built or drawn nothing is to be found, and looking
took a quarter of the time. What is not needed any more is freed at once as ever: that is done by counting references.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """Let no search for cycles begin until the block ends; may be nested.

    Only on the main thread, and only around code of this package: there nothing of the user's can run in between,
    which might switch the search off for itself, ask whether it is on, or fork. On another thread, as that of a live
    panel is, the user's code goes on meanwhile, and nothing changes.
    """
    if threading.current_thread() is not threading.main_thread() or not gc.isenabled():
        yield
        return
    try:
        gc.disable()
        yield
    finally:
        gc.enable()
