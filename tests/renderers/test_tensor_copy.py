"""Copy or view as it is written, in HTML and in text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensormagic.renderers.tensor import tensor_html, tensor_text
from tensormagic.renderers.tensor.tensor_copy_html import copy_html
from tensormagic.renderers.tensor.tensor_copy_text import copy_lines
from tensormagic.reports import CopyVerdict, Sharing, Step
from tests.renderers.markup_reader import Page
from tests.renderers.samples_tensor import HOSTILE, SAMPLES
from tests.renderers.snapshots import assert_snapshot

CHAIN = CopyVerdict(
    "x.t().contiguous().view(-1)",
    (Sharing("x", "separate", 0, 12),),
    (
        Step("x.t()", "view", "x", 0, "the strides are swapped; no element moves"),
        Step(
            ".contiguous()", "copy", "", 48, "contiguous() had to copy: the stride was `(1, 4)`, contiguous is `(3, 1)`"
        ),
        Step(".view(-1)", "view", "x.t().contiguous()", 0, "other sizes and strides over the same elements"),
    ),
)
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


@pytest.mark.parametrize(("name", "verdict"), [("chain", CHAIN), ("slice", SLICE)])
def test_block_is_as_stored(name, verdict):
    """The whole block, character for character."""
    assert_snapshot(f"verdict_{name}.html", copy_html(verdict))
    assert_snapshot(f"verdict_{name}.txt", "\n".join(copy_lines(verdict, 100)))


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
    assert Page(copy_html(CopyVerdict("r", operands))).text.strip() == said


def test_writing_in_place_is_said():
    """``x.add_(1)`` gives x back, but not as it was."""
    wrote = CopyVerdict(
        "x.add_(1)", (Sharing("x", "same object", 3, 3),), (Step("x.add_(1)", "written in place", "x"),)
    )
    assert Page(copy_html(wrote)).text.strip() == "Same object the result is x itself, written to in place"


def test_panel_and_text_show_it_right_below_the_header():
    """Before findings and layout."""
    report = replace(SAMPLES["transpose_slice"], verdict=CHAIN)
    html, text = tensor_html.render(report), tensor_text.render(report)
    assert html.index('tm-copy"><') < html.index('<div class="tm-find">') < html.index('<div class="tm-layout">')
    assert text.index(" COPY  shares no memory with x") < text.index("TM401")


def test_a_long_reason_goes_on_under_itself():
    """On a narrow terminal nothing is cut off."""
    lines = copy_lines(CHAIN, 60)
    assert max(map(len, lines)) <= 60
    at = next(at for at, line in enumerate(lines) if ".contiguous()" in line)
    assert lines[at] == "  .contiguous()  copy, 48 B  contiguous() had to copy: the"
    assert lines[at + 1] == " " * 29 + "stride was (1, 4), contiguous"


def test_steps_left_out_are_counted():
    """A long chain says how many earlier steps are not shown."""
    many = replace(CHAIN, more_steps=5)
    assert "5 earlier steps not shown" in copy_html(many)
    assert "  5 earlier steps not shown" in copy_lines(many, 100)


def test_hostile_text_is_escaped():
    """Names, code and reasons are text."""
    step = Step(HOSTILE, "view", HOSTILE, 0, HOSTILE)
    verdict = CopyVerdict(HOSTILE, (Sharing(HOSTILE, "overlap", 1, 2),), (step, step))
    assert "<b onload" not in copy_html(verdict)
    lines = tensor_text.render(replace(SAMPLES["scalar"], verdict=verdict)).split("\n")
    assert max(map(len, lines)) <= 100
    assert not any("\x1b" in line for line in lines)


def test_no_verdict_no_block():
    """A plain name has none."""
    assert copy_html(None) == ""
    assert copy_lines(None, 100) == []
