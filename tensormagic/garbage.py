"""Python's search for reference cycles waits while something large is built that has none.

The search starts by itself after so many new objects, and then goes through all that are young, from time to time
through all there are. While a report of a hundred thousand nodes is built or drawn nothing is to be found, and looking
took a quarter of the time. What is not needed any more is freed at once as ever: that is done by counting references.
"""

from __future__ import annotations

import gc
from threading import Lock


class _GarbageWaits:
    """``with garbage_waits:`` no search for cycles begins; may be nested, and used by several threads at once.

    Only around code of this package: a person's own ``gc.disable()`` in between would not last.
    """

    __slots__ = ("_inside", "_lock", "_was_enabled")

    def __init__(self) -> None:
        self._inside, self._was_enabled, self._lock = 0, False, Lock()

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside and self._was_enabled:
                gc.enable()


garbage_waits = _GarbageWaits()
