"""Random generators as a person sees them: exact text, and the panel."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensormagic.renderers.rng import rng_html, rng_text
from tensormagic.renderers.rng.rng_words import verdict
from tensormagic.reports import Cell
from tests.renderers import samples_rng
from tests.renderers.markup_reader import Page
from tests.renderers.snapshots import assert_snapshot

NAMES = ["standing", "run", "parted", "ended", "same"]


@pytest.mark.parametrize("name", NAMES)
def test_the_text(name):
    """Word for word."""
    assert_snapshot(f"rng_{name}.txt", rng_text.render(samples_rng.SAMPLES[name]))


def test_the_listing_has_each_draw_beside_its_line():
    """Number, code, and who drew there; a line without draws stands alone."""
    page = Page(rng_html.render(samples_rng.run()))
    text = page.text
    assert "torch, CPU: randn 3 times, 36 values" in text
    assert "numpy.random: drew (seen afterwards) 3 times, 4 values, since line 3" in text
    assert "seeded, or its state set" in text


def test_a_long_cell_is_a_table():
    """Beyond eighty lines the draws are listed by line instead."""
    run = samples_rng.run()
    long = replace(run, cell=Cell("cell.py", 4, ("x",) * 200))
    assert "LINE" in rng_text.render(long)
    assert "3 to 5" in rng_text.render(long)


def test_one_draw_is_the_same_and_two_are():
    """The sentence about two runs agrees with its number."""
    one = replace(samples_rng.ended(), same=1)
    assert verdict(one).startswith("1 draw is the same; ")
    assert verdict(replace(one, difference="values")).startswith("After 1 draw that is the same, the next one ")
    assert verdict(replace(one, difference="values", same=2)).startswith("After 2 draws that are the same, the next ")
