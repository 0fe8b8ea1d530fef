"""The tensor in a terminal."""

from __future__ import annotations

import pytest
import torch

from tensormagic import inspect
from tensormagic.views.text_canvas import sparkline
from tests.views.samples_tensor import SAMPLES, as_html, as_svg, as_text
from tests.views.snapshots import assert_snapshot


@pytest.mark.parametrize("name", [name for name in SAMPLES if name not in {"largest", "transpose_slice"}])
def test_text_is_as_stored(name: str) -> None:
    """The whole text, character for character."""
    assert_snapshot(f"tensor_{name}.txt", as_text(SAMPLES[name]))


def test_wire_leads_from_the_element_to_its_place_in_the_storage() -> None:
    """The wire leaves row i=2 and its arrow stands over the cell of offset 15, above its last digit."""
    lines = as_text(SAMPLES["transpose_slice"]).split("\n")
    row = next(line for line in lines if line.startswith(" i=2"))
    arrow = next(line for line in lines if "\u25bc" in line)
    offsets = lines[lines.index(arrow) + 4]
    assert row.rstrip().endswith("\u2500\u2510")
    assert row.index("\u2510") == arrow.index("\u25bc")
    assert offsets[: arrow.index("\u25bc") + 1].endswith(" 15")


def test_sparkline_tells_empty_bins_from_small_ones() -> None:
    """An empty bin is a dot, one in a thousand is the lowest bar."""
    assert sparkline((0, 1, 500, 1000)) == "·▁▅█"


def test_an_element_that_is_read_often_keeps_its_box() -> None:
    """A thousand million reads of one element are told in few characters, beside its value."""
    report = inspect(torch.zeros(1).expand(1_000_000_000), "big")
    lines = str(report).partition(" LAYOUT")[2].split("\n")
    at = next(number for number, line in enumerate(lines) if line.startswith(" value"))
    assert [line[9:] for line in lines[at - 1 : at + 2]] == ["┌──┐", "│ 0│", "└──┘"]
    assert "<small>×1 G</small>" in as_html(report)
    for page in (as_html(report), as_svg(report)):
        assert "×1000000000" not in page


@pytest.mark.parametrize("shape", [(6, 40), (64, 64), (300, 300), (2, 100, 100)])
def test_a_sample_shows_the_one_nan(shape: tuple[int, ...]) -> None:
    """Of a grid that is thinned, the row and the column of the first NaN are kept."""
    bad = torch.randn(*shape)
    bad[..., 3, 7] = float("nan")
    drawn = str(inspect(bad, "bad")).partition("LAYOUT")[2].partition("FORMAT")[0]
    assert "nan" in drawn
