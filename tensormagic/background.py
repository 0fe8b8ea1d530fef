"""Threads of this package's own, none of which is alive while the process forks.

A forked process has only the thread that forked. What the others held stays held in it for ever: an import that a
thread had begun leaves Python's lock of that module taken, and whatever the child imports next never comes back. Data
loaders' workers, `notebook_launcher` and every ``multiprocessing.Process`` of the method "fork" are made so.

So each thread is ended before a fork, and goes on in the parent after it, in a new one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

LONGEST_WAIT = 10.0  # seconds that a fork waits for one thread: it may itself wait for what the forking thread holds

_ALL: set[Background] = set()  # that run, or go on after the fork that is being made


class Background:
    """A thread that ends when it is asked to.

    Args:
        run: What it does. It is given an event, and returns soon after that is set. It is called again, from the
            beginning, in the parent of a fork.
        name: The thread's.
    """

    def __init__(self, run: Callable[[threading.Event], None], name: str) -> None:
        self._run, self._name = run, name
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._goes_on = False
        self.left_behind = False  # whether this is a forked process, in which the thread that ran is not

    def start(self) -> None:
        """Begin."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(self._stopping,), name=self._name, daemon=True)
        # At a breakpoint debugpy, so Jupyter's debugger, stops all threads but those that say this, as ipykernel's do:
        # a live panel shows what has happened up to the line at which its cell waits.
        vars(self._thread).update(pydev_do_not_trace=True, is_pydev_daemon_thread=True)
        _ALL.add(self)
        self._thread.start()

    def _work(self, stopping: threading.Event) -> None:
        try:
            self._run(stopping)
        finally:
            if not stopping.is_set():
                _ALL.discard(self)

    def stop(self, seconds: float | None = None) -> bool:
        """Ask it to end, and wait until it has; False where it did not within so many seconds."""
        self._stopping.set()
        self._goes_on = False
        _ALL.discard(self)
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(seconds)
        return not thread.is_alive()

    def pause(self) -> None:
        """End before a fork what has not ended by itself."""
        thread = self._thread
        if thread is None or not thread.is_alive() or self._stopping.is_set() or thread is threading.current_thread():
            return
        self.stop(LONGEST_WAIT)
        self._goes_on = True
        _ALL.add(self)

    def go_on(self) -> None:
        """Go on in the process that forked."""
        if self._goes_on:
            self._goes_on = False
            self.start()

    def forget(self) -> None:
        """Be nothing in a process that was forked."""
        self.left_behind |= self._goes_on
        self._thread, self._goes_on = None, False
        _ALL.discard(self)


def _each(action: Callable[[Background], None]) -> Callable[[], None]:
    def act() -> None:
        for background in list(_ALL):
            action(background)

    return act


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(
        before=_each(Background.pause), after_in_parent=_each(Background.go_on), after_in_child=_each(Background.forget)
    )
