"""Takes a CPU for a device that works on while the program goes on, and counts what the tracer asks of it.

The path that gradients on a GPU take is the same then but for the kernels: what is launched, how large what is made on
the way is, and what would wait is counted. Launches are those that the operations make on CUDA as torch's
source has it: a view makes none, a concatenation one for each 128 tensors.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

import tensormagic
from tensormagic.collectors import devices
from tensormagic.collectors.gradients.on_device import DeviceNumbers
from tensormagic.collectors.training.updates import UpdateWatcher

_PACKAGE = str(Path(tensormagic.__file__).parent)
_READS = ("item", "tolist", "__bool__", "__float__", "__int__", "cpu", "numpy")
_FEW = 64  # elements: numbers about gradients, which may be in float64
_LARGE = 1 << 16  # bytes: what is smaller is not added to the peak
_MAKES_NOTHING = frozenset({"detach", "alias", "empty", "empty_like", "new_empty", "empty_strided"})
_TOGETHER = {"cat": 128, "stack": 128, "_foreach_norm": 50, "_foreach_sub": 50}  # tensors in a launch


@dataclass
class Counts:
    """What was asked of the device.

    Attributes:
        launches: Kernels.
        wide: Copies of gradients in float64 that are not float64 themselves.
        largest: Bytes of the largest tensor that was made on the way.
        made: Bytes of all of them.
        peak: Bytes of those that were there at once, at the most; without what operations make inside.
        waits: Reads of what had not come.
    """

    launches: int = 0
    wide: int = 0
    largest: int = 0
    made: int = 0
    peak: int = 0
    waits: int = 0
    by_name: Counter[str] = field(default_factory=Counter)
    readers: Counter[str] = field(default_factory=Counter)


class _Counting(TorchDispatchMode):
    def __init__(self, counts: Counts) -> None:
        super().__init__()
        self._counts = counts
        self._alive: list[tuple[StorageWeakRef, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name, counts = func._schema.name.partition("::")[2], self._counts
        if func.is_view or name in _MAKES_NOTHING:
            return result
        several = len(args[0]) if name in _TOGETHER else 1
        counts.launches += -(-several // _TOGETHER.get(name, 1)) if name in _TOGETHER else 1
        counts.by_name[name] += 1
        given = {x.dtype for x in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)}
        for made in torch.utils._pytree.tree_leaves(result):
            if isinstance(made, torch.Tensor) and made.layout is torch.strided and not name.endswith("_"):
                counts.largest, counts.made = max(counts.largest, made.nbytes), counts.made + made.nbytes
                counts.wide += made.dtype is torch.float64 not in given and made.numel() > _FEW
                if made.nbytes > _LARGE:
                    self._alive = [one for one in self._alive if not one[0].expired()]
                    self._alive.append((StorageWeakRef(made.untyped_storage()), made.nbytes))
                    counts.peak = max(counts.peak, sum(nbytes for _, nbytes in self._alive))
        return result


class _Sent:
    """Numbers that have come when others were sent after them, or when the device has caught up."""

    def __init__(self, device: SimulatedDevice, numbers: torch.Tensor) -> None:
        self._device, self._numbers, self._at = device, numbers.clone(), device.sent

    def ready(self) -> bool:
        return self._device.done >= self._at

    def read(self) -> list[float]:
        self._device.counts.waits += not self.ready()
        return torch.Tensor.tolist(self._numbers)


class _Mark:
    def __init__(self, device: SimulatedDevice) -> None:
        self._device, self._at, self._time = device, device.sent, device.time

    def ready(self) -> bool:
        return self._device.done >= self._at

    def since(self, earlier: _Mark) -> float:
        return self._time - earlier._time


class SimulatedDevice(devices.Accelerator):
    """A CPU, taken for a device.

    Attributes:
        lag: How many sendings it is behind.
        is_capturing: Whether its stream is being recorded.
        left: Bytes of it that are left; None: it does not tell.
        time: Seconds that its work takes so far.
    """

    simulated = True

    def __init__(self, lag: int = 1) -> None:
        self.counts = Counts()
        self.lag, self.sent, self.done = lag, 0, 0
        self.is_capturing = False
        self.left: int | None = None
        self.time = 0.0

    def holds(self, x: torch.Tensor) -> bool:
        return x.device.type != "meta"

    def stream_of(self, device: torch.device) -> str:
        assert not self.is_capturing, "something was put on a stream that is being recorded"
        return str(device)

    def send(self, numbers: torch.Tensor) -> _Sent:
        assert not self.is_capturing, "something was sent from a stream that is being recorded"
        self.sent += 1
        self.done = max(self.done, self.sent - self.lag)
        return _Sent(self, numbers)

    def mark(self, device: torch.device) -> _Mark:
        return _Mark(self)

    def capturing(self) -> bool:
        return self.is_capturing

    def room(self, device: torch.device) -> int | None:
        return self.left

    def pass_time(self, seconds: float) -> None:
        """Put work of so many seconds on its stream."""
        self.time += seconds

    def catch_up(self) -> None:
        """Bring all that was sent to its end."""
        self.done = self.sent

    @contextmanager
    def counted(self) -> Iterator[Counts]:
        """Count from anew."""
        self.counts = Counts()
        yield self.counts

    def _counting(self, original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            with _Counting(self.counts):
                return original(*args, **kwargs)

        return call

    def _reading(self, original: Any, name: str) -> Any:
        def read(x: Any, *args: Any, **kwargs: Any) -> Any:
            caller = sys._getframe(1).f_code
            own = x.dtype is torch.uint8  # the state of the CPU's generator, which lies on no device
            if caller.co_filename.startswith(_PACKAGE) and not own:
                self.counts.waits += 1
                self.counts.readers[f"{Path(caller.co_filename).name}:{caller.co_name}:{name}"] += 1
            return original(x, *args, **kwargs)

        return read


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> SimulatedDevice:
    """The switch: while the test runs, every tensor of a CPU is taken for one on a device."""
    device = SimulatedDevice()
    monkeypatch.setattr(devices, "there", device)
    for owner, names in ((DeviceNumbers, ("ask", "number", "counts", "send")), (UpdateWatcher, ("_keep", "_compare"))):
        for name in names:
            monkeypatch.setattr(owner, name, device._counting(getattr(owner, name)))
    for name in _READS:
        monkeypatch.setattr(torch.Tensor, name, device._reading(getattr(torch.Tensor, name), name))
    return device
