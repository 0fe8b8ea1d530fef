"""A tensor looked at as what it may be: an image, a batch of images, or a signal over time."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ImageFrame:
    """One image.

    Attributes:
        label: The index that gives it, as in ``x[0, 3]``: ``"0, 3"``; empty where the whole tensor is one image.
        width: Pixels across.
        height: Pixels down.
        pixels: Base64 of zlib-compressed bytes, row by row, for each pixel its levels (one, or red, green and blue)
            and its opacity: 255, or 0 where it is NaN or infinite.
    """

    label: str
    width: int
    height: int
    pixels: str = field(metadata={"encoded": True})


@dataclass(frozen=True, slots=True)
class SignalLine:
    """One signal, in as many columns as are drawn.

    Attributes:
        label: The index that gives it; empty where the whole tensor is one signal.
        low: Smallest finite value of each column; NaN where there is none.
        high: Largest finite value of each column.
        bad: How many values of each column are NaN or infinite.
    """

    label: str
    low: tuple[float, ...]
    high: tuple[float, ...]
    bad: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorPicture:
    """A tensor as a picture.

    Attributes:
        reading: How the dimensions were taken: ``"(N, C, H, W)"``, ``"(H, W)"``, ``"(T)"``; ``"[0]"`` before it for
            each dimension of which only the first index is shown.
        channels: 3 for colour, 1 for grey; 0 for signals.
        low: The value drawn black, or at the foot.
        high: The value drawn white, or at the top.
        scale: Why these two: ``"bytes"`` and ``"truth"`` for uint8 and bool, ``"unit"`` for values that lie between 0
            and 1, ``"shown"`` for the smallest and largest shown.
        images: Where it was read as images.
        lines: Where it was read as signals.
        of: How many images or signals there are.
        step: Every how-manieth pixel is shown; for signals how many values a column stands for.
        size: Height and width of an image, or length of a signal, of which this is what is shown.
        bad: How many of the values shown are NaN or infinite.
    """

    reading: str
    channels: int
    low: float
    high: float
    scale: str
    images: tuple[ImageFrame, ...] = ()
    lines: tuple[SignalLine, ...] = ()
    of: int = 1
    step: int = 1
    size: tuple[int, ...] = ()
    bad: int = 0
