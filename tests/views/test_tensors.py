"""%tensors as HTML and text: exact numbers, bounded, complete without scripts."""

from __future__ import annotations

import json

from tensormagic import views
from tensormagic.views import figure
from tensormagic.views.markup import unpacked
from tensormagic.views.panels.tensors import TensorRows, row_cells
from tests.views.markup_reader import Page
from tests.views.samples_sharing import ALIASES, TABLES, row


def test_many_rows_are_cut_to_the_largest():
    """A hundred in the page, the largest; all of them in the packed data."""
    html = views.draw(TABLES["many"], "html")
    page = Page(html)
    assert "The 100 largest of 2000 are listed; the totals are over all." in page.text
    assert page.text.count("ts[") == 100
    assert "ts[1999]" in page.text
    packed = next(content for kind, content in page.scripts if kind == "text/plain")
    rows = json.loads(unpacked(packed))["rows"]
    assert (len(rows), rows[7][0], rows[7][9]) == (2000, "ts[7]", 28)
    assert "the 40 largest of 2000" in views.draw(TABLES["many"], "txt")
    columns = {column.title: column.in_terminal for column in TensorRows(TABLES["many"]).drawn().columns}
    assert columns["device"] is False, "what is above the rows tells the only device"


def test_panels_share_style_and_viewer():
    """Of a collection's panels the style sheet and the script stand there once, whatever their number."""
    html = views.draw(TABLES["collection"], "html")
    assert html.count("<style>") == 1  # the table's own, which holds the panels' rules
    assert ".tm-tensor" in html.split("</style>")[0]
    assert html.count("<script>") == 2
    assert html.count('class="tm tm-tensor"') == 2


def test_long_names_keep_both_ends():
    """The last part says most, and so does the first."""
    name = row_cells(row("model.encoder.layers.11.attention.output.dense.weight"))[0]
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
