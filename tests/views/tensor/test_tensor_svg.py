"""The layout picture as a file of its own."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from tests.views.samples_tensor import SAMPLES, as_svg
from tests.views.snapshots import assert_snapshot

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", ["expanded", "causal_scores", "all_missing"])
def test_picture_is_as_stored(name: str) -> None:
    """The whole drawing, character for character."""
    assert_snapshot(f"tensor_{name}.svg", as_svg(SAMPLES[name]))


def test_every_drawing_brings_its_own_paper() -> None:
    """An opaque white card over the whole picture comes before anything drawn on it."""
    for report in SAMPLES.values():
        root = ET.fromstring(as_svg(report))
        card = root.find(f"{SVG}rect")
        assert card.get("fill") == "#fff"
        assert (card.get("width"), card.get("height")) == (root.get("width"), root.get("height"))


def test_nothing_is_drawn_outside_the_card() -> None:
    """No rectangle and no text starts beyond the edges."""
    for report in SAMPLES.values():
        root = ET.fromstring(as_svg(report))
        width, height = float(root.get("width")), float(root.get("height"))
        for shape in (*root.iter(f"{SVG}text"), *root.findall(f"{SVG}rect")):
            assert 0 <= float(shape.get("x", 0)) <= width
            assert 0 <= float(shape.get("y", 0)) <= height


def test_picture_without_a_layout_says_why() -> None:
    """The reason stands where the picture would."""
    text = " ".join(ET.fromstring(as_svg(SAMPLES["all_missing"])).itertext())
    assert "storage not shown: RuntimeError: this wrapper has no storage" in text
