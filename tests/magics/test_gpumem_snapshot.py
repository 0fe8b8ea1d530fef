"""``%gpumem --snapshot FILE`` shows a snapshot, binds and saves it, and refuses what is more than plain data."""

from __future__ import annotations

import os
import pickle

import pytest

from tensormagic import SnapshotReport
from tests.views.samples_snapshot import trained


@pytest.fixture
def path(tmp_path):
    """Return the file of a training's snapshot, whose name has a space."""
    path = tmp_path / "my memory.pickle"
    path.write_bytes(pickle.dumps(trained()))
    return path


def test_a_snapshot_is_shown_bound_and_saved(cell, path):
    """Peak, the refused allocation and its lines; the report survives its own JSON."""
    saved = path.with_suffix(".json")
    ran = cell(f"%gpumem --snapshot '{path}' --into taken --save '{saved}'")
    (shown,) = ran.shown
    assert shown["text/plain"].startswith("── memory snapshot ── my memory.pickle")
    assert "2 GiB asked for, 310 MiB free on the device; 303 MiB were" in shown["text/plain"]
    assert "peak 340 MiB" in shown["text/html"]
    assert SnapshotReport.load(saved).devices[0].peak == 340 * 2**20 + 300 * 66 + 3 * 512


def test_a_hostile_file_is_refused_in_a_sentence(cell, tmp_path):
    """No traceback, no import: the file, what it wanted, and where."""
    path = tmp_path / "evil.pickle"
    path.write_bytes(pickle.dumps({"segments": [os.system]}))
    ran = cell(f"%gpumem --snapshot {path}")
    assert type(ran.error).__name__ == "UsageError"
    assert "evil.pickle' as a memory snapshot: refused at byte" in str(ran.error)
    assert "system" in str(ran.error)


def test_names_do_not_go_with_a_file(cell, path):
    """A snapshot knows no names: asking for one is told."""
    ran = cell(f"net = 1\n%gpumem net --snapshot '{path}'")
    assert "leave out net" in str(ran.error)
