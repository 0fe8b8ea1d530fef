"""One sample of each panel in each form, exactly: what a user sees of it, looked at when it changes."""

from __future__ import annotations

import pytest

from tensormagic import views
from tests.views import (
    samples_comparison,
    samples_failure,
    samples_freeing,
    samples_memory,
    samples_memory_run,
    samples_model,
    samples_overlay,
    samples_ranks,
    samples_rng,
    samples_run,
    samples_sharing,
    samples_snapshot,
    samples_start,
    samples_tensor,
    samples_watch,
    samples_why,
    samples_writes,
)
from tests.views.snapshots import assert_snapshot

SAMPLES = {
    "aliases": samples_sharing.ALIASES["slices"],
    "comparison": samples_comparison.SAMPLES["larger"],
    "failure": samples_failure.SAMPLES["linear"],
    "freeing": samples_freeing.SAMPLES["listed"],
    "memory": samples_memory.small(),
    "memory_run": samples_memory_run.SAMPLES["functions"],
    "memory_snapshot": samples_snapshot.training(),
    "overlay": samples_overlay.SAMPLES["bytes"],
    "ranks": samples_ranks.broken(),
    "rng": samples_rng.standing(),
    "rng_comparison": samples_rng.parted(),
    "rng_run": samples_rng.run(),
    "run": samples_run.every(),
    "model": samples_model.trained(),
    "start": samples_start.odd(),
    "tensor": samples_tensor.SAMPLES["transpose_slice"],
    "tensors": samples_sharing.TABLES["few"],
    "watch": samples_watch.everything(),
    "why": samples_why.SAMPLES["cut_off"],
    "writes": samples_writes.effects(),
}


@pytest.mark.parametrize("form", views.FORMS)
@pytest.mark.parametrize("panel", SAMPLES)
def test_a_panel_is_drawn_as_it_was(panel, form):
    """Character for character; a PNG pixel for pixel."""
    assert_snapshot(f"{panel}.{form}", views.draw(SAMPLES[panel], form))


def test_every_panel_has_a_snapshot():
    """A new panel is looked at, too; those of traced runs are in ``tests/views/trace``."""
    assert {report.kind_name for report in SAMPLES.values()} | {"trace"} == set(views.PANELS)
