"""The kinds of a tensor, drawn: what is stored where, in HTML, SVG and text."""

from __future__ import annotations

import re

import pytest

from tensormagic.views.pictures.tensor_kinds import Stored, cell_title, group_title, map_caption
from tests.views.markup_reader import Page
from tests.views.samples_tensor import SAMPLES, as_html, as_svg, as_text
from tests.views.snapshots import assert_snapshot

SPARSE = SAMPLES["sparse"].kinds[0]


@pytest.mark.parametrize(("form", "render"), [("html", as_html), ("svg", as_svg), ("txt", as_text)])
def test_sparse_matrix_is_as_stored(form, render):
    """The whole picture, character for character."""
    assert_snapshot(f"kind_sparse.{form}", render(SAMPLES["sparse"]))


def test_a_stored_element_has_one_colour_everywhere():
    """The colour of the second stored value is the same in the matrix, in the array of values and in the SVG."""
    html = Stored(SPARSE).html()
    colours = re.findall(r'style="background:(#\w{6});[^"]*" title="(?:row 2, column 0|values\[1\])', html)
    assert len(colours) == 2
    assert len(set(colours)) == 1
    assert colours[0] in as_svg(SAMPLES["sparse"])


def test_cells_say_what_they_are():
    """Stored, not stored, ended; several for one place; a row without any."""
    ragged = SAMPLES["hostile_kind"].kinds[0].map
    assert cell_title(SPARSE.map, 2, 0) == "row 2, column 0: -2, place 1"
    assert cell_title(SPARSE.map, 0, 0) == "row 0, column 0: not stored"
    assert cell_title(ragged, 0, 1).endswith("has ended")
    assert [group_title(SPARSE.stored, group) for group in SPARSE.stored.groups] == [
        "row 0 owns places 0 to 0, says crow_indices",
        "row 1 is empty: crow_indices assigns it no elements",
        "row 2 owns places 1 to 2, says crow_indices",
    ]


def test_joined_cells_say_how_many_and_from_how_many():
    """A map whose cells are joined tells the size of a cell, and that not every stored element was looked at."""
    caption = map_caption(SAMPLES["hostile_kind"].kinds[1].map)
    assert "a cell is 50 \u00d7 50" in caption
    assert "counted from 11 of the stored elements" in caption
    assert "7 stored in a cell" in Page(as_html(SAMPLES["hostile_kind"])).text


def test_what_is_really_stored_stands_in_the_first_line():
    """A sparse tensor's bytes are those of its arrays, with what it seems to have beside them."""
    for text in (Page(as_html(SAMPLES["sparse"])).text, as_text(SAMPLES["sparse"])):
        assert "68 B stored, seen as 36 B" in " ".join(text.split())


def test_plain_tensors_have_no_such_section():
    """Nothing is said of a tensor that is nothing but plain memory."""
    assert not Page(as_html(SAMPLES["transpose_slice"])).with_class("tm-stored")
