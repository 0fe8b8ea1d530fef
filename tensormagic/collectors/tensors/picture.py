"""Which slice of a tensor is shown, and its picture."""

from __future__ import annotations

import base64
import itertools
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from tensormagic.collectors.geometry.layout import default_slice, dim_names, grid, slice_along, text_of, with_values
from tensormagic.collectors.quiet import quiet, told
from tensormagic.collectors.tensors.reductions import Domain, as_wide
from tensormagic.errors import TensorMagicError
from tensormagic.reports import Gap, Grid, ImageFrame, LayoutReport, SignalLine, TensorPicture, TensorReport
from tensormagic.reports.tensor import Scaling

# A tensor as a picture: shapes that images have are read as images, the others as signals. Only what is shown is read.
# Nothing is invented: no smoothing, no normalisation but one linear scale, which is shown.

MOST_IMAGES = 16
MOST_LINES = 8
SIDE_OF_ONE, SIDE_OF_MANY = 256, 96  # pixels along an image's longer side at most
COLUMNS = 480
MOST_READ = 2**22  # values of a signal; of a longer one every k-th is read
_LONG = 16  # a matrix of few rows this long is signals, not an image
_COLOURS = (1, 3)
_LEAST_SIDE = 5  # below, a last dimension of three is no colour
MOST_CARRIED = 2048  # elements up to which every slice is put into the report, as text
_DRAWN = 2  # dimensions a grid has

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class _Reading:
    """How a tensor's dimensions are taken."""

    words: str  # as in `TensorPicture.reading`
    leading: int  # how many dimensions are taken at index 0
    many: tuple[int, ...]  # dimensions that number the images or signals
    colour: int | None  # which dimension is colour; None for grey
    plane: tuple[int, ...]  # the dimensions of an image, or of a signal


def with_picture(report: TensorReport, x: torch.Tensor) -> TensorReport:
    """Return the report with a picture of the tensor it is of, or with a gap that says why there is none."""
    if report.layout is None:
        return replace(report, gaps=(*report.gaps, Gap("picture", "only plain strided tensors are drawn")))
    if report.numel and not report.layout.grid.values:  # nor may they be: its storage may have been freed
        return replace(report, gaps=(*report.gaps, Gap("picture", "its values cannot be read")))
    try:
        with np.errstate(all="ignore"):
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


def _images(x: torch.Tensor, reading: _Reading) -> TensorPicture:
    height, width = (x.shape[dim] for dim in reading.plane)
    counts = [x.shape[dim] for dim in reading.many]
    indices = list(itertools.islice(itertools.product(*map(range, counts)), MOST_IMAGES))
    step = -(-max(height, width) // (SIDE_OF_ONE if len(indices) == 1 else SIDE_OF_MANY))
    domain = Domain.of(x)
    planes = _host(torch.stack([_plane(x, reading, index, step, domain) for index in indices]))
    low, high, scale = _scale(planes, x.dtype)
    leading = (0,) * reading.leading
    images = (_frame(plane, leading + index, low, high) for plane, index in zip(planes, indices, strict=True))
    bad = int((~np.isfinite(planes)).any(-1).sum())
    return TensorPicture(
        reading.words, planes.shape[-1], low, high, scale, tuple(images), of=math.prod(counts), step=step,
        size=(height, width), bad=bad,
    )  # fmt: skip


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


def _scale(values: Array, dtype: torch.dtype) -> tuple[float, float, Scaling]:
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
    with np.errstate(all="ignore"):
        share = (plane / 2 - low / 2) / ((high / 2 - low / 2) or 1.0)  # halves: the span itself may overflow
    levels = np.where(finite, np.clip(np.rint(share * 255), 0, 255), 0).astype(np.uint8)
    opacity = np.where(finite.all(-1, keepdims=True), 255, 0).astype(np.uint8)
    packed = zlib.compress(np.concatenate([levels, opacity], axis=-1).tobytes(), 9)
    height, width = plane.shape[:2]
    return ImageFrame(", ".join(map(str, index)), width, height, base64.b64encode(packed).decode("ascii"))


def _signals(x: torch.Tensor, reading: _Reading) -> TensorPicture:
    length, domain = x.shape[-1], Domain.of(x)
    thin = -(-length // MOST_READ)
    rows = x[..., ::thin].reshape(-1, -(-length // thin)) if reading.many else x[::thin].reshape(1, -1)
    width = -(-rows.shape[1] // COLUMNS)
    columns = _columns(as_wide(rows, domain).view(tuple(rows.shape)), width)
    lines = tuple(
        SignalLine(str(at) if reading.many else "", tuple(low.tolist()), tuple(high.tolist()), tuple(map(int, bad)))
        for at, (low, high, bad) in enumerate(columns)
    )
    limits = [value for line in lines for value in (*line.low, *line.high) if math.isfinite(value)]
    return TensorPicture(
        reading.words, 0, min(limits, default=0.0), max(limits, default=1.0), "shown", lines=lines, of=rows.shape[0],
        step=width * thin, size=(length,), bad=sum(sum(line.bad) for line in lines),
    )  # fmt: skip


def _columns(rows: torch.Tensor, width: int) -> Array:
    """Return for each signal the smallest and largest finite value of each column, and how many are not finite."""
    missing = -rows.shape[1] % width
    cut = torch.nn.functional.pad(rows, (0, missing)).view(rows.shape[0], -1, width)
    there = torch.nn.functional.pad(torch.ones_like(rows, dtype=torch.bool), (0, missing)).view(cut.shape)
    finite = cut.isfinite() & there
    low, high = torch.where(finite, cut, math.inf).amin(-1), torch.where(finite, cut, -math.inf).amax(-1)
    bad = (there & ~finite).sum(-1).to(rows.dtype)
    ends = (torch.where(low > high, math.nan, end) for end in (low, high))
    return _host(torch.stack([*ends, bad], dim=1))


# Which two dimensions of a tensor span the index grid, and at which index of the others: what a user says is checked
# against the shape before anything is drawn, and misuse is answered with what would do.
Place = int | str | slice | None


def chosen_slice(shape: Sequence[int], dims: Sequence[int | str] | None, at: Sequence[Place] | None) -> Grid:
    """Return the slice that was asked for.

    ``dims`` are the dimension that runs downwards and the one that runs to the right, by number or letter; None: those
    that ``at`` leaves open, or the two by default. ``at`` is for each dimension an index, or ``":"``, ``slice(None)``
    or None where it is drawn; None: 0 everywhere.

    Raises:
        TensorMagicError: where these do not fit the shape or each other.
    """
    drawn = None if dims is None else _dimensions(shape, dims)
    if at is None:
        return default_slice(shape) if drawn is None else slice_along(shape, *drawn)
    places = _places(shape, at)
    free = tuple(dim for dim, place in enumerate(places) if place is None)
    if drawn is not None and set(free) != set(drawn):
        asked, opened = (", ".join(map(str, some)) or "none" for some in (drawn, free))
        raise TensorMagicError(
            f"dims draws dimensions {asked}, but at leaves {opened} open with ':'; both must name the same two"
        )
    if len(free) > _DRAWN:
        raise TensorMagicError(
            f"two dimensions can be drawn, but at leaves {len(free)} of {len(shape)} open with ':'; give an index for "
            f"all but two, or dims"
        )
    row_dim, column_dim = drawn or (None, None, *free)[-_DRAWN:]
    return slice_along(shape, row_dim, column_dim, fixed=tuple(place or 0 for place in places))


def _dimensions(shape: Sequence[int], dims: Sequence[int | str]) -> tuple[int, ...]:
    """Return two dimensions, each given by number (also from the end) or letter."""
    names, dims, found = dim_names(len(shape)), list(dims), list[int]()
    for text in (str(dim).strip() for dim in dims):
        number = names.index(text) if text in names else _whole_number(text)
        if number is not None and -len(names) <= number < len(names):
            found.append(number % len(names))
    if not len(dims) == len(found) == len(set(found)) == _DRAWN:
        there = f"0 to {len(shape) - 1}, or {', '.join(names)}" if len(shape) >= _DRAWN else "too few to choose from"
        given = ", ".join(map(str, dims)) or "nothing"
        raise TensorMagicError(
            f"dims takes two different dimensions of the {len(shape)} there are ({there}), but was given {given}"
        )
    return tuple(found)


def _whole_number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _places(shape: Sequence[int], at: Sequence[Place]) -> list[int | None]:
    """Return the index of each dimension; None where it is drawn."""
    texts = [":" if place is None or place == slice(None) else str(place).strip() for place in at]
    numbers = [None if text == ":" else _whole_number(text) for text in texts]
    every = "the 1 dimension" if len(shape) == 1 else f"each of the {len(shape)} dimensions"
    for place, text, number in zip(at, texts, numbers, strict=True):
        if number is None and text != ":":
            raise TensorMagicError(f"{place!r} is no index: at takes an index or ':' for {every}")
    if len(at) != len(shape):
        given = ", ".join(":" if text == ":" else str(place) for text, place in zip(texts, at, strict=True))
        raise TensorMagicError(f"at takes an index or ':' for {every}, but was given {len(at)}: {given}")
    places: list[int | None] = []
    for dim, (size, number) in enumerate(zip(shape, numbers, strict=True)):
        if number is not None and not -size <= number < size:
            raise TensorMagicError(f"index {number} is out of range for dimension {dim}, which has size {size}")
        places.append(None if number is None else number % size)
    return places


def with_slices(
    x: torch.Tensor,
    laid: LayoutReport,
    *,
    dims: Sequence[int | str] | None,
    at: Sequence[Place] | None,
    bad: tuple[int, ...] | None = None,
) -> LayoutReport:
    """Return the layout with the slice that was asked for in its grid, and with those that a viewer may turn to.

    ``laid`` has the default slice. ``bad`` is the index of an element worth seeing: where ``at`` is None, the slice
    that holds it is shown.

    Raises:
        TensorMagicError: where ``dims`` or ``at`` does not fit the tensor, as for `chosen_slice`.
    """
    shown = chosen_slice(laid.shape, dims, at)
    if at is None and bad is not None:
        drawn = shown.row_dim, shown.column_dim
        fixed = tuple(0 if dim in drawn else place for dim, place in enumerate(bad))
        shown = slice_along(laid.shape, *drawn, fixed=fixed)
        rows, columns = _with(shown.rows, bad, shown.row_dim), _with(shown.columns, bad, shown.column_dim)
        shown = replace(shown, rows=rows, columns=columns)
    if shown != default_slice(laid.shape):
        drawn_grid = grid(shown, laid.stride, laid.storage_offset)
        laid = replace(laid, grid=with_values(drawn_grid, x) if laid.grid.values else drawn_grid)
    return replace(laid, elements=_every_element(x, laid))


def _with(shown: tuple[int, ...], place: tuple[int, ...], dim: int | None) -> tuple[int, ...]:
    """Return the indices that are shown along a dimension, the nearest of them moved to that of an element."""
    if dim is None or not shown or place[dim] in shown:
        return shown
    nearest = min(range(len(shown)), key=lambda at: abs(shown[at] - place[dim]))
    return (*shown[:nearest], place[dim], *shown[nearest + 1 :])


def _every_element(x: torch.Tensor, laid: LayoutReport) -> tuple[str, ...]:
    """Return all elements as short text in reading order, where the tensor is small and has slices to choose from.

    Empty where there are more than `MOST_CARRIED`, fewer than three dimensions, or no values that can be read.
    """
    if len(laid.shape) <= _DRAWN or not laid.grid.values or x.numel() > MOST_CARRIED:
        return ()
    with quiet():  # a subclass may allow one element and refuse all: then there is one slice
        return told(lambda: tuple(map(text_of, x.detach().resolve_conj().resolve_neg().reshape(-1).tolist())), ())
