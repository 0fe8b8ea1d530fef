"""A memory snapshot as text and as a panel: what ran out first, every part, its bytes and nothing left out silently."""

from __future__ import annotations

import re

import pytest

from tensormagic.renderers.memory import snapshot_html, snapshot_text
from tensormagic.renderers.memory.snapshot_words import drawn_stretches
from tests.renderers.samples_snapshot import SAMPLES
from tests.renderers.snapshots import assert_snapshot


@pytest.mark.parametrize("name", ["training", "no_history", "nothing", "hostile"])
def test_text_is_as_stored(name):
    """Every kind of snapshot has its text in ``tests/snapshots``; a change is seen there."""
    assert_snapshot(f"memory_snapshot_{name}.txt", snapshot_text.render(SAMPLES[name]))


@pytest.mark.parametrize("name", ["training", "nothing"])
def test_panel_is_as_stored(name):
    """The panel's markup is the stored one."""
    assert_snapshot(f"memory_snapshot_{name}.html", snapshot_html.render(SAMPLES[name]))


@pytest.mark.parametrize("width", [40, 80, 160])
@pytest.mark.parametrize("name", SAMPLES)
def test_no_line_is_wider_than_asked(name, width):
    """Whatever the names, the text keeps to its width."""
    assert max(map(len, snapshot_text.render(SAMPLES[name], width=width).splitlines())) <= width


@pytest.mark.parametrize("name", ["training", "longest"])
def test_segments_are_drawn_whole(name):
    """What is drawn of a segment is all of it: joined stretches lose no byte, and the bar is full."""
    for segment in SAMPLES[name].segments:
        drawn = drawn_stretches(segment)
        assert len(drawn) <= 2 * 48 + 1
        assert sum(one.nbytes for one in drawn) == segment.nbytes
        assert sum(one.used for one in drawn) == segment.allocated + segment.awaiting
    for bar in re.findall(r'class="tm-bar tm-segment"[^>]*>(.*?)</div>', snapshot_html.render(SAMPLES[name])):
        assert sum(map(float, re.findall(r"width:([\d.]+)%", bar))) == pytest.approx(100, abs=0.5)


def test_what_ran_out_is_told_before_everything_else():
    """The refused allocation, its bytes and its lines stand right below the headline."""
    lines = snapshot_text.render(SAMPLES["training"]).splitlines()
    assert lines[2].startswith(" ✖ cuda:0 ran out of memory after 324 ms: 2 GiB asked for, 310 MiB free on the device;")
    assert lines[4] == "   train.py, line 24 in forward ← train.py, line 30 ← train.py, line 66"
