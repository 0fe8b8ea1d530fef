"""Several tensors on one strip: what is drawn, and what is said of them."""

from __future__ import annotations

import re

import pytest

from tensormagic import views
from tensormagic.views.nodes import Findings
from tensormagic.views.panels.overlay import view
from tests.views.markup_reader import Page
from tests.views.samples_overlay import SAMPLES


def rows(html: str) -> list[list[tuple[int, str]]]:
    """Width in cells and text of every cell of the strips."""
    found = re.findall(r'<tr class="tm-strip">(.*?)</tr>', html)
    cells = (re.findall(r"<td(?: colspan=\"(\d+)\")?[^>]*>(.*?)</td>", row) for row in found)
    return [[(int(span or 1), text) for span, text in row] for row in cells]


def test_an_element_is_as_wide_as_it_has_bytes() -> None:
    """Over a ruler of 24 bytes: six float32 of four, six int8 of one, six float16 of two, and the gaps between."""
    floats, bytes_, halves = rows(views.draw(SAMPLES["bytes"], "html"))
    assert floats == [(4, str(at)) for at in range(6)]
    assert bytes_ == [(1, "")] * 3 + [(1, str(at)) for at in range(6)] + [(1, "")] * 15
    assert halves == [cell for at in range(6) for cell in ((2, ""), (2, str(at)))]


@pytest.mark.parametrize("name", ["views", "bytes", "large", "eight"])
def test_every_row_is_as_wide_as_the_ruler(name: str) -> None:
    """No row is longer or shorter than another, or the columns would not stand over each other."""
    widths = {sum(span for span, _ in row) for row in rows(views.draw(SAMPLES[name], "html"))}
    assert widths == {len(SAMPLES[name].shared[0].rows[0].bytes_read)}


def test_what_they_have_in_common_is_said() -> None:
    """Sentences for few; for many a table, and who has nothing in common."""
    few = Page(views.draw(SAMPLES["bytes"], "html")).text
    assert "f and b have 6 B in common: 3 elements of f, 6 elements of b" in few
    assert "b and h have 3 B in common: 3 elements of b, 2 elements of h" in few
    many = Page(views.draw(SAMPLES["views"], "html")).text
    assert "nothing in common: x and y; y and e" in many
    assert "also in a also in x also in y also in e also in n" in many
    assert "e float32 (3, 6) (0, 1) 18 24 6 4 0 – 6" in many
    assert "c has its own storage." in many


def test_apart_is_one_line() -> None:
    """Nothing to draw, so nothing is drawn."""
    panel = view(SAMPLES["apart"])
    assert panel.facts == ["no shared memory"]
    assert panel.body[1:] == ["f and m share no memory: each has its own storage."]


def test_what_cannot_be_compared_is_named() -> None:
    """A sparse tensor has no single memory; the other lies by itself."""
    (found,) = [node for node in view(SAMPLES["no_memory"]).body if isinstance(node, Findings)]
    (gap,) = found.gaps
    assert (gap.section, gap.reason) == ("s", "its memory cannot be compared: its layout is sparse_coo")
