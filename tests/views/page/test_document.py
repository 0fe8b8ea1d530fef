"""The viewer's document: its numbers, and what is left out; what is seen of it, tests/browser looks at."""

from __future__ import annotations

import json
import math
from array import array
from dataclasses import replace
from itertools import pairwise

import pytest

from tensormagic.reports import UNREADABLE, UNTOUCHED, Cell, Edge, Frame, Location
from tensormagic.views.page.columns import edge_columns, frame_rows, norm_code, thinned
from tensormagic.views.page.document import SAVED_LIMITS, Limits, trace_document
from tests.views import samples_viewer


@pytest.mark.parametrize(
    ("norm", "code"),
    [
        (1.0, 0), (0.01, -500), (0.177, -188), (0.0, "z"), (math.nan, "n"), (math.inf, "i"), (UNTOUCHED, None),
        (UNREADABLE, "u"), (1e-45, -11250),
    ],
)  # fmt: skip
def test_norm_code(norm: float, code: int | str | None) -> None:
    """A norm is a step of a 250th of a decade; what is no positive number has a sign of its own.

    Reading a code back is at most 0.47 % off.
    """
    assert norm_code(norm) == code
    codes = [norm_code(norm) for norm in (0.123456, 7.77e-9, 3.14e5)]
    assert {*map(type, codes)} == {int}
    assert [10 ** (code / 250) for code in codes] == pytest.approx([0.123456, 7.77e-9, 3.14e5], rel=0.0047)


@pytest.mark.parametrize("most", [2, 3, 12])
def test_thinning_keeps_first_last_and_the_wanted_one(most: int) -> None:
    """Of a hundred items some ten are kept: the ends, the first wanted one, others evenly; what fits is not thinned."""
    kept = thinned(range(100), 10, keep=lambda item: item > 42)
    assert (kept[0], kept[-1], 43 in kept) == (0, 99, True)
    assert len(kept) <= 11
    assert max(right - left for left, right in pairwise(kept)) <= 13
    assert thinned([1, 2], most, keep=bool) == [1, 2]


def test_nodes_are_columns() -> None:
    """Every column has one entry a node, and texts are places in the table of strings."""
    report = samples_viewer.broken_run()
    document, nodes = trace_document(report), report.graphs[0].nodes
    columns, strings = document["graphs"][0]["nodes"], document["strings"]
    assert [strings[place] for place in columns["op"]] == [node.op for node in nodes]
    assert columns["location"] == [node.location for node in nodes]
    log = next(node.index for node in nodes if node.op == "log")
    saved = [document["saved"][place] for place in columns["saved"][log]]
    told = [(strings[row[0]], row[3], strings[row[4]]) for row in saved]
    assert told == [("self", 1280, "ok"), ("result", 1280, "freed")]
    assert columns["statistics"][log] == [1, 320, "0.18", "0.031", "−0.0031", "0.0095", "288  (90 %)", 0, 0]


def test_what_a_line_made_has_its_name_there() -> None:
    """A value is called as its line calls it, else by the op that made it; of two statements nobody knows which."""
    base = samples_viewer.calm_run()
    made = trace_document(base)["graphs"][0]["made"]
    assert [made[at] for at in ("1", "5", "6")] == [
        ["convolution: 32×16×6×6", "h: 32×16×6×6"], ["logp: 32×10"], ["nll_loss: scalar"],
    ]  # fmt: skip
    first, second, *rest = base.cell.lines
    lines = (first, second.replace("    h = ", "    h = x.float(); g = "), *rest)
    document = trace_document(replace(base, cell=replace(base.cell, lines=lines)))
    assert document["graphs"][0]["made"]["1"][-1] == "relu: 32×16×6×6"


def test_source_rows_point_to_locations() -> None:
    """The cell's lines come whole, each with the locations on it; lines of other files follow under their name.

    Of a file of 500 lines only those that took part are listed, with their neighbours, and the gaps between.
    """
    base = samples_viewer.calm_run()
    elsewhere = Location("/home/x/model.py", 40, "return x.exp()")
    rows = trace_document(replace(base, locations=(*base.locations, elsewhere)))["source"]
    assert rows[5] == [6, "    logp = p.log()", [5]]
    assert rows[-2:] == [[0, "model.py", []], [40, "return x.exp()", [10]]]
    lines = tuple(f"line {number}" for number in range(1, 501))
    rows = trace_document(replace(base, cell=Cell(base.cell.filename, 5, (*base.cell.lines, *lines))))["source"]
    assert [row[0] for row in rows] == list(range(1, 13))
    far = replace(base.locations[0], line=300)
    rows = trace_document(replace(base, locations=(far,), cell=Cell(far.filename, 5, lines)))["source"]
    assert [row[0] for row in rows] == [0, 298, 299, 300, 301, 302]


def test_limits_are_kept_and_said() -> None:
    """What the limits leave out is named with both numbers."""
    limits = Limits(frame_values=300, series_values=48, parameters=4)
    document = trace_document(samples_viewer.broken_run(passes=100, at=60), limits=limits)
    assert json.loads(json.dumps(document, allow_nan=False)) == document, "it is strict JSON"
    frames = document["graphs"][0]["frames"]
    assert {1, 60, 100} <= {frame["pass"] for frame in frames}
    assert len(document["parameters"]) == 4
    assert document["parameters_said"] == ["of 4 of 6 parameters, log scale", "No parameter took part."]
    assert all(len(parameter["norms"]) == len(document["passes"]) for parameter in document["parameters"])
    assert document["notes"] == [
        f"{len(frames)} of 100 kept passes of graph 1 are shown node by node",
        "4 of 6 parameters are shown",
        f"{len(document['passes'])} of 100 kept passes are shown in the charts",
        "saved tensors: the graph was freed before they could be read",
    ]


def test_graphs_beyond_the_limit_are_left_out_and_said() -> None:
    """Of twenty graphs the most used are shown; a run without a backward has none, and nothing fails."""
    base = samples_viewer.calm_run(2)
    graphs = tuple(replace(base.graphs[0], number=number) for number in range(1, 21))
    document = trace_document(replace(base, graphs=graphs))
    assert [graph["number"] for graph in document["graphs"]] == list(range(1, SAVED_LIMITS.graphs + 1))
    assert "8 of 20 graphs are shown, the most used first" in document["notes"]
    document = trace_document(replace(base, graphs=(), parameters=(), passes=(), passes_seen=0, locations=()))
    assert (document["graphs"], document["parameters"], document["passes"]) == ([], [], [])


def test_passes_are_rows_with_their_loss():
    """What backward was called on stands in the pass's row, by name where JSON has no number for it.

    While a pass goes on, and the run has no entry of it yet, its row says its number alone.
    """
    report = samples_viewer.calm_run(3)
    values = (2.30259, math.nan, None)
    passes = tuple(replace(one, value=value) for one, value in zip(report.passes, values, strict=True))
    document = trace_document(replace(report, passes=passes))
    assert [row[2:] for row in document["passes"]] == [[2.303, "2.303"], ["nan", "NaN"], [None, ""]]
    assert [frame["said"] for frame in document["graphs"][0]["frames"]] == [
        "pass 1, step 1, loss 2.303", "pass 2, step 2, loss NaN", "pass 3, step 3",
    ]  # fmt: skip
    begun = trace_document(replace(report, passes=report.passes[:1]))["graphs"][0]["frames"]
    assert [frame["said"] for frame in begun] == ["pass 1, step 1", "pass 2", "pass 3"]


def test_edges_and_order_are_steps() -> None:
    """What lies next to each other in a graph is a small number: sources and order as steps, targets below sources."""
    edges = (Edge(3, 2, 0, 0), Edge(3, 0, 1, 0), Edge(5, 3, 0, 0))
    assert edge_columns(edges) == [[3, 0, 2], [1, 3, 2], [0, 1, 0]]
    assert edge_columns(()) == [[], [], []]
    assert trace_document(samples_viewer.calm_run(1))["graphs"][0]["order"] == [14, *[-1] * 14]


_FULL = (0.5, -0.25, 0.125, 0.5, 0.0, 0.0)


def _frame(number, *measures):
    return Frame(number, array("f", [1.0, 0.1]), {}, array("f", [value for row in measures for value in row]))


def test_columns_hold_what_says_anything():
    """In words; what is zero throughout is left out, and unmeasured nodes. Shares are counts where those are known.

    A pass measured by norms alone has no columns: its row is the norms and what was not finite. JSON has no NaN, so
    numbers that are none are named. The shares of a sum stand beside the norms, as codes like them.
    """
    (row,) = frame_rows([_frame(4, _FULL, [UNTOUCHED] * 6)], 1000)
    words = {"|max|": ["0.5", None], "mean": ["−0.25", None], "std": ["0.13", None], "zeros": ["50 %", None]}
    assert row["measures"] == words
    (row,) = frame_rows([_frame(4, _FULL, [UNTOUCHED] * 6)], 1000, [12, 0])
    assert row["measures"] == words | {"zeros": ["6  (50 %)", None]}
    (row,) = frame_rows([Frame(1, array("f", [1.0, UNTOUCHED]), {"0": (1, 2)})], 1000)
    assert row == {"pass": 1, "norms": [0, None], "bad": [[0, 1, 2]]}
    (row,) = frame_rows([_frame(1, (math.inf, math.nan, math.nan, 0.0, 0.0, 1.0), _FULL)], 1000)
    odd = {"|max|": ["Inf", "0.5"], "mean": ["NaN", "−0.25"], "at the limit": ["100 %", "0 %"]}
    assert row["measures"].items() >= odd.items()
    parts = Frame(1, array("f", [1.0]), {}, array("f"), array("f", [0.1, UNTOUCHED]))
    assert frame_rows([parts], 100)[0]["parts"] == [-250, None]


@pytest.mark.parametrize(("values", "told"), [(0, 0), (24, 2), (60, 4), (10_000, 9)])
def test_of_many_passes_as_many_as_fit_are_told_in_full(values, told):
    """Evenly spread, with the first and the last; none where there is no room at all, as while the cell runs."""
    rows = frame_rows([_frame(number, _FULL, _FULL) for number in range(1, 10)], values)
    full = [row["pass"] for row in rows if "measures" in row]
    assert len(rows) == 9
    assert len(full) == told
    assert not full or (full[0], full[-1]) == (1, 9)
