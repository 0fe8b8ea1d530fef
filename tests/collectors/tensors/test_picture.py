"""Tensors as pictures: what counts as an image or a signal, what each pixel is, and what is said of the rest."""

from __future__ import annotations

import base64
import math
import zlib

import numpy as np
import pytest
import torch

from tensormagic import inspect
from tensormagic.collectors.tensors.picture import COLUMNS, MOST_IMAGES, SIDE_OF_ONE, picture
from tensormagic.reports import ImageFrame


def pixels(frame: ImageFrame, channels: int) -> np.ndarray:
    """The pixels of a frame, height by width by levels and opacity."""
    raw = zlib.decompress(base64.b64decode(frame.pixels))
    return np.frombuffer(raw, np.uint8).reshape(frame.height, frame.width, channels + 1)


@pytest.mark.parametrize(
    ("shape", "reading", "channels", "size", "of", "labels"),
    [
        ((28, 28), "(H, W)", 1, (28, 28), 1, [""]),
        ((3, 20, 30), "(C, H, W)", 3, (20, 30), 1, [""]),
        ((1, 20, 30), "(C, H, W)", 1, (20, 30), 1, [""]),
        ((20, 30, 3), "(H, W, C)", 3, (20, 30), 1, [""]),
        ((5, 20, 30), "(N, H, W)", 1, (20, 30), 5, ["0", "1", "2", "3", "4"]),
        ((2, 3, 8, 9), "(N, C, H, W)", 3, (8, 9), 2, ["0", "1"]),
        ((2, 8, 9, 3), "(N, H, W, C)", 3, (8, 9), 2, ["0", "1"]),
        ((2, 4, 8, 9), "(N, C, H, W)", 1, (8, 9), 8, [f"{n}, {c}" for n in range(2) for c in range(4)]),
        ((7, 2, 3, 8, 9), "[0](N, C, H, W)", 3, (8, 9), 2, ["0, 0", "0, 1"]),
    ],
)
def test_shapes_that_images_have(shape, reading, channels, size, of, labels) -> None:
    """Colour first or last, one or many, activations channel by channel; how it was read is said."""
    found = picture(torch.zeros(shape))
    assert (found.reading, found.channels, found.size, found.of) == (reading, channels, size, of)
    assert [frame.label for frame in found.images] == labels
    assert found.lines == ()


@pytest.mark.parametrize(
    ("shape", "reading", "labels"),
    [((50,), "(T)", [""]), ((3, 40), "(N, T)", ["0", "1", "2"]), ((1, 16), "(N, T)", ["0"])],
)
def test_shapes_that_signals_have(shape, reading, labels) -> None:
    """A vector, and a few long rows."""
    found = picture(torch.zeros(shape))
    assert (found.reading, [line.label for line in found.lines], found.images) == (reading, labels, ())
    assert found.of == len(labels)


def test_pixels_are_the_values() -> None:
    """Bytes stay bytes, values from 0 to 1 are taken as they are, others from the smallest to the largest shown."""
    x = torch.tensor([[0, 51, 255], [1, 2, 3]], dtype=torch.uint8)
    found = picture(x)
    assert (found.scale, found.low, found.high) == ("bytes", 0.0, 255.0)
    assert pixels(found.images[0], 1)[..., 0].tolist() == x.tolist()
    unit = picture(x[:1].repeat(2, 1) / 255)
    assert (unit.scale, pixels(unit.images[0], 1)[0, :, 0].tolist()) == ("unit", [0, 51, 255])
    shown = picture(torch.tensor([[-2.0, 0.0], [2.0, 1.0]]))
    assert (shown.scale, shown.low, shown.high) == ("shown", -2.0, 2.0)
    assert pixels(shown.images[0], 1)[..., 0].tolist() == [[0, 128], [255, 191]]


def test_colours_stand_side_by_side() -> None:
    """Colour first and colour last give the same pixels, through any stride."""
    x = torch.arange(3 * 6 * 7, dtype=torch.uint8).view(3, 6, 7)
    for view in (x, x.permute(1, 2, 0), x.contiguous(memory_format=torch.contiguous_format)[None]):
        drawn = pixels(picture(view).images[0], 3)
        assert drawn[..., :3].tolist() == x.permute(1, 2, 0).tolist()


def test_what_is_not_finite_is_clear() -> None:
    """NaN and infinities are transparent and counted; they do not spoil the scale."""
    x = torch.tensor([[0.0, math.nan], [math.inf, 5.0]])
    found = picture(x)
    assert (found.bad, found.low, found.high) == (2, 0.0, 5.0)
    assert pixels(found.images[0], 1)[..., 1].tolist() == [[255, 0], [0, 255]]
    assert picture(torch.full((4, 4), math.nan)).bad == 16


def test_the_whole_range_of_float64() -> None:
    """A span that overflows is still one scale."""
    largest = torch.finfo(torch.float64).max
    x = torch.tensor([[-largest, 0.0], [largest, largest]], dtype=torch.float64)
    assert pixels(picture(x).images[0], 1)[..., 0].tolist() == [[0, 128], [255, 255]]


def test_large_images_are_thinned_and_few_are_shown() -> None:
    """Every k-th pixel, so that the picture stays small; the first few images of a batch."""
    one = picture(torch.zeros(1000, 600))
    assert (one.step, one.images[0].height, one.images[0].width) == (4, 250, 150)
    many = picture(torch.zeros(100, 1, 300, 200))
    assert (len(many.images), many.of, many.step, many.images[0].height) == (MOST_IMAGES, 100, 4, 75)
    assert max(one.images[0].height, one.images[0].width) <= SIDE_OF_ONE


def test_signals_keep_their_peaks() -> None:
    """A column holds the smallest and largest of its values: a single spike among thousands is drawn."""
    x = torch.zeros(10_000)
    x[4321], x[7000] = 9.0, math.nan
    found = picture(x)
    (line,) = found.lines
    assert (found.step, len(line.high), found.size) == (21, 477, (10_000,))
    assert len(line.high) <= COLUMNS
    assert (max(line.high), line.high.index(9.0), found.bad, line.bad.index(1)) == (9.0, 4321 // 21, 1, 7000 // 21)
    whole = picture(torch.full((32,), math.inf)).lines[0]
    assert all(math.isnan(value) for value in whole.low)
    assert whole.bad == (1,) * 32


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.int64, torch.uint16, torch.bfloat16, torch.float8_e5m2, torch.complex64]
)
def test_every_dtype_is_drawn(dtype: torch.dtype) -> None:
    """Truth values from False to True, complex numbers by magnitude."""
    x = torch.tensor([[0, 1], [1, 0]]).to(dtype)
    assert pixels(picture(x).images[0], 1)[..., 0].tolist() == [[0, 255], [255, 0]]


def test_a_report_has_a_picture_where_one_was_asked_for() -> None:
    """Without asking there is none; where none can be made a named gap says why; the tensor is not changed."""
    x = torch.rand(8, 8, requires_grad=True)
    version = x._version
    assert inspect(x).picture is None
    assert inspect(x, picture=True).picture is not None
    assert x._version == version
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])  # torch refuses to tell its shape
    plain = torch.tensor(1.0), torch.empty(0, 3), torch.zeros(3, 3).to_sparse(), torch.zeros(2, device="meta")
    for nothing in (*plain, nested):
        report = inspect(nothing, picture=True)
        assert report.picture is None
        assert "picture" in [gap.section for gap in report.gaps]


@pytest.mark.parametrize("shape", [(20, 1, 8, 8), (4, 5000)], ids=["images", "signals"])
def test_a_picture_is_one_transfer(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """However many images or signals there are, what is drawn is read from the device together."""
    reads: list[torch.Size] = []
    original = torch.Tensor.cpu
    monkeypatch.setattr(torch.Tensor, "cpu", lambda x: reads.append(x.shape) or original(x))
    picture(torch.zeros(shape))
    assert len(reads) == 1
    assert reads[0].numel() <= MOST_IMAGES * 64 + 3 * 4 * COLUMNS
