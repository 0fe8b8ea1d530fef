"""Who keeps a tensor alive, as it is written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensormagic.renderers.tensor import tensor_html, tensor_text
from tensormagic.renderers.tensor.tensor_holders_html import holders_html
from tensormagic.renderers.tensor.tensor_holders_text import holders_lines
from tensormagic.renderers.tensor.tensor_holders_words import summary
from tensormagic.reports import Holder, HoldersReport, Location
from tests.renderers.markup_reader import Page
from tests.renderers.samples_tensor import HOSTILE, SAMPLES
from tests.renderers.snapshots import assert_snapshot

LINE = Location("train.py", 12, function="step")
MANY = HoldersReport(
    (
        Holder("x", "name", "tensor"),
        Holder("batch[0]", "item", "tensor"),
        Holder("Out[12]", "history", "tensor"),
        Holder("opt.state[net.fc.weight]['exp_avg']", "optimizer", "tensor"),
        Holder("the last error (ValueError), local of step", "traceback", "tensor", location=LINE),
        Holder("graph of loss: AddmmBackward0, saved as mat1", "graph", "tensor"),
        Holder("array", "name", "storage", 96),
    ),
    found=7,
    looked=120,
)
ALONE = HoldersReport((Holder("x", "name", "tensor"),), found=1, looked=3, unreached=0)
NOBODY = HoldersReport((Holder("a", "name", "storage", 96),), found=1, looked=3, unreached=0)


def test_table_is_as_stored():
    """The whole table, character for character."""
    assert_snapshot("holders_many.html", holders_html(MANY, "x"))
    assert_snapshot("holders_many.txt", "\n".join(holders_lines(MANY, "x", 100)))


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (MANY, "held by the last error (ValueError), graph of loss and 3 more"),
        (ALONE, "held only by x"),
        (replace(ALONE, holders=(*ALONE.holders, *NOBODY.holders)), "others hold its storage"),
        (NOBODY, "held by no name, but its storage is"),
        (replace(NOBODY, holders=()), "held by no name"),
        (None, ""),
    ],
)
def test_summary_names_what_one_would_not_think_of(report, said):
    """Tracebacks and graphs before containers and names; the name itself is no news."""
    assert summary(report, "x") == said


def test_a_name_alone_needs_no_table():
    """One sentence."""
    assert holders_html(ALONE, "x") == "<p>Held only by <code>x</code>.</p>"
    assert holders_lines(ALONE, "x", 100) == [" HELD BY  only x"]


def test_what_is_not_known_is_said():
    """More holders than listed, tensors without a way from a name, a search that was cut, a temporary."""
    cut = replace(NOBODY, found=40, cut="after 50 ms", unreached=2)
    text = Page(holders_html(cut, "x + 1")).text
    for part in (
        "No variable was found that holds x + 1 itself.",
        "28 more holders are not listed.",
        "By torch's count, 2 more tensors that cannot be reached from a variable use the storage.",
        "The search stopped after 50 ms: there may be more.",
    ):
        assert part in text
        assert part.split(":")[0] in " ".join(" ".join(holders_lines(cut, "x + 1", 100)).split())


def test_they_stand_in_memory_and_holders():
    """In the panel's disclosure, with the telling ones in its summary; in the text below MEMORY."""
    report = replace(SAMPLES["transpose_slice"], name="x", holders=MANY)
    page = Page(tensor_html.render(report)).text
    assert "96 B, held by the last error" in page
    assert "graph of loss: AddmmBackward0, saved as mat1" in page
    text = tensor_text.render(report)
    assert text.index(" MEMORY ") < text.index(" HELD BY ")
    assert max(map(len, text.split("\n"))) <= 100


def test_hostile_paths_are_text():
    """A key of a dictionary can be anything."""
    bad = HoldersReport((Holder(HOSTILE, "item", "tensor"),) * 2, found=2, looked=2, cut=HOSTILE)
    assert "<b onload" not in holders_html(bad, HOSTILE)
    assert "\x1b" not in tensor_text.render(replace(SAMPLES["scalar"], holders=bad))
