"""How a run begins and ends, step by step, and what a fork does to it."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from threading import get_ident
from types import FrameType
from typing import Any
from weakref import ref

# How a run begins and ends: by steps, each registered before it takes effect, and undone whatever comes.
# Ctrl-C becomes an exception wherever Python's code stands, and what ends has to end to the last step: a mode that
# stays on torch's stack makes every later cell another one. So a step may be undone before it took effect, and twice;
# one that was interrupted while it was undone is undone once more. Besides, signals wait for the few microseconds that
# it takes, on the main thread, where alone Python handles them, and come after it.

# What the functions of these names in `signal` are but for words for numbers, which take twenty times as long.
getsignal: Callable[[int], Any] = _signal.getsignal
set_handler: Callable[[int, Any], Any] = _signal.signal
_SIGNALS = (signal.SIGINT, *map(int, sorted(signal.valid_signals() - {signal.SIGINT})))


class SignalsWait:
    """``with SignalsWait():`` handlers that are Python functions wait; they are called at the end."""

    def __init__(self) -> None:
        self._theirs: list[tuple[int, Any]] = []
        self._came: list[int] = []

    def __enter__(self) -> None:
        if get_ident() != threading.main_thread().ident:
            return
        try:
            held = [number for number, _ in self._theirs]
            for number in _SIGNALS:
                handler = getsignal(number)
                waits = isinstance(getattr(handler, "__self__", None), SignalsWait)
                if callable(handler) and number not in held and not waits:
                    self._theirs.append((number, handler))
                    set_handler(number, self._note)
        except BaseException:
            self.__exit__()
            raise

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._came.append(number)

    def __exit__(self, *_: object) -> None:
        while self._theirs:
            number, handler = self._theirs[-1]
            if getsignal(number) == self._note:
                set_handler(number, handler)
            self._theirs.pop()
        while self._came:
            signal.raise_signal(self._came.pop())


class UndoStack:
    """The steps by which a run began; ``with undoing:`` begins it, and what fails or is interrupted there is undone.

    A step that belongs to its thread (``of_thread``), as modes do, is left to that thread where another one ends the
    run: it is undone there when the next run begins, and what runs there until then is followed no more (``silence``).
    """

    def __init__(self) -> None:
        self._undos: list[tuple[Callable[[], object], bool]] = []
        self._thread = 0
        self._signals = SignalsWait()

    def __enter__(self) -> UndoStack:
        self._thread = get_ident()
        for undo in _left.pop(self._thread, ()):
            undo()
        self._signals.__enter__()
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            self.close()
            return
        try:
            self._signals.__exit__()
        except BaseException:
            self.close()
            raise

    def callback(self, undo: Callable[..., object], *arguments: Any, of_thread: bool = False) -> None:
        """Register what undoes a step that comes now; it may be called before that took effect, and twice."""
        self._undos.append((partial(undo, *arguments), of_thread))

    def enter_context(self, step: AbstractContextManager[Any]) -> None:
        """Make a step whose end can come before its beginning, and twice."""
        if of_thread := getattr(step, "of_thread", False):
            self.callback(step.silence)  # type: ignore[attr-defined]
        self.callback(step.__exit__, None, None, None, of_thread=of_thread)
        step.__enter__()

    def close(self) -> None:
        """Undo all steps, the last one first; what is raised meanwhile is raised after it."""
        came: list[BaseException] = []
        if self._undos:
            self._signals.__enter__()
        while self._undos:
            undo, of_thread = self._undos[-1]
            try:
                if of_thread and get_ident() != self._thread:
                    _left.setdefault(self._thread, []).append(undo)
                else:
                    undo()
            except BaseException as error:
                came.append(error)
                if not isinstance(error, Exception):
                    continue  # it was interrupted: once more
            self._undos.pop()
        self._signals.__exit__()
        if came:
            raise came[0]


_left: dict[int, list[Callable[[], object]]] = {}  # by thread, what another thread could not undo


# Ends traces in processes that were forked from a traced one, as a data loader's workers are: with the tracer's mode on
# the stack what they run would be slower, and tracebacks that they send back as text would hold the tracer's frames.


_running: dict[int, ref[Any]] = {}


def abandon_in_children(trace: Any) -> None:
    """End ``trace``, by its ``abandon``, in every process that is forked from this one, as long as it lives."""
    _running[id(trace)] = ref(trace, partial(_running.pop, id(trace)))  # C alone: no interrupt is lost


_forks: list[None] = []


def forks() -> int:
    """Return how many processes were forked from this one since tracing was first used."""
    return len(_forks)


def _abandon_all() -> None:
    for reference in list(_running.values()):
        if (trace := reference()) is not None:
            trace.abandon()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_abandon_all, after_in_parent=partial(_forks.append, None))
