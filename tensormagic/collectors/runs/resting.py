"""Takes the function mode off torch's stack between traced steps, and brings it back, without disturbing anybody's.

A function mode is popped while its own ``__torch_function__`` runs, and pushed again when that returns; so are the
person's modes that lie above it. Whoever changes the stack in the midst of a call changes a part of it, and what is
pushed afterwards lies in the wrong place: ``with torch.device(...)`` takes the mode away that is on top at its end,
whichever that is, and the mode of ``torch.set_default_device`` has to lie at the bottom. So a change waits until no
mode is in the midst of a call on this thread. A backward begins in Python, where modes are pushed by a function that
torch looks up in `torch.overrides`; for the few microseconds until the change is made, that name is replaced.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from threading import get_ident
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from tensormagic.collectors.calls.forward import ForwardRecorder
from tensormagic.collectors.hooks.unnoticed import active_modes, set_modes

_PUSH = "_push_mode"
_CALL = "__torch_function__"


def _within_a_call(frame: FrameType | None) -> bool:
    """Return whether a function mode's ``__torch_function__`` is running in ``frame`` or above it."""
    while frame is not None:
        code = frame.f_code
        first = code.co_varnames[0] if code.co_name == _CALL and code.co_argcount else None
        if first is not None and isinstance(frame.f_locals.get(first), TorchFunctionMode):
            return True
        frame = frame.f_back
    return False


def _is_default_device(mode: TorchFunctionMode) -> bool:
    """Return whether ``mode`` is what ``torch.set_default_device`` left: that alone looks for itself at the bottom."""
    held = getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None)
    return mode is getattr(held, "device_context", None)


class Calm:
    """Makes one change to this thread's stack of function modes, as soon as no mode is in the midst of a call."""

    def __init__(self) -> None:
        self._undo: Callable[[], None] | None = None

    @property
    def waiting(self) -> bool:
        """Whether a change is still to be made."""
        return self._undo is not None

    def soon(self, change: Callable[[], None]) -> None:
        """Make ``change`` now or as soon as that can be; one that waits already is dropped."""
        self.cancel()
        if not _within_a_call(sys._getframe(1)):
            change()
        else:
            self._wait(change, get_ident())

    def cancel(self) -> None:
        """Drop the change that waits."""
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()

    def _wait(self, change: Callable[[], None], thread: int) -> None:
        original = getattr(torch.overrides, _PUSH)

        def push(mode: Any) -> None:
            original(mode)
            if self._undo is undo and get_ident() == thread and not _within_a_call(sys._getframe(1)):
                self.cancel()
                change()

        def undo() -> None:
            if getattr(torch.overrides, _PUSH) is push:  # else somebody else replaced it meanwhile, and calls ours
                setattr(torch.overrides, _PUSH, original)

        self._undo = undo
        setattr(torch.overrides, _PUSH, push)


class PacedRecorder(ForwardRecorder):
    """A recorder that can leave for as long as it likes.

    Attributes:
        present: Whether it is on the stack, or at a compiled region's door.
        since: The sequence number from which on nodes were seen being made, since it came last.
        companions: Returns what else is to be on while the recorder is; entered and left with it.
    """

    companions: Callable[[], AbstractContextManager[Any]] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._wanted = True
        self._calm = Calm()
        self._with_it = ExitStack()
        self._home = 0
        self._aside = self._left_at_door = self._joined = False
        self.present = False
        self.since = 0

    @staticmethod
    def can_rest() -> bool:
        """Return whether this torch has what is needed to leave."""
        return hasattr(torch.overrides, _PUSH)

    def rest(self) -> None:
        """Leave, as soon as that can be."""
        self._wanted = False
        self._calm.soon(self._settle)

    def resume(self) -> None:
        """Come back, as soon as that can be."""
        self._wanted = True
        self._calm.soon(self._settle)

    def tend(self) -> None:
        """Try once more what still waits: its call may have returned by a way that is not watched."""
        if self._calm.waiting:
            self._calm.soon(self._settle)

    def step_aside(self) -> bool:
        """Leave at the door of a compiled region; there it is not come back to, until the door is passed again."""
        if get_ident() != self._home or self._aside:
            return False
        self._left_at_door = super().step_aside()
        self._aside = True
        return True

    def step_back(self, caller: FrameType | None) -> None:
        """Come back, unless the recorder is to rest by now."""
        self._aside = False
        if self._left_at_door and self._wanted:
            super().step_back(caller)
        else:
            self._left_at_door = False
            self._calm.soon(self._settle)

    def __enter__(self) -> PacedRecorder:
        """Go onto the stack, unless the recorder begins with a rest."""
        self._home = get_ident()
        if self._wanted:
            self._join(active_modes())
        return self

    def __exit__(self, *error: object) -> None:
        """Leave it, wherever on it the mode lies."""
        self._calm.cancel()
        self._wanted = False
        self._settle()

    def _settle(self) -> None:
        """Bring the stack into line with what is wanted. Nothing on it may be in the midst of a call."""
        modes = active_modes()
        there = self in modes
        self.present = self._wanted and (there or self._left_at_door)
        if self._joined and not self._wanted:  # at a door it is not there, but still to be ended
            set_modes([mode for mode in modes if mode is not self])
            self._joined = self._left_at_door = False
            self._unnoticed.__exit__()
            self._with_it.close()
            self.cuts.pause()
            self.autograd.forget()
        elif self._wanted and not there and not self._aside:
            self.origins.begin()
            self._join(modes[:1] if modes and _is_default_device(modes[0]) else [], modes)

    def _join(self, below: list[TorchFunctionMode], modes: list[TorchFunctionMode] | None = None) -> None:
        """Go above ``below``: what the person's code has pushed, it pops from the top."""
        self._joined = True
        self._unnoticed.__enter__()
        if self.companions is not None:
            self._with_it.enter_context(self.companions())
        set_modes([*below, self, *(modes or below)[len(below) :]])
        self.present = True
        self.since = torch.autograd._get_sequence_nr()  # type: ignore[attr-defined]
