"""The panel of one tensor as HTML."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from tensormagic.reports import StripCell
from tensormagic.views import theme
from tensormagic.views.markup import text_width
from tensormagic.views.pictures.tensor_elements import drawn_layout
from tensormagic.views.pictures.tensor_grid import cell_title, strip_html
from tests.views.markup_reader import Page
from tests.views.samples_tensor import SAMPLES, as_html
from tests.views.snapshots import assert_snapshot


@pytest.mark.parametrize("name", ["expanded", "causal_scores", "scalar", "empty", "hostile", "all_missing"])
def test_panel_is_as_stored(name: str) -> None:
    """The whole markup, character for character."""
    assert_snapshot(f"tensor_{name}.html", as_html(SAMPLES[name]))


def test_static_panel_works_one_element_through() -> None:
    """Without a script: one cell of the grid and its cell of the strip are marked, the formula has its numbers."""
    html = as_html(SAMPLES["transpose_slice"])
    page = Page(html)
    marked = [found.get("title") for found in page.with_class("tm-on") if found.get("title")]
    assert marked == ["x[2, 1] = 15, offset 15", "offset 15: read"]
    assert "offset(2, 1) = 1 + 1·2 + 12·1 = 15" in page.text
    assert "the same element is a[2, 3]" in page.text


def test_cells_carry_their_own_colours_and_numbers() -> None:
    """Every cell names background and ink as hex and holds value and offset: any sanitiser leaves it readable."""
    html = as_html(SAMPLES["transpose_slice"])
    grid = re.search(r'<table class="tm-cells tm-grid">.*?</table>', html)[0]
    cells = re.findall(r'<td[^>]*style="background:(#\w{6});color:(#\w+)[^>]*>(.*?) <small>(\d+)</small>', grid)
    assert [int(offset) for *_, offset in cells] == [1, 13, 2, 14, 3, 15, 4, 16]
    assert [re.sub("<.*?>", "", value) for _, _, value, _ in cells] == ["1", "13", "2", "nan!", "3", "15", "4", "16"]
    assert all(theme.ink_on(background) == ink for background, ink, *_ in cells)
    assert not re.search(r"style=[^>]*var\(", html)


def test_sanitised_panel_still_says_everything() -> None:
    """Styles, scripts and classes gone, the text still tells header, findings, offsets, sharing and statistics."""
    html = re.sub(r"<(style|script).*?</\1>", "", as_html(SAMPLES["transpose_slice"]), flags=re.DOTALL)
    text = Page(html).text
    for part in ("x (4, 2) float32 cpu view of a 32 B of a 96 B storage",
                 "min 1 max 16 mean 7.714 NaN 1 Inf 0", "not contiguous", "TM401", "TM201",
                 "stride (1, 12); contiguous would be (2, 1)", "rows of a a[0] a[1] a[2] a[3]",
                 "a view of the same base 8 of 24 shared, now 1", "n NumPy array 8 of 24 none",
                 "NaN 1", "mean 7.714", "no graph"):  # fmt: skip
        assert part in text


def test_unread_storage_is_hatched_and_explained() -> None:
    """16 of the 24 storage elements are not read: 16 hatched cells, and the legend says what hatching means."""
    html = as_html(SAMPLES["transpose_slice"])
    assert html.count(": not read") == 16
    assert "&nbsp;</span> not read" in html
    assert "not read" not in Page(as_html(SAMPLES["complex"])).text


def test_large_tensor_is_shown_as_maps_that_say_what_of_what() -> None:
    """1024 by 1024 by 64: two pictures of a slice, with axes, and the sampling in words."""
    page = Page(as_html(SAMPLES["causal_scores"]))
    alts = [found["alt"] for found in page.attributes("img")]
    size = "32 by 32 of 1024 by 1024 elements of one slice of scores"
    assert [alt.partition(", from")[0] for alt in alts[:2]] == [
        f"Value at each index: {size}",
        f"Storage offset at each index: {size}",
    ]
    assert "Showing 32 × 32 of 1024 × 1024: j 0, 32, 64 … 992" in page.text
    assert "a cell is 1 048 576 elements" in page.text.replace("\u00a0", " ")


def test_a_partly_read_strip_cell_shows_how_much() -> None:
    """A cell of which an eighth is read is filled an eighth of its height, never so little that it cannot be seen."""
    picture = drawn_layout(SAMPLES["causal_scores"])
    strip = replace(picture.strip, cells=(StripCell(0, 800, 400, 400, 1), StripCell(800, 1600, 8, 8, 401)))
    html = strip_html(SAMPLES["causal_scores"], replace(picture, layout=replace(picture.layout, strip=strip)))
    assert re.findall(r"height:(\d+)px", html) == ["11", "4"]


def test_zero_stride_says_times_read() -> None:
    """An expanded tensor's strip counts how often each element is read."""
    page = Page(as_html(SAMPLES["expanded"]))
    assert "value 0.1 ×6 -0.25 ×6 0 ×6 0.4 ×6" in page.text
    assert "16 B stored, seen as 96 B" in page.text


def test_many_aliases_are_cut_with_their_number() -> None:
    """Forty that share are twelve and a number."""
    assert "and 28 more on this storage" in Page(as_html(SAMPLES["largest"])).text


def test_viewer_data_is_what_the_static_page_shows() -> None:
    """The viewer gets the same strides, values and strip, as JSON."""
    scripts = dict(Page(as_html(SAMPLES["transpose_slice"])).scripts)
    data = json.loads(scripts["application/json"])
    assert data["stride"] == [1, 12]
    assert data["values"][2] == ["3", "15"]
    assert data["strip"] == [0, 24, 1]
    assert data["base"] == {"name": "a", "shape": [4, 6]}
    assert sum(data["reads"]) == 8


def test_typical_panel_is_small() -> None:
    """The mockup's panel under 55 KB, a large tensor's, which can be turned, under 70 KB."""
    assert len(as_html(SAMPLES["transpose_slice"]).encode()) < 55_000
    assert len(as_html(SAMPLES["causal_scores"]).encode()) < 70_000


@pytest.mark.parametrize(
    ("cell", "title"),
    [
        (StripCell(5, 6, 0, 0), "offset 5: not read"),
        (StripCell(15, 16, 1, 1, 6), "offset 15: read"),
        (StripCell(3, 4, 1, 6, 4), "offset 3: read 6 times"),
        (StripCell(0, 100, 100, 100, 1), "0 to 99: all read"),
        (StripCell(0, 100, 50, 50, 1), "0 to 99: 50 of 100 read"),
        (StripCell(0, 100, None, None), "0 to 99: reads not counted"),
    ],
)
def test_strip_cell_says_what_is_read_of_it(cell: StripCell, title: str) -> None:
    """One element or many, read once, often, partly, or not known."""
    assert cell_title(cell) == title


def test_label_of_the_base_rows_has_its_room() -> None:
    """The column of labels under the storage is as wide as its longest label; a very long name is cut."""
    base = SAMPLES["transpose_slice"]
    assert base.layout is not None
    assert base.layout.strip is not None
    for row_name, label in (("images", "rows of images"), ("a" * 40, f"rows of {'a' * 15}…")):
        layout = replace(base.layout, strip=replace(base.layout.strip, row_name=row_name))
        html = as_html(replace(base, layout=layout))
        assert f"<th>{label}</th><td" in html
        room = int(re.search(r'<colgroup><col style="width:(\d+)px">', html)[1])  # type: ignore[index]
        assert room >= text_width(label, 12) + 8


def test_contiguous_tensor_does_not_jump() -> None:
    """Of a contiguous tensor it is said that it is read in memory order; of a slice, how it jumps."""
    assert "Contiguous: read row by row" in as_html(SAMPLES["causal_scores"])
    assert "jumps +12, −11" in as_html(SAMPLES["transpose_slice"])
