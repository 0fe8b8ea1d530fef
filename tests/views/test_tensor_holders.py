"""Who keeps a tensor alive, as it is written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensormagic.reports import Holder, HoldersReport
from tensormagic.views.nodes import Words
from tensormagic.views.panels.tensor_memory import holders_nodes, holders_summary
from tensormagic.views.to_html import html
from tensormagic.views.to_text import text
from tests.views.markup_reader import Page
from tests.views.samples_tensor import MANY, SAMPLES, as_html, as_text

ALONE = HoldersReport((Holder("x", "name", "tensor"),), found=1, looked=3, unreached=0)
NOBODY = HoldersReport((Holder("a", "name", "storage", 96),), found=1, looked=3, unreached=0)


def test_a_row_for_each_holder():
    """How it is reached, what it keeps, and what it is."""
    (table,) = holders_nodes(MANY, "x")
    assert table.rows[4] == [
        Words("the last error (ValueError), local of step", "code"), "tensor",
        Words("an error's traceback, train.py, line 12", "quiet"),
    ]  # fmt: skip
    assert table.rows[6][1] == "storage, 96 B"


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
    assert holders_summary(report, "x") == said


def test_a_name_alone_needs_no_table():
    """One sentence."""
    assert holders_nodes(ALONE, "x") == ["Held only by `x`."]


def test_what_is_not_known_is_said():
    """More holders than listed, tensors without a way from a name, a search that was cut, a temporary."""
    cut = replace(NOBODY, found=40, cut="after 50 ms", unreached=2)
    nodes = holders_nodes(cut, "x + 1")
    page, lines = Page("".join(map(html, nodes))).text, [line for node in nodes for line in text(node, 100)]
    for part in (
        "No variable was found that holds x + 1 itself.",
        "28 more holders are not listed.",
        "By torch's count, 2 more tensors that cannot be reached from a variable use the storage.",
        "The search stopped after 50 ms: there may be more.",
    ):
        assert part in page
        assert part.split(":")[0] in " ".join(" ".join(lines).split())


def test_they_stand_in_memory_and_holders():
    """In the panel's disclosure, with the telling ones in its summary; in the text likewise."""
    report = replace(SAMPLES["transpose_slice"], name="x", holders=MANY)
    page = Page(as_html(report)).text
    assert "96 B, held by the last error" in page
    assert "graph of loss: AddmmBackward0, saved as mat1" in page
    lines = as_text(report)
    assert lines.index("MEMORY AND HOLDERS") < lines.index("  HELD BY ")
    assert max(map(len, lines.split("\n"))) <= 100
