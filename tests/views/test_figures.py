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


def test_strides_are_the_offsets_of_the_grid() -> None:
    """The heatmap's numbers are the grid's offsets, written into the cells of a small one."""
    drawn = figures.figure(SAMPLES["transpose_slice"], "strides").data[0]
    assert [list(row) for row in drawn.z] == [[1, 13], [2, 14], [3, 15], [4, 16]]
    assert drawn.texttemplate == "%{z}"
    assert drawn.hovertemplate.startswith("x[%{y}, %{x}] = %{customdata}, offset %{z}")


def test_sampled_strides_say_what_of_what() -> None:
    """The note under the title names sampled rows and columns; cells are not annotated."""
    figure = figures.figure(SAMPLES["causal_scores"], "strides")
    assert "32 × 32 of 1024 × 1024" in title(figure)
    assert figure.data[0].texttemplate is None
    assert figure.data[0].hovertemplate.startswith("scores[0, %{y}, %{x}]")


def test_storage_leaves_unread_cells_empty_and_counts_them() -> None:
    """16 of 24 elements of the storage are not read."""
    figure = figures.figure(SAMPLES["transpose_slice"], "storage")
    assert sum(value is None for value in figure.data[0].z[0]) == 16
    assert "16 cells not read" in title(figure)


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


def test_gradient_flow_keeps_every_non_finite_pass_when_it_thins() -> None:
    """A thousand passes become at most two hundred and the bad ones; the title says how many of how many."""
    norms = [1.0] * 1000
    norms[501] = math.inf
    figure = figures.figure(trace(series("net.w", norms), seen=5000), "gradient_flow")
    assert 502 in figure.data[0].x
    assert len(figure.data[0].x) == 202
    assert "202 of 5000 passes drawn" in title(figure)


def test_gradient_flow_of_many_parameters_says_which_are_drawn() -> None:
    """Forty parameters are 24 lines, the one with a NaN among them however small it is."""
    many = [series(f"net.{at}", [1.0, 0.5], numel=100 + at) for at in range(39)]
    figure = figures.figure(trace(*many, series("net.bad", [1.0, math.nan], numel=1)), "gradient_flow")
    names = [drawn.name for drawn in figure.data if drawn.mode == "lines+markers"]
    assert len(names) == figures.MOST_LINES
    assert "net.bad" in names
    assert "24 of 40 parameters drawn" in title(figure)


def test_gradient_flow_without_a_gradient_is_refused() -> None:
    """Nothing to draw is an error that says so, not an empty picture."""
    with pytest.raises(TensorMagicError, match="no parameter received a gradient"):
        figures.figure(trace(series("net.w", [UNTOUCHED])), "gradient_flow")


@pytest.mark.parametrize(("name", "kind"), [("transpose_slice", "gradient_flow"), ("vector", "nosuch")])
def test_unknown_kind_names_those_there_are(name: str, kind: str) -> None:
    """The message says what was asked for and what this report has."""
    with pytest.raises(TensorMagicError) as caught:
        figures.figure(SAMPLES[name], kind)
    assert str(caught.value) == (
        f'there is no figure "{kind}" of a tensor report; it has: "strides", "storage", "values"'
    )


@pytest.mark.parametrize("kind", ["strides", "storage", "values"])
def test_figure_of_what_could_not_be_read_gives_the_reason(kind: str) -> None:
    """A report with gaps has no figure, and the error is the gap's own reason."""
    with pytest.raises(TensorMagicError, match="this wrapper has no storage"):
        figures.figure(SAMPLES["all_missing"], kind)


DRAWN = [name for name, report in SAMPLES.items() if report.layout is not None and name not in {"empty", "largest"}]


@pytest.mark.parametrize("kind", ["strides", "storage", "values"])
def test_a_tensor_without_strides_has_no_figure_of_them(kind: str) -> None:
    """A sparse tensor is refused with the reason that it has none."""
    with pytest.raises(TensorMagicError, match="it has no strides; its panel shows the rest"):
        figures.figure(SAMPLES["sparse"], kind)


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
    """Importing the module does not import plotly."""
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
