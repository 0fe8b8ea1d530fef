"""Why a gradient is what it is, as text and as a panel: exact, and what a reader must find."""

from __future__ import annotations

import pytest

from tensormagic.renderers.why import why_html, why_text
from tests.renderers.markup_reader import Page
from tests.renderers.samples_why import SAMPLES
from tests.renderers.snapshots import assert_snapshot


@pytest.mark.parametrize("name", ["cut_off", "zero", "module", "nothing_known"])
def test_the_text(name):
    """Exact, a file a case."""
    assert_snapshot(f"why_{name}.txt", why_text.render(SAMPLES[name]))


@pytest.mark.parametrize("name", ["cut_off", "module"])
def test_the_panel(name):
    """Exact, a file a case."""
    assert_snapshot(f"why_{name}.html", why_html.render(SAMPLES[name]))


def test_what_the_gradient_did_not_reach_is_drawn_so():
    """Before the cut, seen from the tensor, every stop is dashed; behind it none is."""
    html = why_html.render(SAMPLES["cut_off"])
    assert html.count('class="tm-stop tm-op tm-none"') == 1
    assert html.count('class="tm-stop tm-tensor tm-none"') == 1
    assert html.count('class="tm-arrow tm-ended"') == 2


def test_lines_of_several_files_are_told_with_them():
    """In one cell the line alone says where; through several, the cell as well."""
    assert "line 5" in Page(why_html.render(SAMPLES["cut_off"])).text
    assert "cell 3, line 1" not in Page(why_html.render(SAMPLES["cut_off"])).text
    text = why_text.render(SAMPLES["hostile"])
    assert "what to do" in text


@pytest.mark.parametrize("width", [40, 72])
def test_no_line_is_wider_than_asked(width):
    """Whatever the names are."""
    for sample in SAMPLES.values():
        assert max(map(len, why_text.render(sample, width=width).splitlines())) <= width
