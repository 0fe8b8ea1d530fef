"""The reductions behind `Statistics`: over a tensor's chunks, results left on the device; and a lighter pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import repeat

import torch

from tensormagic.collectors.geometry.strides import chunks

# Two passes over a tensor's chunks. First: extremes and counts. Second, with the extremes known but not yet read by the
# host: mean, sum of squared deviations and histogram. A value near the mean is subtracted first, the sums of each chunk
# are taken around that chunk's own mean and merged afterwards (Chan, Golub and LeVeque, 1979, "Updating formulae and a
# pairwise algorithm for computing sample variances"), so that a large offset costs no digits. Values are scaled by a
# power of two where their squares could overflow.
#
# On the CPU, looking at a result is free, so that chunks without NaN and infinities skip the masking of these. On
# other devices looking would wait for the device: there everything is masked.

BINS = 24
_UINT64_BIAS = 2**63
_NARROW = frozenset({"mps"})  # device types without float64
_EXPONENT_LIMIT = 1000
_BLOCK = 1024
# Columns of what is measured of a piece; those before _LOW are counts.
_FRACTIONS, _FINITE, _LOW, _HIGH, _SUM = 7, 8, 9, 10, 11


@dataclass(frozen=True, slots=True)
class Domain:
    """What kind of numbers a tensor holds, and what they are computed in."""

    integer: bool  # whether they are integers or booleans: extremes are exact, nothing is NaN
    complex: bool  # whether they are complex: then everything is of their magnitudes
    wide: torch.dtype  # the dtype for sums: float64, or float32 where the device has nothing wider
    bias: int  # what to add to get from the int64 that is computed with to the value (uint64 only)
    may_look: bool  # whether looking at a result is free
    scaled: bool  # whether squares may leave the range of ``wide``

    @classmethod
    def of(cls, x: torch.Tensor) -> Domain:
        """Return the domain of a tensor."""
        wide = torch.float32 if x.device.type in _NARROW else torch.float64
        return cls(
            integer=not (x.is_floating_point() or x.is_complex()),
            complex=x.is_complex(),
            wide=wide,
            bias=_UINT64_BIAS if x.dtype == torch.uint64 else 0,
            may_look=x.device.type == "cpu",
            scaled=wide == torch.float32 or x.dtype in {torch.float64, torch.complex128},
        )


@dataclass(frozen=True, slots=True)
class Raw:
    """Results on the device."""

    # int64, one row a chunk: zero; NaN, +Inf, -Inf; places of the first of each (and more, see `_measure_reals`).
    counts: torch.Tensor
    limits: torch.Tensor  # Lowest and highest finite value, shift, and for reals also the scale; int64 for integers.
    # In ``wide``, one row a chunk: finite elements, their mean, their sum of squared deviations; all of value · scale -
    # shift.
    moments: torch.Tensor
    bins: torch.Tensor  # int64: the histogram's counts.
    one_each: torch.Tensor  # int64: 1 where each bin is one whole number, from the lowest on.


Pieces = Callable[[], Iterable[torch.Tensor]]
Ends = tuple[float, float] | None


def reduce_chunks(pieces: Pieces, domain: Domain, ends: Ends = None) -> Raw:
    """Run both passes over the chunks; ``pieces`` gives them afresh each time.

    The histogram reaches from the lowest to the highest value, or to ``ends``, between which all values lie.
    """
    return _reduce_integers(pieces, domain, ends) if domain.integer else _reduce_reals(pieces, domain, ends)


def _limits(rows: torch.Tensor, column: int, ends: Ends) -> tuple[torch.Tensor, torch.Tensor]:
    if ends is not None:
        return rows.new_tensor(ends[0]), rows.new_tensor(ends[1])
    return rows[:, column].min(), rows[:, column + 1].max()


def _reduce_integers(pieces: Pieces, domain: Domain, ends: Ends) -> Raw:
    integers = map(_as_int64, pieces())
    rows = _table(torch.stack([(some == -domain.bias).sum(), *torch.aminmax(some)]) for some in integers)
    low, high = _limits(rows, 1, ends)
    span = high - low
    shift = torch.where(span >= 0, low, 0)  # a span that overflows int64 is negative: no shift then
    z_low, z_high = (low - shift).to(domain.wide), (high - shift).to(domain.wide)
    one_each = (span >= 0) & (span < BINS)
    per_unit = _bins_per_unit(z_high - z_low, one_each, torch.ones_like(z_low))
    moved = ((_as_int64(piece) - shift).to(domain.wide) for piece in pieces())
    moments, bins = _measure_all(moved, z_low, per_unit, domain, repeat(True))  # noqa: FBT003  (an iterator of flags)
    counts = torch.nn.functional.pad(rows[:, :1], (0, 6))
    return Raw(counts, torch.stack([low, high, shift]), moments, bins, one_each.to(torch.int64))


def _reduce_reals(pieces: Pieces, domain: Domain, ends: Ends) -> Raw:
    rows = _table(_measure_all_reals(pieces, domain))
    counts, sums = rows[:, :_LOW].to(torch.int64), rows[:, _SUM]
    low, high = _limits(rows, _LOW, ends)
    scale = _scale(low, high) if domain.scaled else torch.ones_like(low)
    one_each = (counts[:, _FRACTIONS].sum() == 0) & (high - low < BINS) & (low == low.floor())
    mean = sums.sum() / counts[:, _FINITE].sum().clamp(min=1)
    usable = torch.isfinite(mean) & torch.isfinite(low)  # the sum may have overflowed
    near = torch.where(one_each, mean.round(), mean)  # what to subtract before squaring: whole numbers stay exact
    shift = torch.where(usable, near, 0.0) * scale
    start = torch.where(torch.isfinite(low), low, 0.0)  # nothing is finite: no bin counts, but none may be out of range
    z_low, z_high = start * scale - shift, high * scale - shift
    values = (as_wide(piece, domain) for piece in pieces())
    moved = ((some * scale if domain.scaled else some) - shift for some in values)  # no pass for a scale that is 1
    # Whether a chunk is free of NaN and infinities is known only where looking is free.
    clean: Iterable[bool] = (counts[:, 1:4].sum(1) == 0).tolist() if domain.may_look else repeat(False)  # noqa: FBT003
    moments, bins = _measure_all(moved, z_low, _bins_per_unit(z_high - z_low, one_each, scale), domain, clean)
    return Raw(counts, torch.stack([low, high, shift, scale]), moments, bins, one_each.to(torch.int64))


def _table(rows: Iterable[torch.Tensor]) -> torch.Tensor:
    """Return rows as one tensor, kept in blocks.

    Thousands of small tensors allocated between large temporaries would split every block the allocator gets back, and
    the process would grow by all temporaries together.
    """
    blocks: list[torch.Tensor] = []
    for at, row in enumerate(rows):
        if at % _BLOCK == 0:
            blocks.append(row.new_empty((_BLOCK, row.numel())))
        blocks[-1][at % _BLOCK] = row
    blocks[-1] = blocks[-1][: at % _BLOCK + 1]
    return torch.cat(blocks)


def _measure_all(
    moved: Iterable[torch.Tensor], start: torch.Tensor, per_unit: torch.Tensor, domain: Domain, clean: Iterable[bool]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the moments of the finite values of each chunk, and the histogram of all of them."""
    bins = torch.zeros(BINS, dtype=torch.int64, device=start.device)

    def measure(values: torch.Tensor, flag: bool) -> torch.Tensor:  # noqa: FBT001  (an iterator of flags)
        finite = None if flag else _finite(values)
        places = values if finite is None else torch.where(finite, values, start)
        places = (places - start).mul_(per_unit).clamp_(0, BINS - 1).to(torch.int64)
        if finite is not None:
            places = torch.where(finite, places, BINS)
        if domain.may_look:
            bins.add_(torch.bincount(places, minlength=BINS + 1)[:BINS])
        else:  # counted without looking at the device
            counts = torch.zeros(BINS + 1, dtype=torch.int64, device=places.device)
            bins.add_(counts.scatter_add_(0, places, torch.ones_like(places))[:BINS])
        return _moments(values) if finite is None else _masked_moments(values, finite)

    return _table(map(measure, moved, clean)), bins


def _as_int64(piece: torch.Tensor) -> torch.Tensor:
    """Return integers as int64, in one dimension; uint64 with its bias taken off, which keeps their order."""
    if piece.dtype == torch.uint64:
        return piece.view(torch.int64).reshape(-1) ^ torch.iinfo(torch.int64).min
    return piece.to(torch.int64).reshape(-1)


def as_wide(piece: torch.Tensor, domain: Domain) -> torch.Tensor:
    """Return values in the wide dtype, in one dimension: of complex numbers magnitudes, NaN where either part is."""
    if not domain.complex:
        return piece.to(domain.wide).reshape(-1)
    parts = torch.view_as_real(piece.conj() if piece.is_conj() else piece).to(domain.wide)
    real, imaginary = parts[..., 0].reshape(-1), parts[..., 1].reshape(-1)
    missing = torch.isnan(real) | torch.isnan(imaginary)
    return torch.hypot(real, imaginary).masked_fill_(missing, math.nan)


def _measure_all_reals(pieces: Pieces, domain: Domain) -> Iterator[torch.Tensor]:
    fractions = False
    for piece in pieces():
        row = _measure_reals(as_wide(piece, domain), domain, known_fractions=fractions)
        fractions = fractions or (domain.may_look and bool(row[_FRACTIONS]))
        yield row


def _measure_reals(values: torch.Tensor, domain: Domain, *, known_fractions: bool) -> torch.Tensor:
    """Return zero; NaN, +Inf, -Inf; places of the first of each; any fraction, finite; low, high, sum of the finite.

    All in the wide dtype, which holds a chunk's counts exactly.
    """
    low, high = torch.aminmax(values)
    zero = (values == 0).sum()
    if domain.may_look and math.isfinite(low) and math.isfinite(high):
        bad, finite = [torch.zeros_like(zero)] * 6, torch.full_like(zero, values.numel())
    else:
        there = _finite(values)
        kinds = (torch.isnan(values), values == math.inf, values == -math.inf)
        bad = [kind.sum() for kind in kinds] + [kind.to(torch.uint8).argmax() for kind in kinds]
        low = torch.where(there, values, math.inf).min()
        high = torch.where(there, values, -math.inf).max()
        values, finite = torch.where(there, values, 0.0), there.sum()
    fractions = torch.ones_like(zero) if known_fractions else (values != values.floor()).any()
    numbers = (zero, *bad, fractions, finite, low, high, values.sum())
    return torch.stack([number.to(domain.wide) for number in numbers])


def _finite(values: torch.Tensor) -> torch.Tensor:
    """Return where values are finite, in half the passes of `torch.isfinite`."""
    return values.abs() < math.inf


def _scale(low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """Return the power of two that brings the largest magnitude near 1; 1 where nothing is finite."""
    largest = torch.maximum(low.abs(), high.abs())
    exponent = torch.frexp(largest).exponent.clamp(-_EXPONENT_LIMIT, _EXPONENT_LIMIT)
    usable = torch.isfinite(largest) & (largest > 0)
    return torch.where(usable, torch.ldexp(torch.ones_like(largest), -exponent), 1.0)


def _bins_per_unit(span: torch.Tensor, one_each: torch.Tensor, unit: torch.Tensor) -> torch.Tensor:
    return torch.where(one_each, 1 / unit, torch.where(span > 0, BINS / span, 0.0))


def _moments(values: torch.Tensor) -> torch.Tensor:
    count = torch.full((), values.numel(), dtype=values.dtype, device=values.device)
    mean = values.mean()
    deviation = values - mean
    rest = deviation.sum()  # zero but for rounding: the correction of the two-pass algorithm
    squares = deviation.square_().sum() - rest * rest / count
    return torch.stack([count, mean + rest / count, squares])


def _masked_moments(values: torch.Tensor, finite: torch.Tensor) -> torch.Tensor:
    count = finite.sum().to(values.dtype)
    mean = torch.where(finite, values, 0.0).sum() / count.clamp(min=1)
    deviation = torch.where(finite, values - mean, 0.0)
    rest = deviation.sum()
    squares = deviation.square_().sum() - rest * rest / count.clamp(min=1)
    return torch.stack([count, mean + rest / count.clamp(min=1), squares])


# One light pass over every element of a tensor too large for the histogram's pace, on the CPU.
#
# Extremes, NaN and infinities, mean, spread and norm are of all elements at about the speed of `torch.aminmax`: each
# chunk is reduced while it lies in the processor's cache. Sums are taken in float32 where the values fit it (integers
# of more than 16 bits and float64 in float64), a chunk at a time, less a value near the mean where the mean is far
# from zero; the chunks are merged in float64 (Chan, Golub and LeVeque, 1979), so that only the rounding within a
# chunk remains: a few parts in a million.

CHUNK = 2**20  # elements: 4 MiB of float32, which lie in a cache, and long enough for the calls not to count
_SMALL = 2  # bytes: integers up to this size are exact in float32
_FAR = 2**62
_TINY = 1e-15  # squares of smaller numbers lose digits in float32


@dataclass(slots=True)
class Swept:
    """What the pass has found so far; extremes are those of the finite values, exact for integers."""

    low: float = math.inf  # lowest finite value
    high: float = -math.inf  # highest finite value
    bad: list[int] = field(default_factory=partial(list, (0, 0, 0)))  # how many are NaN, +Inf, -Inf
    first: list[int | None] = field(default_factory=partial(list, (None, None, None)))  # rank of the first of each
    # For each chunk: finite elements, their mean and sum of squared deviations, in `Units`.
    moments: list[list[float]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Units:
    """In what units sums are taken: (value - ``shift``) * ``scale``."""

    shift: float  # 0 or a value near the mean, whole for integers
    scale: float = 1.0  # a power of two, other than 1 where the squares of float64 values would leave their range


def sweep(view: torch.Tensor, domain: Domain, units: Units) -> Swept:
    """Read every element of ``view`` once."""
    swept, rank = Swept(), 0
    for piece in chunks(view, CHUNK):
        _add(swept, reducible(piece, domain), units, rank)
        rank += piece.numel()
    return swept


def _add(swept: Swept, values: torch.Tensor, units: Units, rank: int) -> None:
    count, (low, high) = values.numel(), limits(values)
    if not (math.isfinite(low) and math.isfinite(high)):
        bad = _bad(swept, values, (low, high), rank)
        count -= int(torch.count_nonzero(bad))
        if not count:
            return
        low, high = torch.where(bad, math.inf, values).amin().item(), torch.where(bad, -math.inf, values).amax().item()
        values = torch.where(bad, units.shift, values)  # adds nothing to either sum
    swept.low, swept.high = min(swept.low, low), max(swept.high, high)
    largest = max(abs(low - units.shift), abs(high - units.shift))
    if values.is_floating_point():
        moved = values - units.shift if units.shift else values
        moved = moved * units.scale if units.scale != 1 else moved
    elif values.element_size() <= _SMALL:
        moved = values.to(torch.float32) - units.shift
    elif largest < _FAR:  # integers are subtracted as integers where that cannot overflow
        moved = (values.to(torch.int64) - int(units.shift)).double()
    else:
        moved = values.double() - units.shift
    total, squares = moved.sum().item(), torch.dot(moved, moved).item()
    if moved.dtype == torch.float32 and not (math.isfinite(squares) and (largest > _TINY or largest == 0)):
        moved = moved.double()
        total, squares = moved.sum().item(), torch.dot(moved, moved).item()
    swept.moments.append([count, total / count, max(squares - total * total / count, 0.0)])


def limits(values: torch.Tensor) -> tuple[float, float]:
    """Return the smallest and largest value; NaN both where one is."""
    low, high = torch.aminmax(values)
    return low.item(), high.item()


def reducible(piece: torch.Tensor, domain: Domain) -> torch.Tensor:
    """Return a chunk in one dimension, in a dtype that has all the reductions and holds its values exactly."""
    if domain.complex:
        return as_wide(piece, domain)
    if not domain.integer:
        return piece.reshape(-1).to(torch.float64 if piece.dtype == torch.float64 else torch.float32)
    if piece.dtype in {torch.uint16, torch.uint32, torch.uint64}:
        return _as_int64(piece)
    return piece.reshape(-1).view(torch.uint8) if piece.dtype == torch.bool else piece.reshape(-1)


def _bad(swept: Swept, values: torch.Tensor, ends: tuple[float, float], rank: int) -> torch.Tensor:
    """Count what is not finite, remember the first of each kind, and return where it is.

    Without NaN the extremes show which infinities there are: only those are looked for.
    """
    missing = math.isnan(ends[0])
    signs = [sign for sign in (math.inf, -math.inf) if missing or sign in ends]
    masks = {0: values.isnan()} if missing else {}
    masks |= {1 if sign > 0 else 2: values == sign for sign in signs}
    for kind, mask in masks.items():
        found = int(torch.count_nonzero(mask))
        swept.bad[kind] += found
        if found and swept.first[kind] is None:
            swept.first[kind] = rank + int(mask.to(torch.uint8).argmax())
    return reduce(torch.logical_or, masks.values())
