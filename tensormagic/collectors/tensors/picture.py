"""A tensor as a picture, on demand: shapes that images have are read as images, the others as signals.

Only what is shown is read: a few images, their pixels thinned where they are large. Nothing is invented: no smoothing,
no normalisation but one linear scale, which is told.
"""

from __future__ import annotations

import base64
import itertools
import math
import zlib
from dataclasses import dataclass, replace

import numpy as np
import torch

from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.tensors.reductions import Domain, as_wide
from tensormagic.reports import Gap, ImageFrame, SignalLine, TensorPicture, TensorReport

MOST_IMAGES = 16
MOST_LINES = 8
SIDE_OF_ONE, SIDE_OF_MANY = 256, 96  # pixels along an image's longer side at most
COLUMNS = 480
MOST_READ = 2**22  # values of a signal; of a longer one every k-th is read
_LONG = 16  # a matrix of few rows this long is signals, not an image
_COLOURS = (1, 3)
_LEAST_SIDE = 5  # below, a last dimension of three is no colour

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class _Reading:
    """How a tensor's dimensions are taken.

    Attributes:
        words: As in `TensorPicture.reading`.
        leading: How many dimensions are taken at index 0.
        many: Dimensions that number the images or signals.
        colour: Which dimension is colour; None for grey.
        plane: The dimensions of an image, or of a signal.
    """

    words: str
    leading: int
    many: tuple[int, ...]
    colour: int | None
    plane: tuple[int, ...]


def with_picture(report: TensorReport, x: torch.Tensor) -> TensorReport:
    """Return the report with a picture of the tensor it is of, or with a gap that says why there is none."""
    if report.layout is None:
        return replace(report, gaps=(*report.gaps, Gap("picture", "only strided tensors are drawn")))
    if report.numel and not report.layout.grid.values:  # nor may they be: its storage may have been freed
        return replace(report, gaps=(*report.gaps, Gap("picture", "its values cannot be read")))
    try:
        return replace(report, picture=picture(x))
    except Exception as error:
        return replace(report, gaps=(*report.gaps, Gap("picture", str(error).splitlines()[0][:200])))


def picture(x: torch.Tensor) -> TensorPicture:
    """Return a strided tensor as a picture.

    Raises:
        ValueError: where it has nothing to be drawn: no dimension, or no element.
    """
    if not x.dim() or not x.numel():
        raise ValueError("a scalar or an empty tensor cannot be drawn")
    with quiet():
        reading = _read(tuple(x.shape))
        return _images(x, reading) if len(reading.plane) == 2 else _signals(x, reading)


def _read(shape: tuple[int, ...]) -> _Reading:
    ndim = len(shape)
    if ndim == 1:
        return _Reading("(T)", 0, (), None, (0,))
    if ndim == 2:
        signals = shape[0] <= MOST_LINES and shape[1] >= max(_LONG, 2 * shape[0])
        return _Reading("(N, T)", 0, (0,), None, (1,)) if signals else _Reading("(H, W)", 0, (), None, (0, 1))
    first, leading = max(ndim - 4, 0), "[0]" * max(ndim - 4, 0)
    batch = tuple(range(first, ndim - 3))
    named = "N, " if batch else ""
    if shape[-3] in _COLOURS:
        return _Reading(f"{leading}({named}C, H, W)", first, batch, ndim - 3, (ndim - 2, ndim - 1))
    if shape[-1] in _COLOURS and min(shape[-3:-1]) >= _LEAST_SIDE:
        return _Reading(f"{leading}({named}H, W, C)", first, batch, ndim - 1, (ndim - 3, ndim - 2))
    words = f"{leading}({named}C, H, W)" if batch else f"{leading}(N, H, W)"
    return _Reading(words, first, (*batch, ndim - 3), None, (ndim - 2, ndim - 1))


def _host(parts: torch.Tensor) -> Array:
    """Return wide values on the host in float64: the one transfer of a picture."""
    values: Array = parts.cpu().numpy().astype(np.float64)
    return values


# -- images -------------------------------------------------------------------------------------------------------


def _images(x: torch.Tensor, reading: _Reading) -> TensorPicture:
    height, width = (x.shape[dim] for dim in reading.plane)
    counts = [x.shape[dim] for dim in reading.many]
    indices = list(itertools.islice(itertools.product(*map(range, counts)), MOST_IMAGES))
    step = -(-max(height, width) // (SIDE_OF_ONE if len(indices) == 1 else SIDE_OF_MANY))
    domain = Domain.of(x)
    planes = _host(torch.stack([_plane(x, reading, index, step, domain) for index in indices]))
    low, high, scale = _scale(planes, x.dtype)
    channels = planes.shape[-1]
    return TensorPicture(
        reading=reading.words,
        channels=channels,
        low=low,
        high=high,
        scale=scale,
        images=tuple(
            _frame(plane, (0,) * reading.leading + index, low, high)
            for plane, index in zip(planes, indices, strict=True)
        ),
        of=math.prod(counts),
        step=step,
        size=(height, width),
        bad=int((~np.isfinite(planes)).any(-1).sum()),
    )


def _plane(x: torch.Tensor, reading: _Reading, index: tuple[int, ...], step: int, domain: Domain) -> torch.Tensor:
    """Return one image as height by width by channels, every ``step``-th pixel."""
    at: list[int | slice] = [0] * reading.leading + [slice(None)] * (x.dim() - reading.leading)
    for dim, place in zip(reading.many, index, strict=True):
        at[dim] = place
    for dim in reading.plane:
        at[dim] = slice(None, None, step)
    part = x[tuple(at)]
    if reading.colour is None:
        part = part[..., None]
    elif reading.colour != x.dim() - 1:
        part = part.movedim(0, -1)
    return as_wide(part, domain).view(tuple(part.shape))


def _scale(values: Array, dtype: torch.dtype) -> tuple[float, float, str]:
    """Return which values are drawn black and white, and why these."""
    if dtype in {torch.uint8, torch.bool}:
        return (0.0, 255.0, "bytes") if dtype == torch.uint8 else (0.0, 1.0, "truth")
    finite = values[np.isfinite(values)]
    if not finite.size:
        return 0.0, 1.0, "unit"
    low, high = float(finite.min()), float(finite.max())
    if dtype.is_floating_point and low >= 0 and high <= 1:
        return 0.0, 1.0, "unit"
    return low, high, "shown"


def _frame(plane: Array, index: tuple[int, ...], low: float, high: float) -> ImageFrame:
    finite = np.isfinite(plane)
    with np.errstate(over="ignore", invalid="ignore"):
        share = (plane / 2 - low / 2) / ((high / 2 - low / 2) or 1.0)  # halves: the span itself may overflow
    levels = np.where(finite, np.clip(np.rint(share * 255), 0, 255), 0).astype(np.uint8)
    opacity = np.where(finite.all(-1, keepdims=True), 255, 0).astype(np.uint8)
    packed = zlib.compress(np.concatenate([levels, opacity], axis=-1).tobytes(), 9)
    height, width = plane.shape[:2]
    return ImageFrame(", ".join(map(str, index)), width, height, base64.b64encode(packed).decode("ascii"))


# -- signals ------------------------------------------------------------------------------------------------------


def _signals(x: torch.Tensor, reading: _Reading) -> TensorPicture:
    length, domain = x.shape[-1], Domain.of(x)
    thin = -(-length // MOST_READ)
    rows = x[..., ::thin].reshape(-1, -(-length // thin)) if reading.many else x[::thin].reshape(1, -1)
    columns = _columns(as_wide(rows, domain).view(tuple(rows.shape)), _width(rows.shape[1]))
    lines = tuple(
        SignalLine(str(at) if reading.many else "", tuple(low.tolist()), tuple(high.tolist()), tuple(map(int, bad)))
        for at, (low, high, bad) in enumerate(columns)
    )
    limits = [value for line in lines for value in (*line.low, *line.high) if math.isfinite(value)]
    return TensorPicture(
        reading=reading.words,
        channels=0,
        low=min(limits, default=0.0),
        high=max(limits, default=1.0),
        scale="shown",
        lines=lines,
        of=rows.shape[0],
        step=_width(rows.shape[1]) * thin,
        size=(length,),
        bad=sum(sum(line.bad) for line in lines),
    )


def _width(length: int) -> int:
    return -(-length // COLUMNS)


def _columns(rows: torch.Tensor, width: int) -> Array:
    """Return for each signal the smallest and largest finite value of each column, and how many are not finite."""
    missing = -rows.shape[1] % width
    cut = torch.nn.functional.pad(rows, (0, missing)).view(rows.shape[0], -1, width)
    there = torch.ones_like(rows, dtype=torch.bool)
    there = torch.nn.functional.pad(there, (0, missing)).view(cut.shape)
    finite = cut.isfinite() & there
    low, high = torch.where(finite, cut, math.inf).amin(-1), torch.where(finite, cut, -math.inf).amax(-1)
    bad = (there & ~finite).sum(-1).to(rows.dtype)
    nothing = low > high
    ends = (torch.where(nothing, math.nan, end) for end in (low, high))
    return _host(torch.stack([*ends, bad], dim=1))
