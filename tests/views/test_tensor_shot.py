"""Pictures of values in the panel and in the terminal, with how they are to be read."""

from __future__ import annotations

import base64
import random
import zlib
from dataclasses import replace
from xml.etree import ElementTree as ET

from tensormagic import views
from tensormagic.reports import ImageFrame, TensorPicture, TensorReport
from tensormagic.views.markup import LONGEST_LINE
from tensormagic.views.pictures.tensor_shot import Shot, heading, notes, signals_svg
from tests.views.markup_reader import Page
from tests.views.samples_tensor import SAMPLES, as_html, images, packed, signals
from tests.views.snapshots import assert_snapshot


def colour() -> TensorReport:
    """One pixel of colour."""
    frame = ImageFrame("", 1, 1, packed(255, 128, 0, 255))
    return replace(SAMPLES["vector"], picture=TensorPicture("(C, H, W)", 3, 0.0, 1.0, "unit", (frame,), size=(1, 1)))


def shot(report: TensorReport) -> Shot:
    """The picture."""
    assert report.picture is not None
    return Shot(report, report.picture)


def test_images_are_as_stored() -> None:
    """The whole block, pixel for pixel."""
    assert "data:image/png" in shot(images()).html()
    assert_snapshot("tensor_shot_images.txt", "\n".join(shot(images()).text(100)))


def test_signals_are_as_stored() -> None:
    """The chart, and its bars in the terminal."""
    picture = signals().picture
    assert picture is not None
    assert_snapshot("tensor_shot_signals.svg", signals_svg(picture))
    assert_snapshot("tensor_shot_signals.txt", "\n".join(shot(signals()).text(100)))


def test_a_png_holds_the_pixels() -> None:
    """Levels and opacity arrive unchanged, of grey and of colour."""
    for report, kind, expected in (
        (images(), 4, [b"\0" + bytes([0, 255, 128, 255, 255, 255]), b"\0" + bytes([0, 0, 64, 255, 192, 255])]),
        (colour(), 6, [b"\0" + bytes([255, 128, 0, 255])]),
    ):
        source = next(given["src"] for name, given in Page(shot(report).html()).elements if name == "img")
        assert source is not None
        data = base64.b64decode(source.removeprefix("data:image/png;base64,"))
        assert (data[24], data[25]) == (8, kind)
        at = data.index(b"IDAT")
        length = int.from_bytes(data[at - 4 : at], "big")
        assert zlib.decompress(data[at + 4 : at + 4 + length]) == b"".join(expected)


def test_scale_and_number_are_said() -> None:
    """What is black and white, how many of how many, every which pixel, what could not be drawn."""
    picture = images().picture
    assert picture is not None
    assert heading(images(), picture) == "2 of 5 images, 8 \u00d7 12 pixels; v is read as (N, H, W)"
    assert notes(picture) == (
        "black \u22121.5, white 2: the smallest and largest shown, one scale for all",
        "every 4th pixel across and down",
        "1 pixel that is NaN or infinite is hatched",
    )
    text = " ".join(Page(as_html(images())).text.split())
    assert "every 4th pixel across and down" in text


def test_scales_that_are_no_choice_are_called_so() -> None:
    """Bytes, truth values and values from 0 to 1 are drawn as they are."""
    picture = colour().picture
    assert picture is not None
    assert notes(picture) == ("darkest 0, brightest 1: values as they are",)
    assert notes(replace(picture, scale="bytes", high=255.0))[0].endswith("brightest 255: bytes as they are")
    assert notes(replace(picture, scale="truth", channels=1)) == ("black 0, white 1: False and True",)


def test_small_images_are_enlarged_by_whole_factors() -> None:
    """A pixel stays a square: widths and heights are multiples of the image's."""
    sizes = [(given["width"], given["height"]) for name, given in Page(shot(images()).html()).elements if name == "img"]
    assert sizes == [("96", "64"), ("96", "64")]


def test_a_line_never_bridges_what_is_no_number() -> None:
    """Two runs of a signal are two paths, a lone value is a dot, a column of several is a band, bad ones are marked."""
    picture = signals().picture
    assert picture is not None
    root = ET.fromstring(signals_svg(picture))
    classes = [element.get("class") for element in root.iter() if element.get("class")]
    assert (classes.count("line"), classes.count("band"), classes.count("dot"), classes.count("bad")) == (3, 1, 1, 2)


def test_without_a_picture_nothing_is_said_of_one() -> None:
    """A panel that was not asked for one has none."""
    assert "<h3>Picture</h3>" not in as_html(SAMPLES["vector"])


def test_a_picture_of_noise_is_drawn_whole() -> None:
    """Its data are a long text that compresses badly, and no line to be cut for being long."""
    noise = random.Random(0).randbytes(40 * 40)
    frame = ImageFrame("", 40, 40, packed(*(level for byte in noise for level in (byte, 255))))
    report = replace(images(), picture=TensorPicture("(H, W)", 1, 0.0, 1.0, "unit", (frame,), size=(40, 40)))
    assert len(frame.pixels) > LONGEST_LINE
    drawn = views.render(report, "txt").partition("PICTURE")[2].split("\n")[1:21]
    assert [len(line.strip()) > 30 for line in drawn] == [True] * 20
    assert shot(report).html() in views.render(report, "html")
