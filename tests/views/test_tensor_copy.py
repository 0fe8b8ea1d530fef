"""Copy or view as it is written, in HTML and in text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensormagic.reports import CopyVerdict, Sharing, Step
from tensormagic.views.nodes import Paragraph, Section, Table, Words
from tensormagic.views.panels.tensor_memory import verdict_nodes
from tensormagic.views.to_html import html
from tensormagic.views.to_text import text
from tests.views.markup_reader import Page
from tests.views.samples_tensor import CHAIN, SAMPLES, as_html, as_text

SLICE = CopyVerdict(
    "x[1:, ::2]",
    (Sharing("x", "overlap", 4, 12, shares_version=True),),
    (
        Step(
            "x[1:, ::2]",
            "view",
            "x",
            0,
            "basic indexing (numbers, slices, None, …): another offset, other sizes and strides",
        ),
    ),
)


def test_a_chain_is_a_row_for_each_step():
    """What it gave, and why; at the heading what was copied."""
    (section,) = verdict_nodes(CHAIN)
    assert (section.title, section.note) == ("Copy", "48 B copied")
    steps = section.body[1].rows
    assert [row[:2] for row in steps] == [
        [Words("x.t()", "code"), "view of `x`"],
        [Words(".contiguous()", "code"), "copy, 48 B"],
        [Words(".view(-1)", "code"), "view"],
    ]
    assert steps[0][2] == "the strides are swapped; no element moves"


def test_one_step_has_its_reason_below():
    """No table for it."""
    (section,) = verdict_nodes(SLICE)
    assert section.title == "View"
    assert section.body[1:] == [Paragraph(SLICE.steps[0].reason, "quiet")]


WRITING = "writing to one changes the other"
APART = Sharing("x", "separate", 0, 3), Sharing("y", "separate", 0, 3)


@pytest.mark.parametrize(
    ("operands", "said"),
    [
        ((Sharing("x", "overlap", 12, 12, shares_version=True),), f"View shares all 12 elements of x: {WRITING}"),
        ((Sharing("x", "overlap", 1, 1),), f"View shares the one element of x: {WRITING}"),
        (
            (Sharing("x", "overlap", 4, 12, shares_version=False),),
            f"View shares 4 of the 12 elements of x: {WRITING}, and autograd does not notice",
        ),
        ((Sharing("x", "overlap", None, None),), f"View shares memory with x: {WRITING}"),
        (
            (Sharing("x", "may overlap", None, 9),),
            "View shares the storage of x and may overlap it",
        ),
        (
            (Sharing("x", "same object", 3, 3),),
            "Same object the result is x itself: no new tensor was made",
        ),
        ((Sharing("x", "same storage", 0, 3),), "View uses the storage of x, but shares no elements with it"),
        ((Sharing("x", "unknown", None),), "Cannot tell its memory cannot be compared with x"),
        (APART, "Separate memory shares no memory with x and y: writing to it leaves x and y alone"),
        ((), "Separate memory the expression names no tensor or array to share memory with"),
    ],
)
def test_sentence(operands, said):
    """Every verdict in words, with its numbers."""
    (section,) = verdict_nodes(CopyVerdict("r", operands))
    assert Page(html(section)).text.strip() == said


def test_writing_in_place_is_said():
    """``x.add_(1)`` gives x back, but not as it was."""
    wrote = CopyVerdict(
        "x.add_(1)", (Sharing("x", "same object", 3, 3),), (Step("x.add_(1)", "written in place", "x"),)
    )
    (section,) = verdict_nodes(wrote)
    assert Page(html(section)).text.strip() == "Same object the result is x itself, written to in place"


def test_panel_and_text_show_it_right_below_the_header():
    """Before findings and layout."""
    report = replace(SAMPLES["transpose_slice"], verdict=CHAIN)
    page, lines = as_html(report), as_text(report)
    assert page.index("<h3>Copy</h3>") < page.index('<div class="tm-find">') < page.index('<div class="tm-layout">')
    assert lines.index("COPY (48 B copied)\n  shares no memory with x") < lines.index("TM401")


def test_steps_left_out_are_counted():
    """A long chain says how many earlier steps are not shown."""
    (section,) = verdict_nodes(replace(CHAIN, more_steps=5))
    assert section.body[-1] == Paragraph("5 earlier steps not shown", "quiet")
    assert isinstance(section.body[-2], Table)
    assert isinstance(section, Section)


def test_a_long_reason_goes_on_under_itself():
    """On a narrow terminal nothing is cut off."""
    (section,) = verdict_nodes(CHAIN)
    lines = list(text(section, 60))
    assert max(map(len, lines)) <= 60
    words = " ".join(" ".join(lines).split())
    assert all(part in words for part in ("contiguous() had to", "the stride was", "(1, 4), contiguous is"))


def test_no_verdict_no_block():
    """A plain name has none."""
    assert verdict_nodes(None) == []
