"""One sample of each panel in each form, exactly: what a user sees of it, looked at when it changes."""

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


@pytest.mark.parametrize("form", views.FORMS)
@pytest.mark.parametrize("panel", SHOWN)
def test_a_panel_is_drawn_as_it_was(panel, form):
    """Character for character; a PNG pixel for pixel."""
    assert_snapshot(f"{panel.replace(' ', '_')}.{form}", views.draw(SAMPLES[panel][SHOWN[panel]], form))


def test_every_panel_has_a_snapshot():
    """A new panel is looked at, too; those of traced runs are in ``tests/views/trace``."""
    assert {*SHOWN, "trace"} == set(views.PANELS)
