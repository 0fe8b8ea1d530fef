"""What is said of pictures to who does not see them, beyond what stored panels say: the rare numbers, places, names."""

from __future__ import annotations

import math
from array import array
from dataclasses import replace
from operator import attrgetter

import pytest

from tensormagic import reports
from tensormagic.reports import UNTOUCHED, SignalLine, StoredMap, StripCell, TensorPicture
from tensormagic.reports.comparison import LossPair
from tensormagic.views.page.document import trace_document
from tensormagic.views.panels import trace as trace_html
from tensormagic.views.pictures.gradient_graph import EndedGraph, trace_alternative
from tensormagic.views.pictures.norms import LossesPicture, loss_scale
from tensormagic.views.pictures.tensor_elements import drawn_layout
from tensormagic.views.pictures.tensor_grid import offsets_sentence, strip_sentence, values_sentence
from tensormagic.views.pictures.tensor_kinds import stored_sentence, values_sentence as component_sentence
from tensormagic.views.pictures.tensor_shot import Shot
from tensormagic.views.pictures.treemap import Tile, TreemapPicture
from tests.views import samples_tensor, samples_viewer, trace_forms
from tests.views.hostile import HOSTILE, everywhere
from tests.views.markup_reader import Page
from tests.views.samples_comparison import SAMPLES as COMPARISONS

MIB = 2**20
SAME = [Tile("graph", "relu", "saved for backward", size * MIB) for size in (1, 2)]
LINE = SignalLine("0", (0.0, -2.0, math.nan), (1.0, 5.0, math.nan), (0, 0, 8))
SIGNAL = TensorPicture("(C, T)", 0, -2.0, 5.0, "shown", lines=(LINE,), of=1, step=4, size=(12,), bad=8)
SLICED, VECTOR = samples_tensor.transpose_slice(), samples_tensor.vector()
RISING = samples_tensor.report("v", samples_tensor.layout((5,), (1,), 0, 5), 5)
BROKEN = samples_viewer.broken_run()


def numbered(levels):
    """The slice whose numbers at some places of the grid are others."""
    grid = SLICED.layout.grid
    rows = [[levels.get((r, c), level) for c, level in enumerate(row)] for r, row in enumerate(grid.levels)]
    return replace(SLICED, layout=replace(SLICED.layout, grid=replace(grid, levels=tuple(map(tuple, rows)))))


def values(levels, low, high):
    report = numbered(levels)
    return values_sentence(report, drawn_layout(report), (low, high))


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


VALUES = "Value at each index: 4 by 2 elements of x, from"
SIZE = "9 operations back to 6 leaves, net.conv1.weight, net.conv1.bias"
OF_PASS = f"Backward graph of digits-cnn: {SIZE} and 4 more; gradients of pass"
SAID = {
    "items of one name in one group of a treemap are one": (
        attrgetter("sentence"), (TreemapPicture([*SAME, Tile("x", "x", "input", MIB)], "it", 0.0),),
        ("Treemap of it, 4 MiB: saved for backward 75 %, inputs 25 %. Largest: relu in graph 3 MiB (75 %), "
         "x 1 MiB (25 %)."),
    ),
    "an empty treemap": (attrgetter("sentence"), (TreemapPicture([], "it", 0.0),), "Treemap of it: nothing"),
    "what is contiguous rises without a gap": (
        offsets_sentence, (RISING, drawn_layout(RISING)),
        ("Storage offset at each index: 1 by 5 elements of v, from 0 (darkest) to 4 (lightest); "
        "it is contiguous, row by row."),
    ),
    "where values are not finite, and a whole row that is not": (
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
    "losses that are equal": (
        losses, ((1, 2.0, 2.0), (2, 1.0, 1.0)),
        "Loss over 2 steps: slow from 2 to 1; fast from 2 to 1; equal at every step where both are finite.",
    ),
    "losses that break off": (
        losses, ((1, 2.0, None), (4, math.inf, None)),
        "Loss over 2 steps: slow from 2 to +Inf, not finite from step 4; fast has none.",
    ),
    # Zero and no gradient are no ends, and are counted.
    "the ends are those of the pass that is drawn": (
        with_norms, ({2: 300.0, 4: 2e-7, 5: 0.0, 6: UNTOUCHED, 7: UNTOUCHED},),
        (f"{OF_PASS} 3 of 3. Largest finite gradient norm 300 in convolution of net.conv1 (cell 5, line 2), smallest "
        "2e\u22127 in net.conv2.weight. No gradient in 2 nodes, exactly zero in 1 node."),
    ),
    "a pass of one of two graphs has its number among those of the run": (
        lambda run: trace_alternative(run).partition(". ")[0], (replace(samples_viewer.calm_run(3), passes_seen=20),),
        f"{OF_PASS} 3 of 20",
    ),
    "where nobody saw it come into being, the nodes are named": (
        with_norms, ({0: math.nan, 3: math.inf},),
        (f"{OF_PASS} 3 of 3. NaN or Inf in 2 of 15 nodes: net.conv1.weight and relu (cell 5, line 2: "
        "h = F.relu(net.conv1(x))). Largest finite gradient norm 1 in net.conv1.bias, smallest 1 in net.conv1.bias."),
    ),
    "a crash is said with its node": (
        attrgetter("sentence"), (EndedGraph(samples_viewer.calm_run(1).graphs[0], 2, "torch refused this"),),
        f"Graph of {SIZE} and 4 more; torch refused this: convolution.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("picture", SAID)
def test_a_picture_is_told(picture):
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
