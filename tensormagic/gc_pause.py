"""Python's search for reference cycles waits while something large is built that has none.

The search starts by itself after so many new objects, and then goes through all that are young, from time to time
through all there are. While a report of a hundred thousand nodes is built or drawn nothing is to be found, and looking
took a quarter of the time. What is not needed any more is freed at once as ever: that is done by counting references.
"""

from __future__ import annotations

import gc
import threading


class _GcPaused:
    """``with garbage_waits:`` no search for cycles begins; may be nested.

    Only on the main thread, and only around code of this package: there nothing of the person's can run in between,
    which might switch the search off for itself, ask whether it is on, or fork. On another thread, as that of a live
    panel is, the person's code goes on meanwhile, and nothing changes.
    """

    __slots__ = ("_inside", "_was_enabled")

    def __init__(self) -> None:
        self._inside, self._was_enabled = 0, False

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        if not self._inside:
            self._was_enabled = gc.isenabled()
            gc.disable()
        self._inside += 1

    def __exit__(self, *_: object) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self._inside -= 1
        if not self._inside and self._was_enabled:
            gc.enable()


gc_paused = _GcPaused()
