"""A refused call as text and as a panel: what does not fit is framed and said, names and numbers are the person's."""

from __future__ import annotations

import pytest

from tensormagic.renderers import failure_html, failure_text
from tensormagic.renderers.failure_words import marked
from tensormagic.reports import Location
from tests.renderers.markup_reader import Page
from tests.renderers.samples_failure import SAMPLES
from tests.renderers.snapshots import assert_snapshot


@pytest.mark.parametrize("name", ["linear", "dtypes", "afterwards", "backward"])
def test_text_is_as_stored(name):
    """The whole text, character by character."""
    assert_snapshot(f"failure_{name}.txt", failure_text.render(SAMPLES[name]))


def test_panel_is_as_stored():
    """The whole panel of the commonest error."""
    assert_snapshot("failure_linear.html", failure_html.render(SAMPLES["linear"]))


@pytest.mark.parametrize("width", [20, 40, 72])
@pytest.mark.parametrize("name", SAMPLES)
def test_no_line_is_wider_than_asked_for(name, width):
    """Forty columns at least."""
    lines = failure_text.render(SAMPLES[name], width=width).splitlines()
    assert [line for line in lines if len(line) > max(width, 40)] == []


def framed(name):
    """Return the texts of what a panel frames as not fitting, each with what is said below it."""
    html = failure_html.render(SAMPLES[name])
    pieces = html.split('class="tm-dim tm-not">')[1:]
    return [Page(f"<p>{piece.split('</span>')[0]}</p>").text for piece in pieces]


@pytest.mark.parametrize(
    ("name", "frames"),
    [
        ("linear", ["5408≠ 784", "784≠ 5408"]),
        ("dtypes", ["float64fits: float32"]),
        ("devices", ["cpufits: cuda:0", "cuda:0fits: cpu"]),
        ("view", ["(1, 4)does not fit"]),
        ("argument", ["(5, 5)≠ 12"]),
        ("unknown", []),
    ],
)
def test_what_does_not_fit_is_framed_and_said_in_words(name, frames):
    """Not by colour alone: a frame, and below it what would have fitted."""
    assert [text.replace(" ", "") for text in framed(name)] == [text.replace(" ", "") for text in frames]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("linear", "✖ the result of x.flatten(1): 5408 in dimension 1, ≠ 784"),
        ("dtypes", "✖ b: float64, fits: float32"),
        ("view", "✖ x: (1, 4), does not fit"),
        ("argument", "✖ shape: (5, 5), ≠ 12"),
    ],
)
def test_text_says_what_does_not_fit(name, line):
    """A line below the table."""
    assert line in failure_text.render(SAMPLES[name]).splitlines()


@pytest.mark.parametrize(
    ("text", "call", "parts"),
    [
        ("y = net(x) + 1", "net(x)", ("y = ", "net(x)", " + 1")),
        ("y = torch.cat(", "torch.cat( [a, b])", ("y = ", "torch.cat(", "")),
        ("y = 1", "net(x)", ("y = 1", "", "")),
        ("", "net(x)", ("", "", "")),
    ],
)
def test_the_call_is_marked_in_its_line(text, call, parts):
    """Also where it goes on in the next line."""
    assert marked(Location("a.py", 1, text), call) == parts


def test_what_a_finding_says_is_not_said_twice():
    """The rule and what works stand in the finding; without one they stand alone."""
    assert failure_text.render(SAMPLES["linear"]).count("takes 784") == 1
    assert "works: a + b.float()" in failure_text.render(SAMPLES["dtypes"])
