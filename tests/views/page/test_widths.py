"""Every report as text keeps to the width of the terminal, narrow or wide."""

from __future__ import annotations

import pytest

from tests.views.test_every_renderer import RENDERERS

TEXTS = [one for one in RENDERERS if one.output == "text"]
CASES = [pytest.param(one, name, id=f"{one.name}-{name}") for one in TEXTS for name in one.samples]


@pytest.mark.parametrize(("renderer", "sample"), CASES)
def test_no_line_is_wider_than_the_terminal(renderer, sample):
    """At 40, 80, 120 and 200 columns."""
    report = renderer.samples[sample]
    for width in (40, 80, 120, 200):
        assert max(map(len, renderer.render(report, width=width).splitlines()), default=0) <= width
