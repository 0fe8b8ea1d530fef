"""What is said of pictures to who does not see them: the numbers, places and names that others see in them first."""

from __future__ import annotations

import math
from array import array
from dataclasses import replace
from operator import attrgetter

import pytest

from tensormagic import reports
from tensormagic.reports import UNTOUCHED, DimensionSlices, SignalLine, StoredMap, StripCell, TensorPicture
from tensormagic.reports.comparison import LossPair
from tensormagic.reports.tensor import BadSlice
from tensormagic.views.page.document import trace_document
from tensormagic.views.panels import trace as trace_html
from tensormagic.views.pictures.gradient_graph import EndedGraph, trace_alternative
from tensormagic.views.pictures.norms import LossesPicture, loss_scale
from tensormagic.views.pictures.tensor_elements import drawn_layout
from tensormagic.views.pictures.tensor_grid import offsets_sentence, strip_sentence, values_sentence
from tensormagic.views.pictures.tensor_kinds import stored_sentence, values_sentence as component_sentence
from tensormagic.views.pictures.tensor_shot import Shot
from tensormagic.views.pictures.tensor_values import row_sentence
from tensormagic.views.pictures.timeline import TimelinePicture, by_category, by_line
from tensormagic.views.pictures.treemap import LEFT_OUT, Tile, TreemapPicture
from tests.views import samples_tensor, samples_trace, samples_viewer, trace_forms
from tests.views.hostile import HOSTILE, everywhere
from tests.views.markup_reader import Page
from tests.views.samples_comparison import SAMPLES as COMPARISONS

MIB = 2**20
TILES = [
    Tile("net", "fc.weight", "parameter", 6 * MIB),
    Tile("graph of loss", "relu", "saved for backward", MIB),
    Tile("graph of loss", "relu", "saved for backward", 2 * MIB),
    Tile("x", "x", "input", MIB // 2),
    Tile(LEFT_OUT, "40 smaller", "other", MIB // 2, "", 40),
]
TIMELINE = reports.Timeline(
    "cpu", array("f", [0, 1, 2]), (1, 7, 9), (2 * MIB, 10 * MIB, 4 * MIB), (2 * MIB,) * 3,
    (("saved for backward", (0, 5 * MIB, 0)), ("other", (0, 3 * MIB, 2 * MIB))),
    ((0, (0, 6 * MIB, 1 * MIB)), (1, (0, 2 * MIB, 1 * MIB))), 1,
)  # fmt: skip
LINE = SignalLine("0", (0.0, -2.0, math.nan), (1.0, 5.0, math.nan), (0, 0, 8))
SIGNAL = TensorPicture("(C, T)", 0, -2.0, 5.0, "shown", lines=(LINE,), of=1, step=4, size=(12,), bad=8)
SLICED, VECTOR = samples_tensor.transpose_slice(), samples_tensor.vector()


def treemap_sentence(tiles, what):
    return TreemapPicture(tiles, what, 0.0).sentence


def line_words(layer):
    return {"0": "line 5  out = net(x)", "1": "line 6  loss.backward()"}.get(layer.key, layer.key)


def numbered(levels):
    """The slice whose numbers at some places of the grid are others."""
    grid = SLICED.layout.grid
    rows = [[levels.get((r, c), level) for c, level in enumerate(row)] for r, row in enumerate(grid.levels)]
    return replace(SLICED, layout=replace(SLICED.layout, grid=replace(grid, levels=tuple(map(tuple, rows)))))


def values(levels, low, high):
    report = numbered(levels)
    return values_sentence(report, drawn_layout(report), (low, high))


def offsets(report):
    return offsets_sentence(report, drawn_layout(report))


def strip(*read):
    """What is said of nine elements of which those are read."""
    cells = tuple(StripCell(at, at + 1, int(at in read), int(at in read)) for at in range(9))
    return strip_sentence(VECTOR, reports.Strip(0, 9, 1, cells))


def losses(*pairs):
    report = replace(COMPARISONS["larger"], losses=tuple(LossPair(*pair) for pair in pairs))
    return LossesPicture(report, loss_scale([])).sentence


def with_norms(norms):
    """A calm run whose last pass has these gradients, by node, and 1 elsewhere."""
    report = samples_viewer.calm_run(3)
    (graph,) = report.graphs
    last = replace(graph.frames[-1], norms=array("f", [norms.get(node.index, 1.0) for node in graph.nodes]))
    return trace_alternative(replace(report, graphs=(replace(graph, frames=(*graph.frames[:-1], last)),)))


BROKEN = samples_viewer.broken_run()
VALUES = "Value at each index: 4 by 2 elements of x, from"
SIZE = "9 operations back to 6 leaves, net.conv1.weight, net.conv1.bias"
OF_PASS = f"Backward graph of digits-cnn: {SIZE} and 4 more; gradients of pass"
SAID = {
    # Items of one name in one group are one; what is not listed is counted, not named.
    "a treemap names its largest items and its kinds": (
        treemap_sentence, (TILES, "live memory on cpu"),
        ("Treemap of live memory on cpu, 10 MiB: parameters 60 %, saved for backward 30 %, inputs 5 %, other 5 %. "
        "Largest: fc.weight in net 6 MiB (60 %), relu in graph of loss 3 MiB (30 %), x 512 KiB (5 %) and 40 smaller."),
    ),
    "an empty treemap": (treemap_sentence, ([], "it"), "Treemap of it: nothing"),
    "a treemap of one kind": (
        treemap_sentence, ([Tile("train.py, line 3", "", "other", MIB)], "it"),
        "Treemap of it, 1 MiB. Largest: train.py, line 3 1 MiB (100 %).",
    ),
    "a timeline says its course, its peak, what that is made of, and its line": (
        TimelinePicture(TIMELINE, line_words).alternative, (by_category(TIMELINE),),
        ("Live memory on cpu, operation 1 to 9: 2 MiB at the start, the peak of 10 MiB at operation 7, 4 MiB at the "
        "end. Of the peak: saved for backward 5 MiB (50 %), other 3 MiB (30 %), before the run 2 MiB (20 %). "
        "The line with the most of it: line 5  out = net(x) 6 MiB (60 %)."),
    ),
    "by line the lines are what it is made of": (
        TimelinePicture(TIMELINE, line_words, "event").alternative, (by_line(TIMELINE),),
        ("Live memory on cpu, event 1 to 9: 2 MiB at the start, the peak of 10 MiB at event 7, 4 MiB at the end. "
        "Of the peak: line 5  out = net(x) 6 MiB (60 %), before the run 2 MiB (20 %), line 6  loss.backward() "
        "2 MiB (20 %)."),
    ),
    "offsets say their range and how they walk": (
        offsets, (SLICED,),
        ("Storage offset at each index: 4 by 2 elements of x, from 1 (darkest) to 16 (lightest); it steps by 1 along "
        "i, 12 along j."),
    ),
    "what is contiguous rises without a gap": (
        offsets, (samples_tensor.report("v", samples_tensor.layout((5,), (1,), 0, 5), 5),),
        ("Storage offset at each index: 1 by 5 elements of v, from 0 (darkest) to 4 (lightest); "
        "it is contiguous, row by row."),
    ),
    "values say their ends, and where those are": (
        values, ({(0, 0): -7.0, (1, 1): 0.0, (3, 1): 90.0}, -7.0, 90.0),
        f"{VALUES} \u22127 (darkest) to 90 (lightest); smallest at [0, 0], largest at [3, 1].",
    ),
    "where they are not finite, and a whole row that is not": (
        values, ({(1, 1): 0.0, (2, 0): math.nan, (2, 1): math.nan, (0, 1): -math.inf}, 0.0, 1.0),
        (f"{VALUES} 0 (darkest) to 1 (lightest); smallest at [1, 1], largest at [3, 1]; "
        "hatched: 2 NaN, the first at [2, 0], all along i = 2; hatched: 1 \u2212Inf, the first at [0, 1]."),
    ),
    "that they are equal": (
        values, ({(r, c): 3.0 for r in range(4) for c in range(2)}, 3.0, 3.0),
        f"{VALUES} 3 (darkest) to 3 (lightest); all of them equal.",
    ),
    "a strip says what is read, and the gaps": (
        strip, (2, 3, 6), "Storage elements 0 to 8, read by v from 2 to 6: 3 of 9 elements, with 1 gap between.",
    ),
    "a strip of which nothing is read": (strip, (), "Storage elements 0 to 8: none is read."),
    # A cell that stands for several says from which to which.
    "a row of slices says which are largest, zero and broken": (
        row_sentence,
        (SLICED, DimensionSlices(1, 8, 4, 4, 2, (0.5, 4.0, math.nan, 1.0), (0, 0, 3, 0), 2,
                                 (BadSlice(4, 3, 0), BadSlice(5, 0, 1)), True, 1, (7,))),
        ("Mean magnitude, 8 slices along j: largest 4 at 2 to 3, smallest 0.5 at 0 to 1; all zeros: 7; "
        "holding NaN or Inf: 4 and 5."),
    ),
    "a signal says where it is highest": (
        attrgetter("sentence"), (Shot(VECTOR, SIGNAL),),
        ("v: 1 signal of 12 values; v is read as (C, T); from \u22122 to 5; a column stands for 4 values: from their "
        "smallest to their largest; 8 values that are NaN or infinite are marked red; 0: highest 5 at 4, lowest "
        "\u22122 at 4"),
    ),
    "a sparse matrix says where it is fullest": (
        stored_sentence, (StoredMap("row", "column", 100, 200, 10, 20, ((0, 3), (7, 0))),),
        ("Stored elements of 100 by 200 places, 10 by 20 a cell: 2 of 4 cells hold some, 7 the fullest, at row 10, "
        "column 0."),
    ),
    "a component says what its values range over": (
        component_sentence,
        (reports.Component("x.values()", "", numbered({(1, 1): 0.0, (0, 0): math.nan, (3, 1): -4.0})), (-4.0, 2.0)),
        "Values of x.values(), 4 by 2, from \u22124 (darkest) to 2 (lightest); hatched: 1 NaN",
    ),
    "losses that part": (
        losses, ((1, 2.0, 2.0), (2, 1.0, 3.0)),
        "Loss over 2 steps: slow from 2 to 1; fast from 2 to 3; furthest apart at step 2: 1 and 3.",
    ),
    "losses that are equal": (
        losses, ((1, 2.0, 2.0), (2, 1.0, 1.0)),
        "Loss over 2 steps: slow from 2 to 1; fast from 2 to 1; equal at every step where both are finite.",
    ),
    "losses that break off": (
        losses, ((1, 2.0, None), (4, math.inf, None)),
        "Loss over 2 steps: slow from 2 to +Inf, not finite from step 4; fast has none.",
    ),
    # Which node is red first, on which line, since when, how far it spread, and what was found.
    "a run that broke says where and when": (
        trace_alternative, (BROKEN,),
        (f"{OF_PASS} 37 of 37. NaN was born in log (cell 5, line 6: logp = p.log()), in pass 31. "
        "In this pass 13 of 15 nodes hold NaN or Inf, net.conv1.weight, net.conv1.bias and 4 more among them. "
        "Largest finite gradient norm 0.11 in nll_loss (cell 5, line 7), smallest 0.1 in log (cell 5, line 6). "
        "error TM402, cell 5, line 6: the first NaN gradient is born in log: its input holds 3 zeros."),
    ),
    # Zero and no gradient are no ends, and are counted.
    "the ends are those of the pass that is drawn": (
        with_norms, ({2: 300.0, 4: 2e-7, 5: 0.0, 6: UNTOUCHED, 7: UNTOUCHED},),
        (f"{OF_PASS} 3 of 3. Largest finite gradient norm 300 in convolution of net.conv1 (cell 5, line 2), smallest "
        "2e\u22127 in net.conv2.weight. No gradient in 2 nodes, exactly zero in 1 node."),
    ),
    "where nobody saw it come into being, the nodes are named": (
        with_norms, ({0: math.nan, 3: math.inf},),
        (f"{OF_PASS} 3 of 3. NaN or Inf in 2 of 15 nodes: net.conv1.weight and relu (cell 5, line 2: "
        "h = F.relu(net.conv1(x))). Largest finite gradient norm 1 in net.conv1.bias, smallest 1 in net.conv1.bias."),
    ),
    "one norm alone has no ends": (
        with_norms, (dict.fromkeys(range(14), UNTOUCHED),), f"{OF_PASS} 3 of 3. No gradient in 14 nodes.",
    ),
    "no graph is no list of numbers": (
        trace_alternative, (samples_trace.empty(),),
        "this run: no backward graph, 0 backward passes in 12.4 s, tracing +4.2 %.",
    ),
    "an error is said after what was seen": (
        trace_alternative, (samples_trace.failed(),),
        ("Backward graph of digits-cnn: 15 operations back to 8 leaves, net.conv1.weight, net.conv1.bias and 6 more; "
        "gradients of pass 2 of 2. Largest gradient norm 1 in add of net, smallest 1e\u22124 in net.conv1.weight. "
        "The run failed: ValueError: expected 10 classes, got 11."),
    ),
    "a crash is said with its node": (
        attrgetter("sentence"), (EndedGraph(samples_viewer.calm_run(1).graphs[0], 2, "torch refused this"),),
        f"Graph of {SIZE} and 4 more; torch refused this: convolution.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("picture", SAID)
def test_a_picture_is_told(picture):
    """To the letter."""
    say, given, words = SAID[picture]
    assert say(*given) == words


def test_panel_picture_file_and_viewer_say_the_same():
    """One sentence for the static picture, the saved file and the live graph; while it runs the viewer says less."""
    said = trace_alternative(BROKEN)
    assert Page(trace_html.render(BROKEN)).attributes("img")[0]["alt"] == said
    assert said in [drawn.get("aria-label") for drawn in Page(trace_forms.svg(BROKEN)).attributes("g")]
    assert trace_document(BROKEN)["graphs"][0]["said"] == said
    assert trace_document(replace(BROKEN, state="running"))["graphs"][0]["said"] == ""


@pytest.mark.parametrize("name", HOSTILE)
def test_a_sentence_stays_short(name):
    """Whatever the names in it hold; that markup in them stays text, `test_hostile` looks at in every field."""
    assert len(trace_alternative(everywhere(BROKEN, HOSTILE[name]))) < 2000
