"""What the panel of a memory snapshot says: what ran out first, and segments with every byte."""

from __future__ import annotations

import re

import pytest

from tensormagic import views
from tensormagic.views.nodes import Findings, Paragraph
from tensormagic.views.panels import snapshot
from tensormagic.views.panels.snapshot import drawn_stretches
from tests.views.samples_snapshot import SAMPLES


@pytest.mark.parametrize("name", ["training", "longest"])
def test_segments_are_drawn_whole(name):
    """What is drawn of a segment is all of it: joined stretches lose no byte, and the bar is full."""
    for segment in SAMPLES[name].segments:
        drawn = drawn_stretches(segment)
        assert len(drawn) <= 2 * 48 + 1
        assert sum(one.nbytes for one in drawn) == segment.nbytes
        assert sum(one.used for one in drawn) == segment.allocated + segment.awaiting
    for bar in re.findall(r'class="tm-bar tm-segment"[^>]*>(.*?)</div>', views.draw(SAMPLES[name], "html")):
        assert sum(map(float, re.findall(r"width:([\d.]+)%", bar))) == pytest.approx(100, abs=0.5)


def test_what_ran_out_is_told_before_everything_else():
    """The refused allocation, its bytes and its lines stand right below the headline."""
    refused, way, findings, *_ = snapshot.view(SAMPLES["training"]).body
    told = "cuda:0 ran out of memory after 324 ms: 2 GiB asked for, 310 MiB free on the device; 303 MiB were in use."
    assert refused == Paragraph(told, "error")
    assert way == "`train.py, line 24 in forward \u2190 train.py, line 30 \u2190 train.py, line 66`"
    assert isinstance(findings, Findings)
