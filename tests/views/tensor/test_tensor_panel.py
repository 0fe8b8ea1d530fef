"""The panel of one tensor in every form, as stored, and what of its pictures no stored sample shows."""

from __future__ import annotations

import base64
import random
import re
import zlib
from dataclasses import replace

import pytest
import torch

from tensormagic import inspect, views
from tensormagic.reports import OUTSIDE, ImageFrame, StripCell, TensorPicture, TensorReport
from tensormagic.views.markup import LONGEST_LINE, text_width
from tensormagic.views.panels.why import path_svg
from tensormagic.views.pictures import tensor_kinds
from tensormagic.views.pictures.tensor_elements import drawn_layout
from tensormagic.views.pictures.tensor_grid import strip_html
from tensormagic.views.pictures.tensor_shot import Shot, notes, signals_svg
from tensormagic.views.pictures.tensor_values import SliceRows, slices_lines, slices_summary, urgent
from tensormagic.views.text_canvas import ZERO
from tensormagic.views.to_svg import WIDTH
from tests.views.markup_reader import Page
from tests.views.samples_tensor import SAMPLES, as_html, as_svg, as_text, colour, images, packed, signals
from tests.views.samples_values import SAMPLES as VALUES, autograd_html, bad_item, graph, graph_path, nothing_finite
from tests.views.snapshots import assert_snapshot


def shot(report: TensorReport) -> Shot:
    """The picture of a tensor's values."""
    return Shot(report, report.picture)


SVGS = ("expanded", "causal_scores", "all_missing")
STORED = {
    **{f"tensor_{name}.html": lambda name=name: as_html(SAMPLES[name])
       for name in (*SVGS, "scalar", "empty", "hostile")},
    **{f"tensor_{name}.svg": lambda name=name: as_svg(SAMPLES[name]) for name in SVGS},
    **{f"tensor_slices_{name}.html": lambda report=report: SliceRows(report).html()
       for name, report in VALUES.items() if report.slices},
    **{f"kind_sparse.{form}": lambda form=form: views.draw(SAMPLES["sparse"], form) for form in ("html", "svg")},
    "tensor_shot_signals.svg": lambda: signals_svg(signals().picture),
    "tensor_autograd.html": lambda: autograd_html(graph()),
    "tensor_autograd.svg": lambda: path_svg(graph_path(), "loss"),
}  # fmt: skip


@pytest.mark.parametrize("name", STORED)
def test_form_is_as_stored(name: str) -> None:
    """Character for character, PNGs pixel for pixel."""
    assert_snapshot(name, STORED[name]())


def test_a_partly_read_strip_cell_shows_how_much() -> None:
    """A cell of which an eighth is read is filled an eighth of its height, never so little that it cannot be seen."""
    picture = drawn_layout(SAMPLES["causal_scores"])
    strip = replace(picture.strip, cells=(StripCell(0, 800, 400, 400), StripCell(800, 1600, 8, 8)))
    html = strip_html(SAMPLES["causal_scores"], replace(picture, layout=replace(picture.layout, strip=strip)))
    assert re.findall(r"height:(\d+)px", html) == ["11", "4"]


@pytest.mark.parametrize(
    ("name", "label"), [("images", "rows of images"), ("a" * 40, f"rows of {'a' * 15}…")], ids=["short", "long"]
)
def test_label_of_the_base_rows_has_its_room(name: str, label: str) -> None:
    """The column of labels under the storage is as wide as its longest label; a very long name is cut."""
    base = SAMPLES["transpose_slice"]
    layout = replace(base.layout, strip=replace(base.layout.strip, row_name=name))
    html = as_html(replace(base, layout=layout))
    assert f"<th>{label}</th><td" in html
    assert int(re.search(r'<colgroup><col style="width:(\d+)px">', html)[1]) >= text_width(label, 12) + 8


def test_an_element_that_is_read_often_keeps_its_box() -> None:
    """A thousand million reads of one element are told in few characters, beside its value."""
    report = inspect(torch.zeros(1).expand(1_000_000_000), "big")
    lines = str(report).partition(" LAYOUT")[2].split("\n")
    at = next(number for number, line in enumerate(lines) if line.startswith(" value"))
    assert [line[9:] for line in lines[at - 1 : at + 2]] == ["┌──┐", "│ 0│", "└──┘"]
    assert "<small>×1 G</small>" in as_html(report)
    for page in (as_html(report), as_svg(report)):
        assert "×1000000000" not in page


def test_a_wide_grid_stays_within_its_picture() -> None:
    """Twelve pairs of long numbers leave no room beside them: what is said of one of them stands below."""
    page = as_svg(inspect(torch.full((12,), complex(-1.234e300, 3.2e238), dtype=torch.complex128), "x"))
    _ground, *boxes = [{key: float(value) for key, value in re.findall(r' (x|width)="([\d.]+)"', tag)}
             for tag in re.findall(r"<rect[^>]*>", page)]  # fmt: skip
    assert max(box.get("x", 0) + box["width"] for box in boxes) <= WIDTH
    assert "offset(6) = 0 + 1\u00b76 = 6" in page


@pytest.mark.parametrize("shape", [(6, 40), (64, 64), (300, 300), (2, 100, 100)])
def test_a_sample_shows_the_one_nan(shape: tuple[int, ...]) -> None:
    """Of a grid that is thinned, the row and the column of the first NaN are kept."""
    bad = torch.randn(*shape)
    bad[..., 3, 7] = float("nan")
    assert "nan" in str(inspect(bad, "bad")).partition("LAYOUT")[2].partition("FORMAT")[0]


def test_cells_of_a_map_say_what_is_stored_there() -> None:
    """A row without elements is named, as is what lies behind the end of a row that is shorter than others."""
    kind = SAMPLES["sparse"].kinds[0]
    assert tensor_kinds.cell_title(replace(kind.map, places=((OUTSIDE,),)), 0, 0).endswith("has ended")
    assert "7 stored in a cell" in Page(as_html(SAMPLES["joined"])).text


def test_slices_with_one_to_blame_are_open() -> None:
    """Where every slice is bad no slice is to blame; several bad ones are listed with their counts."""
    assert "<h3>By slice</h3>" in as_html(bad_item())
    assert (slices_summary(nothing_finite()), urgent(nothing_finite())) == ("no outliers", False)
    report = replace(bad_item(), slices=bad_item().slices[1:])
    assert slices_lines(report)[0] == "3 of 16 slices along j hold NaN: `j=1` (4 NaN), `j=2` (4 NaN) and `j=7` (4 NaN)."


def test_a_slice_that_is_tiny_beside_the_largest_is_not_all_zeros() -> None:
    """The lowest bar and the lightest colour; what is zero everywhere has signs of its own."""
    slices = replace(bad_item().slices[1], cell_bad=(0, 0, 0))
    least, small, zero = (
        SliceRows(replace(bad_item(), slices=(replace(slices, levels=(level, 1e200, 0.0)),)))
        for level in (1e-200, 1e150, 0.0)
    )
    assert next(least.text(100)).split()[1] == "\u2581\u2588" + ZERO
    drawn, like, unlike = (Page(each.html()).attributes("img")[0]["src"] for each in (least, small, zero))
    assert drawn == like != unlike


def test_a_png_holds_the_pixels_enlarged_by_whole_factors() -> None:
    """Levels and opacity arrive unchanged, of grey and of colour; a pixel stays a square."""
    grey = [b"\0" + bytes([0, 255, 128, 255, 255, 255]), b"\0" + bytes([0, 0, 64, 255, 192, 255])]
    for report, kind, expected in ((images(), 4, grey), (colour(), 6, [b"\0" + bytes([255, 128, 0, 255])])):
        source = Page(shot(report).html()).attributes("img")[0]["src"]
        data = base64.b64decode(source.removeprefix("data:image/png;base64,"))
        assert (data[24], data[25]) == (8, kind)
        at = data.index(b"IDAT")
        length = int.from_bytes(data[at - 4 : at], "big")
        assert zlib.decompress(data[at + 4 : at + 4 + length]) == b"".join(expected)
    sizes = [(given["width"], given["height"]) for given in Page(shot(images()).html()).attributes("img")]
    assert sizes == [("96", "64"), ("96", "64")]


def test_the_scale_is_said() -> None:
    """Bytes, truth values and values from 0 to 1 are drawn as they are."""
    picture = colour().picture
    assert notes(picture) == ("darkest 0, brightest 1: values as they are",)
    assert notes(replace(picture, scale="bytes", high=255.0))[0].endswith("brightest 255: bytes as they are")
    assert notes(replace(picture, scale="truth", channels=1)) == ("black 0, white 1: False and True",)


def test_a_picture_of_noise_is_drawn_whole() -> None:
    """Its data are a long text that compresses badly, and no line to be cut for being long."""
    noise = random.Random(0).randbytes(40 * 40)
    frame = ImageFrame("", 40, 40, packed(*(level for byte in noise for level in (byte, 255))))
    report = replace(images(), picture=TensorPicture("(H, W)", 1, 0.0, 1.0, "unit", (frame,), size=(40, 40)))
    assert len(frame.pixels) > LONGEST_LINE
    drawn = views.render(report, "txt").partition("PICTURE")[2].split("\n")[1:21]
    assert [len(line.strip()) > 30 for line in drawn] == [True] * 20
    assert shot(report).html() in views.render(report, "html")


def test_parts_of_a_long_expression_keep_what_tells_them_apart():
    """A nested tensor without a name: each of its parts ends in the method that gives it, in HTML, text and SVG."""
    expression = "torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)])"
    report = inspect(torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)]), expression)
    for shown in (as_html(report), as_text(report), as_svg(report)):
        assert "_tensor_size()" in shown
        assert "tensor_strides()" in shown
