"""%tensors as HTML and text: exact numbers, bounded, complete without scripts."""

from __future__ import annotations

import json
import re

import pytest

from tensormagic.renderers import figure
from tensormagic.renderers.basics.markup import unpacked
from tensormagic.renderers.sharing import tensors_html, tensors_text, tensors_words
from tests.renderers.markup_reader import Page
from tests.renderers.samples_sharing import ALIASES, TABLES, row
from tests.renderers.snapshots import assert_snapshot

TABLE_CASES = ("few", "none", "hostile")


@pytest.mark.parametrize("case", TABLE_CASES)
def test_tensors_snapshots(case):
    """Exactly what is stored, as text and as HTML."""
    assert_snapshot(f"tensors_{case}.txt", tensors_text.render(TABLES[case]))
    assert_snapshot(f"tensors_{case}.html", tensors_html.render(TABLES[case]))


def test_static_table_is_complete():
    """Styles and scripts gone: every row, what all take, letters of shared memory, gradient states."""
    html = re.sub(r"<(style|script).*?</\1>", "", tensors_html.render(TABLES["few"]), flags=re.DOTALL)
    text = Page(html).text
    for words in ("5 tensors, 1 array", "168 B on cpu: 5 in 3 pieces of memory, each counted once", "x +2",
                  "float32 sparse_csr", "57.2 MiB", "leaf, grad", "NllLoss"):  # fmt: skip
        assert words in text
    assert [found["style"] for found in Page(html).with_class("tm-chip")] == ["background-color:#56b4e9;color:#000"] * 3


def test_many_rows_are_cut_to_the_largest():
    """A hundred in the page, the largest; all of them in the packed data."""
    html = tensors_html.render(TABLES["many"])
    page = Page(html)
    assert "The 100 largest of 2000 are listed; the totals are over all." in page.text
    assert page.text.count("ts[") == 100
    assert "ts[1999]" in page.text
    packed = next(content for kind, content in page.scripts if kind == "text/plain")
    rows = json.loads(unpacked(packed))["rows"]
    assert (len(rows), rows[7][0], rows[7][9]) == (2000, "ts[7]", 28)
    assert "the 40 largest of 2000" in tensors_text.render(TABLES["many"])


def test_panels_share_style_and_viewer():
    """Of a collection's panels the style sheet and the script stand there once, whatever their number."""
    html = tensors_html.render(TABLES["collection"])
    assert html.count("<style>") == 1  # the table's own, which holds the panels' rules
    assert ".tm-tensor" in html.split("</style>")[0]
    assert html.count("<script>") == 2
    assert html.count('class="tm tm-tensor"') == 2


def test_long_names_keep_both_ends():
    """The last part says most, and so does the first."""
    name = tensors_words.row_cells(row("model.encoder.layers.11.attention.output.dense.weight"))[0]
    assert len(name) == 34
    assert name.startswith("model.enc")
    assert name.endswith("dense.weight")


def test_figures():
    """Bars for what is read; the largest tensors first."""
    drawn = figure(ALIASES["asked"], "memory_map")
    assert [round(start) for start in drawn.data[0].base[:3]] == [0, 4, 8]
    assert set(drawn.data[0].y) == {"A  a", "A  x", "A  n", "A  q", "A  e"}
    sizes = figure(TABLES["few"], "sizes")
    assert list(sizes.data[0].x)[:2] == [60_000_000, 96]
    assert sizes.data[0].y[1].endswith("  A")


def test_a_narrow_table_leaves_out_the_only_device():
    """The header tells it; what each tensor's gradient is has no other place. Two devices are told in each row."""
    one = tensors_text.render(TABLES["many"], width=66)
    assert ("DEVICE" in one, "GRADIENT" in one, "on cpu" in one) == (False, True, True)
    assert "DEVICE" in tensors_text.render(TABLES["many"], width=100)
    assert "DEVICE" in tensors_text.render(TABLES["few"], width=70)
