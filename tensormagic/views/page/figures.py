"""Reports as Plotly figures: the second view, for what one wants to zoom into, compare or publish.

Plotly is imported here alone, and on the first call. A figure does not know the theme of the page it lands on, and no
ink reads well on white and on near-black: it brings its own paper, light, or dark where the user's own default
template is (``plotly.io.templates.default = "plotly_dark"``). What cannot be placed on an axis, a NaN on a log scale
for one, is marked and counted, never dropped.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tensormagic.errors import RequirementError, TensorMagicError
from tensormagic.reports import (
    UNREADABLE,
    AliasReport,
    ComparisonReport,
    MemoryReport,
    MemoryRunReport,
    Report,
    RunReport,
    Statistics,
    TensorReport,
    TensorTable,
    TraceReport,
)
from tensormagic.views import theme
from tensormagic.views.markup import plain_report
from tensormagic.views.page import figures_panels
from tensormagic.views.page.figures_panels import Framed, plain_text
from tensormagic.views.panels.trace_words import NOT_MEASURABLE, touched
from tensormagic.views.pictures.tensor_elements import (
    DrawnLayout,
    drawn_layout,
    element,
    formula_at,
    index_at,
    name,
    shown,
    strip_shown,
    value_range,
)
from tensormagic.views.pictures.tensor_grid import cell_title
from tensormagic.views.pictures.tensor_values import statistics_scope
from tensormagic.words import count, plural, short_number, shortened

FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
ANNOTATED_CELLS = 144
MOST_LINES = 24
MOST_POINTS = 200
NOTE_WIDTH = 110  # characters of a line under the title
_SCALE = [[at / 9, theme.offset_colour(at / 9)] for at in range(10)]


def figure(report: Report, kind: str) -> Any:
    """Return a ``plotly.graph_objects.Figure`` of ``report``.

    Args:
        report: A tensor's or a trace's report.
        kind: One of `kinds_of` the report; empty: the first of them.

    Raises:
        TensorMagicError: for a kind that this report does not have, or has no data for.
        RequirementError: where plotly is not installed.
    """
    kind = kind or next(iter(kinds_of(report)), "")
    if isinstance(report, RunReport):
        return figure(next((part for part in report.parts if kind in kinds_of(part)), report.trace), kind)
    chosen = KINDS.get(kind)
    if chosen is None or not isinstance(report, chosen.report_class):
        known = ", ".join(f'"{one}"' for one in kinds_of(report))
        if not known:
            raise TensorMagicError(f"there is no figure of a {report.kind_name} report")
        raise TensorMagicError(f'there is no figure "{kind}" of a {report.kind_name} report; it has: {known}')
    try:
        import plotly.graph_objects as plotly
    except ImportError as error:
        raise RequirementError("figures need plotly, which is not installed: pip install plotly") from error
    return _styled(*chosen.draw(plotly, plain_report(report)))


def kinds_of(report: Report) -> tuple[str, ...]:
    """Return the kinds of figure that this report can be drawn as."""
    if isinstance(report, RunReport):
        return tuple(kind for part in report.parts for kind in kinds_of(part))
    return tuple(kind for kind, entry in KINDS.items() if isinstance(report, entry.report_class))


def _styled(drawn: Any, title: str, note: str, height: int) -> Any:
    lines = textwrap.wrap(plain_text(note), NOTE_WIDTH)
    small = [f"<span style='font-size:11px'>{line}</span>" for line in lines]
    text = "<br>".join([f"<b>{plain_text(title)}</b>", *small])
    import plotly.io

    dark = "dark" in str(plotly.io.templates.default)
    ink, quiet, grid, paper = (theme.role(name, dark=dark) for name in ("ink", "line-2", "line", "bg"))
    axis = {"gridcolor": grid, "zeroline": False, "linecolor": quiet, "ticks": "outside", "tickcolor": quiet}
    return drawn.update_layout(
        title={"text": text, "x": 0.01, "xanchor": "left", "font": {"size": 14}},
        template={"layout": {"xaxis": axis, "yaxis": axis}},  # what a figure says of its own axes comes before it
        height=height + 14 * len(lines),
        font={"family": FONT, "size": 12, "color": ink}, paper_bgcolor=paper, plot_bgcolor=paper,
        margin={"l": 60, "r": 20, "t": 48 + 14 * len(lines), "b": 48},
        hovermode="closest", overwrite=True,
    )  # fmt: skip


def _picture(report: TensorReport, kind: str) -> DrawnLayout:
    picture = drawn_layout(report)
    if picture is None or not picture.drawable:
        reasons = "; ".join(f"{gap.section}: {gap.reason}" for gap in report.gaps)
        without = "it has no element" if picture is not None else "it has no strides; its panel shows the rest"
        raise TensorMagicError(f'no "{kind}" figure of {name(report)}: {reasons or without}')
    return picture


def strides(plotly: Any, report: TensorReport) -> Framed:
    """Draw the index grid, coloured by storage offset; hover tells index, offset and value."""
    picture = _picture(report, "strides")
    grid = picture.grid
    drawn = _grid_map(plotly, report, picture, "offset %{z}").update(
        z=[list(row) for row in grid.offsets],
        colorbar={"title": {"text": "offset"}, "outlinewidth": 0, "thickness": 12},
    )
    if drawn.xgap:
        drawn.update(texttemplate="%{z}")
    note = shown(report) or formula_at(picture.layout, picture.index)
    title = f"Storage offset at each index of {name(report)}"
    return _index_axes(plotly.Figure(drawn), picture), title, note, _height(len(grid.rows))


def _height(rows: int) -> int:
    return min(max(140 + 24 * rows, 220), 520)


def _grid_map(plotly: Any, report: TensorReport, picture: DrawnLayout, ending: str) -> Any:
    """Return the cells of a grid, still without numbers; those of a small one are apart from each other.

    They have one template for what is said of them: the index from the axes, the value from the cell's own data.
    """
    grid = picture.grid
    axes = {grid.row_dim: "%{y}", grid.column_dim: "%{x}"}
    index = ", ".join(axes.get(dim, str(at)) for dim, at in enumerate(grid.fixed))
    value = " = %{customdata}" if grid.values else ""
    own_name = plain_text(name(report)).replace("%{", "% {")
    parts = [f"{own_name}[{index}]{value}" if index else own_name + value, ending]
    apart = int(len(grid.rows) * len(grid.columns) <= ANNOTATED_CELLS)
    return plotly.Heatmap(
        x=[*map(str, grid.columns)], y=[*map(str, grid.rows)], colorscale=_SCALE, xgap=apart, ygap=apart,
        customdata=[[plain_text(shortened(text, 24)) for text in row] for row in grid.values] or None,
        hovertemplate=", ".join(filter(None, parts)) + "<extra></extra>",
    )  # fmt: skip


def _index_axes(figure_: Any, picture: DrawnLayout) -> Any:
    names, grid = picture.layout.dim_names, picture.grid
    for update, dim, more in (
        (figure_.layout.xaxis.update, grid.column_dim, {}),
        (figure_.layout.yaxis.update, grid.row_dim, {"autorange": "reversed"}),
    ):
        update(title={"text": "" if dim is None else names[dim]}, type="category", showgrid=False, **more)
    return figure_


def storage(plotly: Any, report: TensorReport) -> Framed:
    """Draw the storage strip: coloured where it is read, empty where it is not."""
    picture = _picture(report, "storage")
    strip = picture.strip
    if strip is None:
        raise TensorMagicError(f'no "storage" figure of {name(report)}: its storage is empty')
    middles = [None if cell.distinct == 0 else (cell.start + cell.stop - 1) / 2 for cell in strip.cells]
    drawn = plotly.Heatmap(
        z=[middles], x=[cell.start for cell in strip.cells], y=["storage"], colorscale=_SCALE, xgap=1,
        zmin=picture.low, zmax=max(picture.high, picture.low + 1), customdata=[[cell_title(c) for c in strip.cells]],
        hovertemplate="%{customdata}<extra></extra>", hoverongaps=True, showscale=False,
    )  # fmt: skip
    unread = sum(cell.distinct == 0 for cell in strip.cells)
    parts = [strip_shown(report), f"{plural(unread, 'cell')} not read, left empty" if unread else ""]
    figure_ = plotly.Figure(drawn)
    title = f"Storage behind {name(report)}: {plural(strip.stop - strip.start, 'element')}"
    figure_.update_xaxes(title={"text": "storage offset"}, showgrid=False)
    figure_.update_yaxes(showgrid=False, showticklabels=False, ticks="")
    return figure_, title, "; ".join(filter(None, parts)), 190


def values(plotly: Any, report: TensorReport) -> Framed:
    """Draw the values as a heatmap, NaN and Inf marked in red, beside their histogram."""
    picture, statistics = _picture(report, "values"), report.statistics
    grid, scale = picture.grid, value_range(picture.grid, statistics)
    if statistics is None or not grid.levels:
        reasons = "; ".join(f"{gap.section}: {gap.reason}" for gap in report.gaps) or "its values were not read"
        raise TensorMagicError(f'no "values" figure of {name(report)}: {reasons}')
    finite = [[float(f"{level:.4g}") if math.isfinite(level) else None for level in row] for row in grid.levels]
    low, high = scale or (0.0, 1.0)
    look = {"colorbar": {"x": 0.575, "thickness": 10, "outlinewidth": 0}, "hoverongaps": True}
    figure_ = plotly.Figure()
    figure_.add_trace(_grid_map(plotly, report, picture, "").update(z=finite, zmin=low, zmax=high, **look))
    for kind, symbol in (("NaN", "x"), ("Inf", "diamond")):
        at = [(r, c) for r in range(len(grid.rows)) for c in range(len(grid.columns)) if picture.bad(r, c) == kind]
        few, texts = len(at) < ANNOTATED_CELLS, []
        for r, c in at if few else ():
            where, value = element(report, index_at(grid, r, c)), shortened(picture.value(r, c), 24)
            texts.append(plain_text(f"{where}{f' = {value}' if value else ''}, offset {grid.offsets[r][c]}"))
        if at:
            figure_.add_trace(plotly.Scatter(
                x=[str(grid.columns[c]) for _, c in at], y=[str(grid.rows[r]) for r, _ in at], name=kind,
                marker={"symbol": symbol, "color": theme.BAD_COLOUR, "size": 7 if few else 4},
                text=texts or None, mode="markers",
                hovertemplate="%{text}<extra></extra>" if few else f"{kind}<extra></extra>",
            ))  # fmt: skip
    _histogram(plotly, figure_, statistics)
    bad = [("NaN", statistics.nan), ("+Inf", statistics.positive_infinity), ("−Inf", statistics.negative_infinity)]
    counted = ", ".join(f"{count(number)} {label}" for label, number in bad if number)
    notes = [shown(report), statistics_scope(statistics), counted]
    figure_.update_layout(
        xaxis={"domain": [0, 0.56]}, xaxis2={"domain": [0.72, 1], "anchor": "y2", "title": {"text": "value"}},
        yaxis2={"anchor": "x2", "title": {"text": "elements"}}, showlegend=False, bargap=0.05,
    )  # fmt: skip
    said = "; ".join(filter(None, notes))
    return _index_axes(figure_, picture), f"Values of {name(report)}", said, _height(len(grid.rows))


def _histogram(plotly: Any, figure_: Any, statistics: Statistics) -> None:
    edges, counts = statistics.histogram_edges, statistics.histogram_counts
    if not counts:
        return
    ends = list(pairwise(edges))
    middles = [(low + high) / 2 for low, high in ends]
    widths = [high - low or abs(low) * 0.1 or 1.0 for low, high in ends]  # a single value still gets a bar
    ranges = [f"{short_number(low)} to {short_number(high)}" for low, high in ends]
    texts = [f"{where}: {count(number)}" for where, number in zip(ranges, counts, strict=True)]
    figure_.add_trace(
        plotly.Bar(x=middles, y=list(counts), width=widths, xaxis="x2", yaxis="y2", marker={"color": theme.BAR_COLOUR},
                   text=texts, textposition="none", hovertemplate="%{text}<extra></extra>")
    )  # fmt: skip


def gradient_flow(plotly: Any, report: TraceReport) -> Framed:
    """Draw each parameter's gradient norm over the passes, on a log scale; what has no logarithm, at its edges."""
    came = [series for series in report.parameters if any(map(touched, series.norms))]
    ranked = sorted(came, key=lambda series: (all(map(math.isfinite, series.norms)), -series.numel))[:MOST_LINES]
    chosen = [series for series in came if series in ranked]
    if not report.passes or not chosen:
        raise TensorMagicError('no "gradient_flow" figure: no parameter received a gradient')
    every, last = -(-len(report.passes) // MOST_POINTS), len(report.passes) - 1
    bad = {at for series in chosen for at, norm in enumerate(series.norms) if not math.isfinite(norm)}
    kept = [at for at in range(last + 1) if at % every == 0 or at == last or at in bad]
    numbers, figure_ = [report.passes[at].number for at in kept], plotly.Figure()
    for place, series in enumerate(chosen):
        norms, called = [series.norms[at] for at in kept], plain_text(shortened(series.name, 40))
        figure_.add_trace(plotly.Scatter(
            x=numbers, y=[float(f"{norm:.4g}") if math.isfinite(norm) and norm > 0 else None for norm in norms],
            name=called, mode="lines+markers", connectgaps=False, marker={"size": 4},
            line={"color": theme.LINE_COLOURS[place % len(theme.LINE_COLOURS)], "width": 1.5},
            hovertemplate=f"{plain_text(series.name)}<br>pass %{{x}}, norm %{{y:.3g}}<extra></extra>",
        ))  # fmt: skip
    positive = [norm for series in chosen for norm in series.norms if math.isfinite(norm) and norm > 0] or [1e-3, 1.0]
    low, high = min(positive), max(positive)
    for label, symbol, colour, height, wanted in (
        ("NaN or Inf", "x", theme.BAD_COLOUR, high * 2, lambda norm: not math.isfinite(norm)),
        ("exactly zero", "triangle-down", theme.ZERO_COLOUR, low / 2, lambda norm: norm == 0),
        (NOT_MEASURABLE, "circle-open", theme.ALONE_COLOUR, low / 4, lambda norm: norm == UNREADABLE),
    ):
        points = [(number, series) for series in chosen for number, at in zip(numbers, kept, strict=True)
                  if wanted(series.norms[at])]  # fmt: skip
        if points:
            figure_.add_trace(plotly.Scatter(
                x=[number for number, _ in points], y=[height] * len(points), mode="markers", name=label,
                marker={"symbol": symbol, "color": colour, "size": 9}, hovertemplate="%{text}<extra></extra>",
                text=[f"{plain_text(series.name)}, pass {number}: {label}" for number, series in points],
            ))  # fmt: skip
    parts = []
    if len(chosen) < len(report.parameters):
        drawn = f"{len(chosen)} of {plural(len(report.parameters), 'parameter')} drawn"
        parts.append(f"{drawn}: those with a gradient, non-finite ones first, then the largest")
    if len(kept) < report.passes_traced:
        parts.append(f"{len(kept)} of {plural(report.passes_traced, 'pass', 'passes')} drawn")
    figure_.update_xaxes(title={"text": "backward pass"})
    figure_.update_yaxes(title={"text": "gradient norm"}, type="log", exponentformat="power")
    figure_.update_layout(legend={"font": {"size": 11}})
    return figure_, f"Gradient norm per parameter: {shortened(report.title, 60)}", "; ".join(parts), 420


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of figure: which reports have it, and what draws it."""

    report_class: type[Report] | tuple[type[Report], ...]
    draw: Callable[[Any, Any], Framed]  # given plotly, and the report


KINDS = {  # of a report that has several, the first is what ``--figure`` alone shows
    "strides": Kind(TensorReport, strides),
    "storage": Kind(TensorReport, storage),
    "values": Kind(TensorReport, values),
    "gradient_flow": Kind(TraceReport, gradient_flow),
    "memory_map": Kind(AliasReport, figures_panels.memory_map),
    "sizes": Kind(TensorTable, figures_panels.sizes),
    "timeline": Kind(MemoryRunReport, figures_panels.timeline),
    "treemap": Kind((MemoryReport, MemoryRunReport), figures_panels.treemap),
    "lines": Kind(MemoryRunReport, figures_panels.lines),
    "gradient_ratio": Kind(ComparisonReport, figures_panels.gradient_ratio),
}
