"""A check as text and as HTML: findings first, small and quiet, and no more claimed than was looked at."""

from __future__ import annotations

import pytest

from tensormagic.renderers.session import watch_html, watch_text
from tensormagic.reports import Gap
from tests.renderers.markup_reader import Page
from tests.renderers.samples_watch import SAMPLES, found
from tests.renderers.snapshots import assert_snapshot


@pytest.mark.parametrize("case", SAMPLES)
def test_snapshots(case):
    """Exactly what is stored, as text and as HTML."""
    assert_snapshot(f"watch_{case}.txt", watch_text.render(SAMPLES[case]))
    assert_snapshot(f"watch_{case}.html", watch_html.render(SAMPLES[case]))


def test_findings_stand_before_everything_else():
    """The first thing after the heading is what is wrong."""
    text = Page(watch_html.render(SAMPLES["everything"])).text
    assert text.index("TM501") < text.index("What holds the most")
    lines = watch_text.render(SAMPLES["everything"]).splitlines()
    assert "TM501" in lines[2]


def test_where_the_look_was_cut_short_the_all_clear_claims_less():
    """Nothing found in what was looked at is not nothing wrong."""
    whole, cut = found(), found(gaps=(Gap("names", "only 20000 objects were looked through"),))
    assert "Nothing found: no memory that nobody uses" in watch_text.render(whole)
    told = watch_text.render(cut)
    assert "Nothing found in what was looked at." in told
    assert "names: only 20000 objects were looked through" in told


def test_text_keeps_to_its_width():
    """Whatever a name looks like."""
    assert max(map(len, watch_text.render(SAMPLES["hostile"], width=70).splitlines())) <= 70
