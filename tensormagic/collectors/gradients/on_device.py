"""Numbers about gradients that lie on a device: computed there by few launches, and read when they have come.

Launches are what a device costs the program, and a wait is what costs it most. So a small gradient is copied (not kept:
the engine, an optimizer or another process may write into it before the pass is over), and the copies of one length are
looked at together, as rows of a matrix. Of a large one the norm is taken, one launch; everything else about it only in
passes that are measured in full, in pieces of a few megabytes, so that no temporary is as large as the gradient.

Half precision is summed in float32. Every sum is taken of numbers scaled by the largest among them, so that squares
neither overflow nor vanish; what pieces show is put together in float64 once it is here. A norm that is taken alone is
not scaled: where it left the range of its type, the gradient is looked at with care the next time.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

import numpy as np
import torch

from tensormagic.collectors import devices
from tensormagic.collectors.devices import PendingTransfer
from tensormagic.collectors.gradients.measures import (
    NARROW,
    Measured,
    as_it_lies,
    dense,
    magnitudes,
    vector_norm,
)
from tensormagic.reports import GradientStatistics

SMALL = 1 << 15  # elements of a gradient that is copied, to be looked at together with others of its length
_WINDOW = 1 << 20  # elements that are copied before they are looked at
_PIECE = 1 << 21  # elements of a large gradient that are looked at together: temporaries take some 10 bytes each
ROOM = 1 << 28  # bytes that a device must have left for a pass to be measured in full
JUMP = 1e3  # a norm so many times larger or smaller than in the pass before asks for statistics
_JUMPS_APART = 16  # passes

_NORMED = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128})
_SUMMED_IN = {torch.float64: torch.float64, torch.complex128: torch.float64}  # all others in float32
_COUNTED = 4  # numbers about a row where not all is asked
_NOTHING = (0.0, 0.0, 0.0, 0.0, 0, 0, 0)

Keep = Callable[["Measured | None", "GradientStatistics | None"], None]


@dataclass(slots=True)
class DeviceHistory:
    """What is known, from pass to pass of one graph, of gradients that lie on a device."""

    used: bool = False  # whether any does
    begun: int = 0  # passes begun
    # Nodes whose last norm may have vanished or overflowed in its type, or was of numbers that are not finite.
    careful: set[int] = field(default_factory=set)
    _jumped: bool = False
    _asked_at: int = 0
    _norms: array[float] | None = None
    _left_out: int = 0
    _to_leave_out: int = 0

    def begin(self) -> bool:
        """Count a pass; return whether to measure it in full: the first, each 2^k-th after it, and after a jump."""
        at, self.begun = self.begun, self.begun + 1
        follows, self._jumped = self._jumped and at - self._asked_at >= _JUMPS_APART, False
        self._asked_at = at if follows else self._asked_at
        return follows or at & (at - 1) == 0

    def rests(self) -> bool:
        """Return whether the pass that begins is left out, because there was no room on the device for its numbers."""
        self._to_leave_out -= self._to_leave_out > 0
        return self._to_leave_out > 0

    def short(self) -> None:
        """Note that there was no room: the next pass is left out, after that two, four, and so on."""
        self._left_out = self._to_leave_out = min(max(2 * self._left_out, 2), 1 << 10)

    def learn(self, norms: array[float]) -> None:
        """Look at the norms of a pass that has been read: where one jumped, a next pass is measured in full."""
        before, self._norms = self._norms, norms
        if before is not None and len(before) == len(norms):
            then, now = np.frombuffer(before, np.float32), np.frombuffer(norms, np.float32)
            both = (then > 0) & np.isfinite(then) & (now != 0) & ~(now < 0)
            now, then = now[both].astype(np.float64), then[both].astype(np.float64)
            self._jumped |= bool((~((now < JUMP * then) & (now * JUMP > then))).any())


@dataclass(slots=True)
class _Asked:
    """One gradient that was asked about."""

    keep: Keep  # called with the numbers once they are here; with nothing where they could not be had
    dtype: torch.dtype
    count: int  # of the elements that are stored
    repeated: int  # how often each of them stands
    full: bool  # whether everything was asked
    sizes: list[int] = field(default_factory=list)  # how many elements each piece has; empty where there is one
    parts: list[list[float]] = field(default_factory=list)  # the numbers of each piece
    lost: bool = False


class _Stream:
    """What is put on one stream: copies that wait, and numbers that are computed."""

    def __init__(self) -> None:
        self.copies: dict[tuple[int, torch.dtype, torch.dtype | None, bool], list[tuple[torch.Tensor, _Asked]]] = {}
        self.elements = 0
        self.numbers: list[torch.Tensor] = []
        self.of: list[tuple[list[_Asked], int]] = []  # of each of these: whose numbers they are, and how many each

    def add(self, numbers: torch.Tensor, of: list[_Asked]) -> None:
        self.numbers.append(numbers.reshape(-1))
        self.of.append((of, numbers.numel() // len(of)))

    def settle(self) -> None:
        copies, self.copies, self.elements = self.copies, {}, 0
        for (_, _, narrow, full), waiting in copies.items():
            rows = torch.stack([copy for copy, _ in waiting])
            self.add(_row_statistics(rows, narrow, full=full), [asked for _, asked in waiting])


class DeviceNumbers:
    """The numbers of one pass that come from devices."""

    uncounted = False  # whether a gradient was not finite of which it was not counted how many elements are not

    def __init__(self, pass_number: int) -> None:
        self._pass_number = pass_number
        self._streams: dict[Hashable, _Stream] = {}
        self._asked: list[_Asked] = []
        self._after: list[Callable[[], None]] = []
        self._sent: list[tuple[PendingTransfer, _Stream]] = []

    @property
    def asked(self) -> bool:
        """Whether anything was asked of a device that was not reported yet."""
        return bool(self._asked or self._after)

    def ask(self, gradient: torch.Tensor, keep: Keep, *, full: bool, careful: bool = False) -> None:
        """Ask about a gradient; on the stream that is current, which is that of the node it is for.

        All is asked where ``full``, else the norm and how many elements are not finite; ``careful`` where the norm may
        leave the range of its type.
        """
        values, repeated = dense(gradient).detach(), 1
        if not values.numel():
            self.after(lambda: keep((0.0, 0, 0), GradientStatistics(self._pass_number, 0, *_NOTHING) if full else None))
            return
        if not values.is_contiguous():
            values, repeated = as_it_lies(values)
        asked = _Asked(keep, gradient.dtype, values.numel(), repeated, full)
        self._asked.append(asked)
        try:
            with _own_types():
                self._put(values, asked, careful=careful)
        except BaseException:
            asked.lost = True
            raise

    def _put(self, values: torch.Tensor, asked: _Asked, *, careful: bool) -> None:
        stream = self._streams.setdefault(devices.there.stream_of(values.device), _Stream())
        narrow = values.dtype if values.dtype in NARROW else None
        wide = _SUMMED_IN.get(values.dtype, torch.float32)
        if asked.count <= SMALL:
            if stream.elements + asked.count > _WINDOW:
                stream.settle()
            stream.elements += asked.count
            copy = magnitudes(values).to(wide, copy=not values.is_complex(), memory_format=torch.contiguous_format)
            key = (asked.count, wide, narrow if asked.full else None, asked.full)
            stream.copies.setdefault(key, []).append((copy.view(-1), asked))
        elif asked.full or careful or values.dtype not in _NORMED:
            for piece in _pieces(values):
                row = magnitudes(piece).to(wide).reshape(1, -1)
                asked.sizes.append(piece.numel())
                stream.add(_row_statistics(row, narrow, full=asked.full), [asked])
        else:
            half = values.dtype in {torch.float16, torch.bfloat16}
            stream.add(vector_norm(values, dtype=wide if half else None), [asked])

    def number(self, value: torch.Tensor, keep: Callable[[float], None]) -> None:
        """Ask for one number as it is."""
        with _own_types():
            number = value.detach().to(_SUMMED_IN.get(value.dtype, torch.float32), copy=True)
            self._ask_for([number], lambda read: keep(read[0][0]))

    def counts(self, saved: torch.Tensor, keep: Callable[[int, int, int], None]) -> None:
        """Ask how many elements of a tensor are zero, negative, and not finite."""
        wide, found = _SUMMED_IN.get(saved.dtype, torch.float32), []
        with _own_types():
            for piece in _pieces(saved.detach()):
                row = piece.reshape(1, -1)
                zero = row.shape[1] - vector_norm(row, 0, dim=1, dtype=wide)
                bad = vector_norm(row - row, 0, dim=1, dtype=wide)
                found.append(torch.cat((zero, (row < 0).sum(1, dtype=wide), bad)))
            self._ask_for(found, lambda read: keep(*(int(sum(column)) for column in zip(*read, strict=True))))

    def _ask_for(self, numbers: list[torch.Tensor], keep: Callable[[list[list[float]]], None]) -> None:
        asked = _Asked(lambda *_: None if asked.lost else keep(asked.parts), torch.float32, 0, 1, full=False)
        self._asked.append(asked)
        stream = self._streams.setdefault(devices.there.stream_of(numbers[0].device), _Stream())
        for each in numbers:
            stream.add(each, [asked])

    def after(self, action: Callable[[], None]) -> None:
        """Do something when all numbers are here and kept."""
        self._after.append(action)

    def give_up(self) -> None:
        """Let go of all that waits; each callback gets None instead of a number."""
        self._streams.clear()
        for asked in self._asked:
            asked.lost = True

    # -- when the pass is over ------------------------------------------------------------------------------------

    def send(self) -> None:
        """Let all numbers be copied here as soon as they are computed, each stream's behind its own work."""
        streams, self._streams = self._streams, {}
        for place, stream in streams.items():
            with devices.there.on(place), _own_types():
                stream.settle()
                if stream.numbers:
                    numbers, stream.numbers = stream.numbers, []
                    self._sent.append((devices.there.send(torch.cat(numbers)), stream))

    def ready(self) -> bool:
        """Return whether they are here."""
        return all(arrival.ready() for arrival, _ in self._sent)

    def read(self) -> list[float]:
        """Hand over all numbers, each to whom it concerns; waits until they are here."""
        (sent, asked, after), self._sent, self._asked, self._after = (self._sent, self._asked, self._after), [], [], []
        for arrival, stream in sent:
            numbers, at = arrival.read(), 0
            for of, width in stream.of:
                for each in of:
                    each.parts.append(numbers[at : at + width])
                    at += width
        for each in asked:
            keep, each.keep = each.keep, lambda *_: None  # the callback may hold the tensor
            keep(*(self._put_together(each) if each.count and not each.lost else (None, None)))
        for action in after:
            action()
        return []

    def _put_together(self, asked: _Asked) -> tuple[Measured, GradientStatistics | None]:
        count, times = asked.count * asked.repeated, asked.repeated
        if len(asked.parts[0]) == 1:
            norm = asked.parts[0][0] * math.sqrt(times)
            nans, infs = int(math.isnan(norm)), int(norm == math.inf and asked.dtype is torch.float16)
            self.uncounted |= bool(nans or infs)
            return (norm, nans, infs), None
        table = np.array(asked.parts, np.float64)
        bad, nan, largest, norms = table.T[:_COUNTED]
        scale = np.maximum(largest, torch.finfo(_SUMMED_IN.get(asked.dtype, torch.float32)).tiny)
        worst = math.nan if nan.any() else math.inf if bad.any() else None
        norm = math.hypot(*(norms * scale).tolist()) * math.sqrt(times) if worst is None else worst
        nans, infs = int(nan.sum()) * times, int((bad - nan).sum()) * times
        if not asked.full:
            return (norm, nans, infs), None
        finite = np.array(asked.sizes or [asked.count]) - bad
        mean = deviation = math.nan
        if every := float(finite.sum()):
            means = table[:, 5] / np.maximum(finite, 1) * scale
            mean = float((means * (finite / every)).sum())
            apart = [*(table[:, 6] * scale).tolist(), *(np.sqrt(finite) * (means - mean)).tolist()]
            deviation = math.hypot(*apart) / math.sqrt(every)
        zero = asked.count - int(table[:, 4].sum())
        subnormal = int(table[:, 7].sum()) - zero if asked.dtype in NARROW else 0
        return (norm, nans, infs), GradientStatistics(
            self._pass_number, count, norm, float(largest.max()) if worst is None else worst, mean, deviation,
            zero * times, nans, infs, subnormal * times, int(table[:, 8].sum()) * times,
        )  # fmt: skip


@contextmanager
def _own_types() -> Iterator[None]:
    """Keep the user's function modes from seeing what is computed, and autocast from choosing the types for it."""
    casts = torch._C._is_any_autocast_enabled()
    with torch._C.DisableTorchFunction(), torch._C._DisableAutocast() if casts else nullcontext():
        yield


def _pieces(values: torch.Tensor) -> Sequence[torch.Tensor]:
    """Cut a tensor into views of `_PIECE` elements or fewer, as far as one dimension can be cut."""
    row = values.view(-1) if values.is_contiguous() else values
    dim = max(range(row.dim()), key=row.size)
    return torch.split(row, max(row.size(dim) * _PIECE // row.numel(), 1), dim)


def _row_statistics(rows: torch.Tensor, narrow: torch.dtype | None, *, full: bool) -> torch.Tensor:
    """Return the numbers about each row of float32 or float64, shape (rows, 4), or (rows, 9) where all is asked.

    They are: how many elements are not finite, and how many of these NaN; the largest magnitude, and the norm over it.
    Where all is asked, these two are of the finite elements, and there are besides: how many are not zero, the sum over
    the largest, the norm of the distances from the mean over the largest, and how many are below the smallest normal
    number of the ``narrow`` type that they came from, and at its largest.
    """
    apart = rows - rows  # 0 where an element is finite, else NaN
    bad, nan = vector_norm(apart, 0, dim=1), rows.isnan().sum(1, dtype=rows.dtype)
    tiny = torch.finfo(rows.dtype).tiny
    if not full:
        del apart
        largest = vector_norm(rows, math.inf, dim=1)
        norm = vector_norm(rows / largest.clamp_min(tiny).unsqueeze(1), dim=1)
        return torch.stack((bad, nan, largest, norm), 1)
    finite = apart == 0
    del apart
    good = rows.nan_to_num(0.0, 0.0, 0.0)
    largest = vector_norm(good, math.inf, dim=1)
    good.div_(largest.clamp_min(tiny).unsqueeze(1))
    norm, total = vector_norm(good, dim=1), good.sum(1)
    mean = total / (rows.shape[1] - bad).clamp_min(1)
    spread = vector_norm(good.sub_(mean.unsqueeze(1)).mul_(finite), dim=1)
    del good, finite
    small = at_most = bad.new_zeros(len(bad))
    if narrow is not None:
        limits, sizes = torch.finfo(narrow), rows.abs()
        small = (sizes < limits.smallest_normal).sum(1, dtype=rows.dtype)
        at_most = (sizes >= limits.max).sum(1, dtype=rows.dtype)
    return torch.stack((bad, nan, largest, norm, vector_norm(rows, 0, dim=1), total, spread, small, at_most), 1)
