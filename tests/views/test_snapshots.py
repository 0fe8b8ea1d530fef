"""Each sample of each panel as text, and one of them as HTML and SVG, exactly: looked at when it changes."""

from __future__ import annotations

import pytest

from tensormagic import views
from tests.views.snapshots import assert_snapshot
from tests.views.test_every_renderer import SAMPLES

SHOWN = {
    "aliases": "slices", "comparison": "larger", "failure": "recorded", "freeing": "listed", "memory": "gpt",
    "memory run": "functions", "memory snapshot": "training", "overlay": "bytes", "ranks": "broken", "rng": "standing",
    "rng comparison": "parted", "rng run": "run", "run": "every", "model": "trained", "start": "odd",
    "tensor": "transpose_slice", "tensors": "few", "watch": "everything", "why": "cut_off", "writes": "effects",
}  # fmt: skip


@pytest.mark.parametrize("form", ["html", "svg"])
@pytest.mark.parametrize("panel", SHOWN)
def test_a_panel_is_drawn_as_it_was(panel, form):
    """Character for character; a PNG pixel for pixel."""
    assert_snapshot(f"{panel.replace(' ', '_')}.{form}", views.draw(SAMPLES[panel][SHOWN[panel]], form))


@pytest.mark.parametrize("panel", SHOWN)
def test_every_sample_is_told_as_it_was(panel):
    """Character for character, one below the other: a test of a panel need not say again what stands there."""
    every = (f"===== {name}\n\n{views.draw(report, 'txt')}" for name, report in SAMPLES[panel].items())
    assert_snapshot(f"{panel.replace(' ', '_')}.txt", "\n".join(every))


def test_every_panel_has_a_snapshot():
    """A new panel is looked at, too; those of traced runs are in ``tests/views/trace``."""
    assert {*SHOWN, "trace"} == set(views.PANELS)
