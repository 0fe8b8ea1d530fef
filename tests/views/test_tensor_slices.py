"""Slices in words and pictures: where it is bad is said first, and what was not looked at is said too."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensormagic.views.pictures.tensor_values import SliceRows, slices_lines, slices_summary, urgent
from tests.views.samples_tensor import SAMPLES as PLAIN
from tests.views.samples_tensor import as_html, as_text
from tests.views.samples_values import SAMPLES, bad_item, nothing_finite, sampled
from tests.views.snapshots import assert_snapshot


@pytest.mark.parametrize("name", SAMPLES)
def test_text_is_as_stored(name: str) -> None:
    """The whole text, character for character."""
    assert_snapshot(f"tensor_{name}.txt", as_text(SAMPLES[name]))


@pytest.mark.parametrize("name", [name for name in SAMPLES if SAMPLES[name].slices])
def test_slices_are_as_stored(name: str) -> None:
    """The whole disclosure, its rows of colour by their pixels."""
    assert_snapshot(f"tensor_slices_{name}.html", SliceRows(SAMPLES[name]).html())


def test_where_it_is_bad_is_said_first() -> None:
    """The one item that holds all NaN comes before dead and loud channels, and opens the disclosure."""
    report = bad_item()
    assert slices_lines(report) == (
        "All 12 NaN lie in `i=5` (one of 8).",
        "1 of 16 slices is all zeros along j: `j=3`.",
        "`j=9` is far larger than the others along j: its mean magnitude is 40 \u00d7 that of the median slice.",
    )
    assert slices_summary(report) == "NaN only at i=5 of 8, 1 of 16 along j all zeros, j=9 \u00d740"
    assert urgent(report)
    assert "<h3>By slice</h3>" in as_html(report)


def test_several_bad_slices_are_listed_with_their_counts() -> None:
    """Where no single slice holds all, the first few are named, and how many more there are."""
    report = replace(bad_item(), slices=bad_item().slices[1:])
    assert slices_lines(report)[0] == "3 of 16 slices along j hold NaN: `j=1` (4 NaN), `j=2` (4 NaN) and `j=7` (4 NaN)."


def test_what_was_not_looked_at_is_said() -> None:
    """A sample never passes for the whole, neither for NaN nor for zeros."""
    text = " ".join(slices_lines(sampled()))
    assert "and 2 more, of the 5 elements looked at in each slice" in text
    assert "are all zeros along i in the 5 elements looked at of each" in text
    assert "Colours come from a sample: 5 of 512 elements of each slice along i." in text


def test_bad_everywhere_is_no_news_of_a_slice() -> None:
    """Where every slice is bad no slice is to blame: the disclosure stays closed."""
    assert (slices_summary(nothing_finite()), urgent(nothing_finite())) == ("no outliers", False)


def test_a_tensor_without_slices_has_no_disclosure() -> None:
    """A vector or a scalar shows no empty section."""
    assert "By slice" not in as_html(PLAIN["scalar"])
