"""What torch is asked of a device that works on while the program goes on: streams, events, capture, room.

Nothing here waits for the device but `Arrival.read` of what has not come. Everybody asks `there`, in whose place tests
put one that takes a CPU for such a device and counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch


class Arrival(Protocol):
    """Numbers on their way from a device."""

    def ready(self) -> bool:
        """Return whether they have come; waits for nothing."""

    def read(self) -> list[float]:
        """Return them; waits until they have come."""


class Mark(Protocol):
    """A moment in the work of a device."""

    def ready(self) -> bool:
        """Return whether the device has come to it."""

    def since(self, earlier: Mark) -> float:
        """Return the seconds that the device took from another moment to this; it has come to both."""


class _Copied:
    """Numbers that are copied into pinned memory while the program goes on."""

    __slots__ = ("_event", "_host")

    def __init__(self, numbers: torch.Tensor) -> None:
        self._host = torch.empty(numbers.shape, dtype=numbers.dtype, device="cpu", pin_memory=True)
        self._host.copy_(numbers, non_blocking=True)
        self._event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._event.record(torch.cuda.current_stream(numbers.device))

    def ready(self) -> bool:
        return bool(self._event.query())

    def read(self) -> list[float]:
        self._event.synchronize()
        found: list[float] = self._host.tolist()
        return found


class _Left:
    """Numbers that lie where they are until they are read: on devices whose events torch does not offer."""

    __slots__ = ("_numbers",)

    def __init__(self, numbers: torch.Tensor) -> None:
        self._numbers = numbers

    def ready(self) -> bool:
        return True

    def read(self) -> list[float]:
        found: list[float] = self._numbers.tolist()
        return found


class _Event:
    """A CUDA event that keeps the time."""

    __slots__ = ("_event",)

    def __init__(self, device: torch.device) -> None:
        self._event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._event.record(torch.cuda.current_stream(device))

    def ready(self) -> bool:
        return bool(self._event.query())

    def since(self, earlier: Mark) -> float:
        assert isinstance(earlier, _Event)
        return float(earlier._event.elapsed_time(self._event)) / 1e3


class Accelerator:
    """The devices that torch has."""

    simulated = False

    def holds(self, x: torch.Tensor) -> bool:
        """Return whether the numbers of a tensor lie where Python would have to wait for them."""
        return not x.is_cpu

    def stream_of(self, device: torch.device) -> Hashable:
        """Return the stream that work on a device is put on now."""
        return torch._C._cuda_getCurrentStream(device.index) if device.type == "cuda" else device

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """Put work on a stream that `stream_of` returned."""
        if not isinstance(stream, tuple):
            return nullcontext()
        number, index, kind = stream
        there: Any = torch.cuda.Stream
        return torch.cuda.stream(there(stream_id=number, device_index=index, device_type=kind))

    def send(self, numbers: torch.Tensor) -> Arrival:
        """Copy a row of numbers from where it is, when the work that makes it is done."""
        return _Copied(numbers) if numbers.device.type == "cuda" else _Left(numbers)

    def mark(self, device: torch.device) -> Mark | None:
        """Return the moment to which the work put on a device's stream so far leads; None where that is unknown."""
        return _Event(device) if device.type == "cuda" else None

    def capturing(self) -> bool:
        """Return whether what is put on the stream is recorded into a CUDA graph: nothing of ours may be in it."""
        cuda: Any = torch.cuda
        return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())

    def room(self, device: torch.device) -> int | None:
        """Return the bytes that a process may still take of a device; None where that is unknown."""
        if device.type != "cuda":
            return None
        free, total = torch.cuda.mem_get_info(device)
        allocated, reserved = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
        share = torch.cuda.get_per_process_memory_fraction(device)
        allowed = int(share * total) - allocated if share < 1 else free
        return min(free + reserved - allocated, allowed)


there = Accelerator()


class Stopwatch:
    """The seconds that a device takes for what is put on its stream, and not those that it takes to put it there."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._began = there.mark(device)
        self._ended: Mark | None = None

    @classmethod
    def of(cls, roots: tuple[Any, ...]) -> Stopwatch | None:
        """Begin, where the first of the tensors that a backward is called on lies on a device."""
        root = roots[0] if roots else None
        if not isinstance(root, torch.Tensor) or root.is_meta or not there.holds(root):
            return None
        return cls(root.device)

    def end(self) -> None:
        """End with what is on the stream now."""
        self._ended = there.mark(self._device) if self._began is not None else None

    def seconds(self) -> float | None:
        """Return the seconds; None where they are not told, or the device has not come to the end."""
        if self._began is None or self._ended is None or not self._ended.ready():
            return None
        return self._ended.since(self._began)


class Laps:
    """The seconds from the end of one pass on a device to that of the next, handed over once it has come to both."""

    def __init__(self) -> None:
        self._device: torch.device | None = None
        self._last: Mark | None = None
        self._waiting: deque[tuple[Mark, Mark, Callable[[float], None]]] = deque()

    def begin(self, roots: tuple[Any, ...]) -> None:
        """Note that a backward begins, and what it is called on."""
        root = roots[0] if roots else None
        there_is = isinstance(root, torch.Tensor) and not root.is_meta and there.holds(root)
        if (device := root.device if there_is and root is not None else None) != self._device:
            self._device, self._last = device, None

    def end(self, keep: Callable[[float], None]) -> bool:
        """Hand over the seconds since the pass before, when they are known; False where no device tells them."""
        if self._device is None or there.capturing():
            self._last = None
            return False
        while self._waiting and self._waiting[0][1].ready():
            began, ended, told = self._waiting.popleft()
            told(ended.since(began))
        last, self._last = self._last, there.mark(self._device)
        if last is None or self._last is None:
            return False
        self._waiting.append((last, self._last, keep))
        return True


class Late:
    """What is still to be done once numbers have come from a device, in order.

    A run does not wait for a device: what follows from a pass is done when its numbers are there, and never before
    what follows from an earlier one.
    """

    MOST = 256  # that wait; from then on the oldest is waited for

    def __init__(self, failed: Callable[[Exception], None], lock: AbstractContextManager[Any]) -> None:
        """Begin empty; ``failed`` is told why something could not be done, all that is done is done under ``lock``."""
        self._waiting: deque[tuple[Arrival | None, Callable[[], None]]] = deque()
        self._failed, self._lock = failed, lock

    def __len__(self) -> int:
        return len(self._waiting)

    def then(self, arrival: Arrival | None, action: Callable[[], None]) -> None:
        """Do something when numbers have come and all that came before is done; now, where nothing is waited for."""
        with self._lock:
            if arrival is None and not self._waiting:
                self._do(action)
                return
            self._waiting.append((arrival, action))
            if len(self._waiting) > self.MOST:
                self._do(self._waiting.popleft()[1])

    def sent(self, numbers: torch.Tensor, keep: Callable[[list[float]], None]) -> None:
        """Hand over a row of numbers when it has come from its device."""
        arrival = there.send(numbers)
        self.then(arrival, lambda: keep(arrival.read()))

    def poll(self) -> None:
        """Do all that can be done without waiting."""
        if not self._waiting:
            return
        with self._lock:
            while self._waiting and (self._waiting[0][0] is None or self._has_come(self._waiting[0][0])):
                self._do(self._waiting.popleft()[1])

    def finish(self) -> None:
        """Do everything; waits for the device."""
        with self._lock:
            while self._waiting:
                self._do(self._waiting.popleft()[1])

    def drop(self) -> None:
        """Do nothing of it: in a process that was forked from the one that waits."""
        self._waiting.clear()

    def _has_come(self, arrival: Arrival) -> bool:
        try:
            return arrival.ready()
        except Exception as error:  # a device that has failed says so at every question
            self._failed(error)
            return True

    def _do(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            self._failed(error)
