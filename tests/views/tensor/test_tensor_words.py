"""What is said of one tensor: its memory, who holds it, what an expression copies, its way to the leaves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import tensormagic as tm
from tensormagic.collectors.geometry.layout import layout as collected_layout
from tensormagic.reports import NOTHING, CopyVerdict, Holder, HoldersReport, Path, PathNode, Sharing, Step, StripCell
from tensormagic.views import to_text
from tensormagic.views.graph.words import FORMULAS, formulas
from tensormagic.views.nodes import Paragraph, Table
from tensormagic.views.panels.tensor import verdicts, view
from tensormagic.views.panels.tensor_autograd import broken, lines, sent_rows, summary
from tensormagic.views.panels.tensor_memory import (
    holders_nodes,
    holders_summary,
    memory_lines,
    memory_summary,
    verdict_nodes,
)
from tensormagic.views.panels.why import path_note, path_svg, tree
from tensormagic.views.pictures import tensor_elements
from tensormagic.views.pictures.tensor_grid import base_rows, cell_title
from tensormagic.views.pictures.tensor_values import ValueRange
from tests.views.samples_tensor import CHAIN, MANY, SAMPLES, as_html, layout, report
from tests.views.samples_values import autograd_html, graph, graph_path

SLICED, EXPANDED, SCORES = (SAMPLES[name] for name in ("transpose_slice", "expanded", "causal_scores"))
META = replace(SAMPLES["vector"], storage=replace(SAMPLES["vector"].storage, address=0, device="meta"))
WINDOW = SAMPLES["vector"].layout
WINDOW = replace(WINDOW, strip=replace(WINDOW.strip, start=2, stop=6, cells=WINDOW.strip.cells[2:6]))
SAID = [
    (tensor_elements.formula, (SLICED.layout, (2, 1)), "offset(2, 1) = 1 + 1·2 + 12·1 = 15"),
    (tensor_elements.bases_index, (SLICED, 15), "a[2, 3]"),
    # An index of the base cannot be known from the offset alone where the base does not fill the storage.
    (tensor_elements.bases_index, (replace(SLICED, storage=replace(SLICED.storage, elements=48, nbytes=192)), 15), ""),
    # A cut says which rows and columns, of how many, and which slice; a strip which part of the storage it is.
    (tensor_elements.shown, (SCORES,),
     "32 × 32 of 1024 × 1024: j 0, 32, 64 … 992, k 0, 32, 64 … 992; slice scores[0, :, :], one of 64"),
    (tensor_elements.shown, (SLICED,), ""),
    (tensor_elements.strip_shown, (SAMPLES["largest"],), "a cell is 33\u00a0554\u00a0432 elements; counts are sampled"),
    (tensor_elements.strip_shown, (replace(SAMPLES["vector"], layout=WINDOW),), "elements 2 to 5 of 10 are drawn"),
    # A cell of the strip says what is read of it: once, often, partly, or not known.
    (cell_title, (StripCell(5, 6, 0, 0),), "offset 5: not read"),
    (cell_title, (StripCell(3, 4, 1, 6),), "offset 3: read 6 times"),
    (cell_title, (StripCell(0, 100, 50, 50),), "0 to 99: 50 of 100 read"),
    (cell_title, (StripCell(0, 100, None, None),), "0 to 99: reads not counted"),
    # A meta tensor's storage has a size and no first byte.
    (lambda report: memory_lines(report)[0], (META,),
     "On the meta device it uses no memory; elsewhere its storage would take 40 B."),
    (memory_summary, (META,), "none: on the meta device; elsewhere it would take 40 B"),
    (lambda x: to_text.render(view(tm.inspect(x, "x"))).partition(" · contiguous")[0],
     (torch.empty(3, 4, device="meta"),),
     "── x ── (3, 4) · float32 · meta · no values and no memory  48 B on any other device"),
    # A value that is too long has fewer digits; none is cut off without a sign.
    *((tensor_elements.narrowed, (number, room), short) for number, room, short in (
        ("-0.01371", 8, "-0.01371"), ("-0.01371", 7, "-0.0137"), ("-0.01371", 5, "-0.01"), ("1.234e-05", 6, "1e-05"),
        ("nan", 3, "nan"), ("True", 3, "Tr…"), ("12345678", 4, "123…"),
        ("-0.837-0.519j", 13, "-0.837-0.519j"), ("-0.837-0.519j", 11, "-0.84-0.52j"),
        ("0.741+1.15e-12j", 11, "0.7+1e-12j"),
    )),
    # A cell of the grid has room for one number, or for two; turned to another slice, it is written as in the first.
    # The ends of whole numbers are exact, as float64 cannot hold them.
    (lambda values: ValueRange(tm.inspect(torch.tensor(values)).statistics).sentence.replace("\u00a0", ""),
     ([9007199254740993, -98382],), "min −98382 █··········█ max 9007199254740993 · mean 4.504e15 · NaN 0 · Inf 0"),
    # A whole number keeps every digit where a row of so many has room for it.
    *((tensor_elements.in_cell, given, said) for given, said in (
        (("-1.2345e-05", 4), "-1.2e-05"), (("-0.84-0.52j", 4), "-0.84-0.52j"),
        (("-9223372036854775808", 3), "-9223372036854775808"), (("9007199254740993", 4), "9007199254740993"),
        (("9007199254740993", 5), "9.01e+15"), (("12345678", 16), "12345678"),
    )),
    # Formulas are not guessed: an op that is not known, or has another number of inputs, has none.
    (formulas, ("NoSuchBackward0", 2), ("", "")),
    (formulas, ("MulBackward0", 3), ("", "", "")),
    # All drawn says nothing; past the bound says more than.
    (path_note, (replace(graph_path(), walked=6),), ""),
    (path_note, (replace(graph_path(), walked=10_000, complete=False),),
     "the nearest 6 nodes are drawn; there are more than 10\u00a0000"),
    (verdict_nodes, (None,), []),
]  # fmt: skip


@pytest.mark.parametrize(("say", "given", "words"), SAID)
def test_words_about_a_tensor(say, given, words) -> None:
    assert say(*given) == words


@pytest.mark.parametrize(
    ("shape", "stride", "numel", "coloured"),
    [((2, 2, 3), (6, 3, 1), 12, range(6)), ((4, 3, 2), (1, 4, 12), 24, range(0, 24, 4))],
    ids=["slice after slice", "interleaved"],
)
def test_only_the_drawn_slice_is_coloured(shape, stride, numel, coloured) -> None:
    """In a tensor of several slices the strip's cells outside the drawn one have no colour."""
    picture = tensor_elements.drawn_layout(report("t", layout(shape, stride, 0, numel), numel))
    colours = {cell.start: picture.cell_colour(cell) for cell in picture.strip.cells}
    assert [at for at, colour in colours.items() if colour is not None] == [*coloured]
    if numel == 12:
        assert (colours[0], colours[5]) == ("#00224e", "#fee838")


def test_a_strip_has_whole_values_or_none() -> None:
    """A strip of ``Tr…`` and ``Fal…`` says nothing: then the grid alone has the values."""
    picture = tensor_elements.drawn_layout(SLICED)
    assert picture.strip_values
    texts = tuple(tuple("False" for _ in row) for row in picture.grid.values)
    grid, many = replace(picture.grid, values=texts), replace(picture.strip, cells=picture.strip.cells * 2)
    cut = replace(picture, layout=replace(picture.layout, grid=grid, elements=(), strip=many))
    assert cut.strip_values == {}


def test_rows_of_a_base_with_more_dimensions_are_named_by_what_they_span() -> None:
    """Under a storage of (2, 1, 2, 6), 12 elements are a row a[0], not a[0, 0, 0], which has six."""
    base = replace(next(alias for alias in SLICED.aliases if alias.name == "a"), shape=(2, 1, 2, 6))
    strip = replace(SLICED.layout.strip, row_length=12)
    deep = replace(SLICED, aliases=(base,), layout=replace(SLICED.layout, strip=strip))
    assert base_rows(deep, strip) == [("a[0]", 12), ("a[1]", 12)]
    assert tensor_elements.bases_index(deep, 15) == "a[1, 0, 0, 3]"


def test_one_step_has_its_reason_below() -> None:
    """No table for it, as for a chain; steps of a chain that are not shown are counted."""
    step = Step("x[1:, ::2]", "view", "x", 0, "basic indexing: another offset, other sizes and strides")
    (section,) = verdict_nodes(
        CopyVerdict("x[1:, ::2]", (Sharing("x", "overlap", 4, 12, shares_version=True),), (step,))
    )
    assert (section.title, section.body[1:]) == ("View", [Paragraph(step.reason, "quiet")])
    (section,) = verdict_nodes(replace(CHAIN, more_steps=5))
    assert section.body[-1] == Paragraph("5 earlier steps not shown", "quiet")


WRITING = "writing to one changes the other"
APART = Sharing("x", "separate", 0, 3), Sharing("y", "separate", 0, 3)
IN_PLACE = (Step("x.add_(1)", "written in place", "x"),)


@pytest.mark.parametrize(
    ("operands", "steps", "said"),
    [
        ((Sharing("x", "overlap", 12, 12, shares_version=True),), (), f"View shares all 12 elements of x: {WRITING}"),
        ((Sharing("x", "overlap", 1, 1),), (), f"View shares the one element of x: {WRITING}"),
        ((Sharing("x", "overlap", 4, 12, shares_version=False),), (),
         f"View shares 4 of the 12 elements of x: {WRITING}, and autograd does not notice"),
        ((Sharing("x", "overlap", None, None),), (), f"View shares memory with x: {WRITING}"),
        ((Sharing("x", "may overlap", None, 9),), (), "View shares the storage of x and may overlap it"),
        ((Sharing("x", "same object", 3, 3),), (), "Same object the result is x itself: no new tensor was made"),
        ((Sharing("x", "same object", 3, 3),), IN_PLACE, "Same object the result is x itself, written to in place"),
        ((Sharing("x", "same storage", 0, 3),), (), "View uses the storage of x, but shares no elements with it"),
        ((Sharing("x", "unknown", None),), (), "Cannot tell its memory cannot be compared with x"),
        (APART, (), "Separate memory shares no memory with x and y: writing to it leaves x and y alone"),
        ((), (), "Separate memory the expression names no tensor or array to share memory with"),
    ],
)  # fmt: skip
def test_sentence_of_a_verdict(operands, steps, said: str) -> None:
    (section,) = verdict_nodes(CopyVerdict("r", operands, steps))
    assert " ".join([section.title, to_text.inline(section.body[0])]) == said


ALONE = HoldersReport((Holder("x", "name", "tensor"),), found=1, looked=3, unreached=0)
NOBODY = HoldersReport((Holder("a", "name", "storage", 96),), found=1, looked=3, unreached=0)


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (MANY, "held by the last error (ValueError), graph of loss and 3 more"),
        (ALONE, "held only by x"),
        (replace(ALONE, cut="after 3 objects"), "held by x"),
        (replace(ALONE, holders=(*ALONE.holders, *NOBODY.holders)), "others hold its storage"),
        (NOBODY, "held by no name, but its storage is"),
        (replace(NOBODY, holders=()), "held by no name"),
        (None, ""),
    ],
)
def test_summary_of_holders_names_what_one_would_not_think_of(held: HoldersReport | None, said: str) -> None:
    """Tracebacks and graphs before containers and names; the name itself is no news."""
    assert holders_summary(held, "x") == said


def test_what_is_not_known_of_holders_is_said() -> None:
    """More than listed, tensors without a way from a name, a cut search, a temporary; a name alone needs no table."""
    assert holders_nodes(ALONE, "x") == ["Held only by `x`."]
    assert holders_nodes(replace(ALONE, cut="after 3 objects"), "x")[0] == "Held by `x`."
    nodes = holders_nodes(replace(NOBODY, found=40, cut="after 50 ms", unreached=2), "x + 1")
    told = [node.text if isinstance(node, Paragraph) else node for node in nodes if not isinstance(node, Table)]
    assert [words.replace("`", "") for words in told] == [
        "No variable was found that holds x + 1 itself.",
        "28 more holders are not listed.",
        "By torch's count, 2 more tensors that cannot be reached from a variable use the storage.",
        "The search stopped after 50 ms: there may be more.",
    ]


def test_a_freed_graph_is_said_and_stays_closed() -> None:
    """A loss after its backward is in the usual state: said, but no alarm; one that must fail opens the section."""
    assert broken(graph())
    assert "<h3>Autograd</h3>" in as_html(graph())
    way = Path((replace(graph_path().nodes[0], inputs=(NOTHING,), saved="freed"),), 1, complete=True)
    state = graph().autograd
    freed = replace(graph(), autograd=replace(state, details=replace(state.details, path=way)))
    assert summary(freed).endswith("its graph has been freed")
    assert not broken(freed)
    assert lines(freed)[-1].startswith("Another `backward()` would raise: its graph has been freed")
    assert 'class="freed"' in path_svg(way, "loss")
    assert "<h3>Autograd</h3>" not in as_html(freed)


def test_a_product_has_its_formula() -> None:
    """Each input of a node has its target and its formula, where there is one."""
    product = Path((graph_path().nodes[1], *graph_path().nodes[1:]), 34, complete=True)
    assert sent_rows(product) == (
        ("input 0", "AddmmBackward0, which made out", "grad · other"),
        ("input 1", "a node further away", "grad · self"),
    )
    assert all(name.endswith(("Backward0", "Backward1")) for name in FORMULAS)


def test_shared_nodes_are_told_once() -> None:
    """A node that is used twice is drawn out the first time; a long chain is cut, and that is shown."""
    shared = Path((PathNode("mul", "MulBackward0", inputs=(1, 1)), PathNode("exp", "ExpBackward0")), 2, complete=True)
    assert tree(shared, "x")[2:] == ["  ├ ExpBackward0 ()", "  └ ExpBackward0 () (as above)"]
    chain = Path(tuple(PathNode("add", "AddBackward0", inputs=(at + 1,)) for at in range(20)), 21, complete=True)
    assert len(tree(replace(chain, nodes=(*chain.nodes, PathNode("", "AccumulateGrad"))), "x")) == 15


def test_a_report_without_details_says_what_it_has() -> None:
    assert summary(EXPANDED).startswith("ExpandBackward0")
    assert "stays None" in autograd_html(EXPANDED)
    assert autograd_html(SAMPLES["all_missing"]) == ""


JUDGED = {
    "stepped, yet flat": (
        torch.zeros(4, 6)[:, ::2],
        {
            "gaps": "11 of the 23 elements from 0 to 22 are skipped",
            "format": "not contiguous: j has stride 2, a contiguous tensor has 1 there; `.contiguous()` copies 48 B",
            "views": "every `.view(shape)` of 12 elements works, as does `.view(-1)`",
        },
    ),
    "windows": (
        torch.arange(12.0).unfold(0, 4, 2),
        {
            "repeats": "20 indices share 12 elements: writing to one changes several",
            "format": "not contiguous: i has stride 2, a contiguous tensor has 4 there; `.contiguous()` copies 80 B",
            "views": "i and j cannot merge: i has stride 2, but size·stride of j is 4·1 = 4; `.view(-1)` raises, "
            "`.reshape(-1)` copies 80 B",
        },
    ),
    "some channels": (
        torch.zeros(2, 3, 5, 5)[:, 1:],
        {
            "gaps": "25 of the 125 elements from 25 to 149 are skipped",
            "format": "neither contiguous nor channels_last: i has stride 75, a contiguous tensor has 50 there; "
            "`.contiguous()` copies 400 B",
            "views": "j·k·l merge: `.view(2, 50)` works; i and j cannot merge: i has stride 75, but size·stride of j "
            "is 2·25 = 50; `.view(-1)` raises, `.reshape(-1)` copies 400 B",
        },
    ),
}


@pytest.mark.parametrize("case", JUDGED)
def test_verdicts_on_a_layout(case: str) -> None:
    """To the letter; those of what is contiguous, sliced, expanded or channels_last are in stored samples."""
    x, expected = JUDGED[case]
    size = x.element_size()
    sizes = {"storage_elements": x.untyped_storage().nbytes() // size, "element_size": size}
    assert dict(verdicts(collected_layout(x.shape, x.stride(), x.storage_offset(), **sizes))) == expected


def test_an_array_is_told_of_no_method_that_it_lacks() -> None:
    """It has no ``contiguous()``, and its ``view`` takes a dtype; nor of memory that a meta tensor does not take."""
    assert "no memory" in str(tm.inspect(torch.empty(1, device="meta").expand(10), name="x"))
    shown = str(tm.inspect(np.arange(12.0).reshape(3, 4).T, name="a"))
    assert "in memory j, i from slowest to fastest" in shown
    assert ".contiguous(" not in shown
    assert ".view(" not in shown


@pytest.mark.parametrize("dtype", [">f8", [("left", ">f4"), ("right", ">i2")], "M8[D]", "g"])
def test_what_is_nearest_to_an_array_can_be_typed(dtype: Any) -> None:
    """Where torch cannot wrap an array, the expressions that give what it can are Python."""
    array = np.zeros(3, dtype=dtype)
    parts = tm.inspect(array, name="a").kinds[0].components
    assert parts
    for part in parts:
        assert eval(part.name, {"a": array}).shape == (3,)
