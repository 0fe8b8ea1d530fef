"""Plotly figures of reports."""

from __future__ import annotations

import math
import subprocess
import sys
from array import array

import pytest

from tensormagic.errors import TensorMagicError
from tensormagic.reports import UNTOUCHED, Cell, ParameterSeries, Pass, TraceReport
from tensormagic.views import theme
from tensormagic.views.page import figures
from tensormagic.views.page.figures import MOST_TILES
from tests.views.samples_memory import SAMPLES as MEMORY
from tests.views.samples_memory_run import SAMPLES as RUNS
from tests.views.samples_sharing import ALIASES, TABLES
from tests.views.samples_tensor import SAMPLES


def series(name: str, norms: list[float], numel: int = 4) -> ParameterSeries:
    """A parameter with these gradient norms."""
    packed = array("f", norms)
    return ParameterSeries(name, (numel,), "float32", numel, True, True, True, "net", packed, len(norms))


def trace(*parameters: ParameterSeries, seen: int | None = None) -> TraceReport:
    """A finished run with one pass for each norm."""
    passes = tuple(Pass(at + 1, at + 1, 1, "finished", 0.1, 5) for at in range(len(parameters[0].norms)))
    return TraceReport(title="net", state="finished", cell=Cell("cell", 1, ()), seconds=1.0, own_seconds=0.1,
                       passes=passes, passes_seen=seen or len(passes), parameters=parameters)  # fmt: skip


def title(figure) -> str:
    return figure.layout.title.text


def test_a_grid_holds_offsets_and_says_what_is_left_out() -> None:
    """The heatmap's numbers are the grid's offsets, written into the cells of a small one.

    Of a sampled one the note names rows and columns; cells of a storage that are not read are empty, and counted.
    """
    drawn = figures.figure(SAMPLES["transpose_slice"], "strides").data[0]
    assert [list(row) for row in drawn.z] == [[1, 13], [2, 14], [3, 15], [4, 16]]
    assert drawn.texttemplate == "%{z}"
    assert drawn.hovertemplate.startswith("x[%{y}, %{x}] = %{customdata}, offset %{z}")
    sampled = figures.figure(SAMPLES["causal_scores"], "strides")
    assert "32 × 32 of 1024 × 1024" in title(sampled)
    assert sampled.data[0].texttemplate is None
    storage = figures.figure(SAMPLES["transpose_slice"], "storage")
    assert sum(value is None for value in storage.data[0].z[0]) == 16
    assert "16 cells not read" in title(storage)


def test_values_mark_what_is_no_number() -> None:
    """NaN and Inf are marked where they are, counted in the title, and no colour is made up for them."""
    figure = figures.figure(SAMPLES["non_finite"], "values")
    marks = {drawn.name: list(zip(drawn.y, drawn.x, strict=True)) for drawn in figure.data if drawn.type == "scatter"}
    assert marks == {"NaN": [("0", "0")], "Inf": [("0", "1"), ("0", "2")]}
    assert list(figure.data[0].z[0]) == [None, None, None]
    assert "1 NaN, 1 +Inf, 1 −Inf" in title(figure)
    bars = next(drawn for drawn in figure.data if drawn.type == "bar")
    assert list(bars.y) == list(SAMPLES["non_finite"].statistics.histogram_counts)


def test_gradient_flow_shows_every_pass_or_marks_it() -> None:
    """On a log scale NaN and zero have no place: they are gaps in the line and marks at the edge."""
    figure = figures.figure(trace(series("net.w", [0.5, math.nan, 0.25, 0.0, UNTOUCHED])), "gradient_flow")
    drawn = {one.name: one for one in figure.data}
    assert drawn["net.w"].y == pytest.approx((0.5, None, 0.25, None, None))
    assert list(drawn["NaN or Inf"].x) == [2]
    assert list(drawn["exactly zero"].x) == [4]
    assert figure.layout.yaxis.type == "log"


def test_gradient_flow_of_many_passes_or_parameters_says_what_is_drawn() -> None:
    """A thousand passes become at most two hundred and the bad ones, forty parameters 24, a NaN among them."""
    norms = [1.0] * 1000
    norms[501] = math.inf
    figure = figures.figure(trace(series("net.w", norms), seen=5000), "gradient_flow")
    assert 502 in figure.data[0].x
    assert len(figure.data[0].x) == 202
    assert "202 of 5000 passes drawn" in title(figure)
    many = [series(f"net.{at}", [1.0, 0.5], numel=100 + at) for at in range(39)]
    figure = figures.figure(trace(*many, series("net.bad", [1.0, math.nan], numel=1)), "gradient_flow")
    names = [drawn.name for drawn in figure.data if drawn.mode == "lines+markers"]
    assert len(names) == figures.MOST_LINES
    assert "net.bad" in names
    assert "24 of 40 parameters drawn" in title(figure)


NO_SUCH = 'there is no figure "{}" of a tensor report; it has: "strides", "storage", "values"$'
OF_TENSORS, OF_RUNS = ("strides", "storage", "values"), ("timeline", "treemap", "lines")
REFUSED = [
    (trace(series("net.w", [UNTOUCHED])), "gradient_flow", "no parameter received a gradient"),
    (SAMPLES["transpose_slice"], "gradient_flow", NO_SUCH.format("gradient_flow")),
    (SAMPLES["vector"], "nosuch", NO_SUCH.format("nosuch")),
    *((SAMPLES["all_missing"], kind, "this wrapper has no storage") for kind in OF_TENSORS),
    *((SAMPLES["sparse"], kind, "it has no strides; its panel shows the rest") for kind in OF_TENSORS),
    *((RUNS["empty"], kind, f'no "{kind}" figure') for kind in OF_RUNS),
]


@pytest.mark.parametrize(("report", "kind", "words"), REFUSED, ids=[words for _, _, words in REFUSED])
def test_what_cannot_be_drawn_is_refused_with_the_reason(report, kind: str, words: str) -> None:
    """Nothing to draw is an error that says so, not an empty picture; an unknown kind names those that there are."""
    with pytest.raises(TensorMagicError, match=words):
        figures.figure(report, kind)


DRAWN = [name for name, report in SAMPLES.items() if report.layout is not None and name not in {"empty", "largest"}]


@pytest.mark.parametrize("name", DRAWN)
def test_figures_are_small_and_hold_no_markup_of_a_person(name: str) -> None:
    """Every figure of every sample stays under 40 KB, it has paper of its own, and a user's tags are text."""
    for kind in figures.kinds_of(SAMPLES[name]):
        figure = figures.figure(SAMPLES[name], kind)
        text = figure.to_json()
        assert len(text) < 40_000
        assert "<b onload" not in text
        assert "\\u003cb onload" not in text
        assert figure.layout.paper_bgcolor == figure.layout.plot_bgcolor == "#fff"


def test_plotly_is_imported_on_the_first_figure_only() -> None:
    code = "import sys; import tensormagic.views.page.figures; print('plotly' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_figure_has_dark_paper_where_the_persons_own_figures_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who works with Plotly's dark template gets light ink on dark paper; else it is dark ink on light paper."""
    import plotly.io

    name = next(one for one in DRAWN if "strides" in figures.kinds_of(SAMPLES[one]))
    inks = []
    for template in ("plotly", "plotly_dark"):
        monkeypatch.setattr(plotly.io.templates, "default", template)
        layout = figures.figure(SAMPLES[name], "strides").layout
        inks.append((layout.font.color, layout.paper_bgcolor))
    assert inks == [(theme.role("ink", dark=dark), theme.role("bg", dark=dark)) for dark in (False, True)]


@pytest.mark.parametrize("report", [MEMORY["gpt"], MEMORY["many"], RUNS["training"]], ids=["gpt", "many", "run"])
def test_a_treemap_adds_up(report) -> None:
    """Every rectangle has the bytes of those inside of it, as plotly asks for; each has an id of its own."""
    drawn = figures.figure(report, "treemap").data[0]
    assert len(set(drawn.ids)) == len(drawn.ids)
    inside: dict[str, int] = {}
    for parent, value in zip(drawn.parents, drawn.values, strict=True):
        inside[parent] = inside.get(parent, 0) + value
    own = dict(zip(drawn.ids, drawn.values, strict=True))
    assert {parent: value for parent, value in inside.items() if parent} == {node: own[node] for node in inside if node}
    assert len(drawn.ids) < MOST_TILES + 100


def test_the_timeline_stacks_what_is_alive() -> None:
    """The last value of all areas together is what was alive at the end; the peak is marked; axes speak in bytes.

    What is alive has a treemap; a run has a timeline and its lines besides.
    """
    report = RUNS["training"]
    assert (figures.kinds_of(MEMORY["small"]), figures.kinds_of(report)) == (("treemap",), OF_RUNS)
    figure = figures.figure(report, "timeline")
    assert sum(area.y[-1] for area in figure.data) == report.timelines[0].live[-1]
    assert figure.layout.annotations[0].text == "peak 86.2 MiB"
    assert figure.layout.yaxis.ticktext == ("0", "20 MiB", "40 MiB", "60 MiB", "80 MiB")


def test_figures_of_rows() -> None:
    """A bar of what is allocated, alive at the peak and kept; of what is read; the largest tensors first."""
    drawn = figures.figure(RUNS["training"], "lines").data
    assert [one.name for one in drawn] == ["allocated", "at the peak", "kept"]
    assert (drawn[2].y[3], drawn[2].customdata[3]) == ("line 8  optimizer.step()", "30 MiB")
    drawn = ALIASES["asked"].figure("memory_map")
    assert [round(start) for start in drawn.data[0].base[:3]] == [0, 4, 8]
    assert set(drawn.data[0].y) == {"A  a", "A  x", "A  n", "A  q", "A  e"}
    sizes = TABLES["few"].figure()
    assert list(sizes.data[0].x)[:2] == [60_000_000, 96]
    assert sizes.data[0].y[1].endswith("  A")
