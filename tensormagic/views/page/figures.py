"""Reports as Plotly figures: the second view, for what one wants to zoom into, compare or publish.

Plotly is imported here alone, and on the first call. A figure does not know the theme of the page it lands on, and no
ink reads well on white and on near-black: it brings its own paper, light, or dark where the user's own default
template is (``plotly.io.templates.default = "plotly_dark"``). What cannot be placed on an axis, a NaN on a log scale
for one, is marked and counted, never dropped.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
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
from tensormagic.views.nodes import clipped, letters
from tensormagic.views.panels import comparison, memory, memory_run, tensors
from tensormagic.views.panels.aliases import aliases_summary
from tensormagic.views.panels.trace_words import NOT_MEASURABLE, touched
from tensormagic.views.pictures import tensor_elements as elements
from tensormagic.views.pictures.tensor_grid import cell_title
from tensormagic.views.pictures.tensor_values import statistics_scope
from tensormagic.views.pictures.timeline import by_category, columns, main_timeline, ticks
from tensormagic.views.pictures.treemap import Tile, bytes_of, grouped
from tensormagic.words import count, number_of_bytes, plural, short_number, shortened

FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
ANNOTATED_CELLS = 144
MOST_LINES = 24  # of parameters
MOST_POINTS = 200
MOST_SHARING_LINES = 60
MOST_BARS = 40
MOST_TILES = 600
MOST_CODE_LINES = 30
MOST_COLUMNS = 1000
BAR = 22  # pixels of one line or bar
NOTE_WIDTH = 110  # characters of a line under the title
_SCALE = [[at / 9, theme.offset_colour(at / 9)] for at in range(10)]

Framed = tuple[Any, str, str, int]  # a figure, what is over it (a title, and words below that), and how high it is


def figure(report: Report, kind: str) -> Any:
    """Return a ``plotly.graph_objects.Figure`` of ``report``.

    Args:
        report: A tensor's or a trace's report.
        kind: One of `kinds_of` the report; empty: the first of them.

    Raises:
        TensorMagicError: for a kind that this report does not have, or has no data for.
        RequirementError: where plotly is not installed.
    """
    kinds = kinds_of(report)
    kind = kind or next(iter(kinds), "")
    if isinstance(report, RunReport):
        return figure(next((part for part in report.parts if kind in kinds_of(part)), report.trace), kind)
    if not kinds:
        raise TensorMagicError(f"there is no figure of a {report.kind_name} report")
    if kind not in kinds:
        known = ", ".join(f'"{one}"' for one in kinds)
        raise TensorMagicError(f'there is no figure "{kind}" of a {report.kind_name} report; it has: {known}')
    try:
        import plotly.graph_objects as plotly
    except ImportError as error:
        raise RequirementError("figures need plotly, which is not installed: pip install plotly") from error
    return _styled(*KINDS[kind][1](plotly, plain_report(report)))


def kinds_of(report: Report) -> tuple[str, ...]:
    """Return the kinds of figure that this report can be drawn as."""
    if isinstance(report, RunReport):
        return tuple(kind for part in report.parts for kind in kinds_of(part))
    return tuple(kind for kind, (classes, _) in KINDS.items() if isinstance(report, classes))


def plain_text(text: str) -> str:
    """Plotly reads tags in its texts: leave none of a user's."""
    return text.replace("<", "\u2039").replace(">", "\u203a")


def _part(drawn: int, total: int, what: str, ending: str = " drawn") -> str:
    """Return ``24 of 40 parameters drawn``; nothing where that is all."""
    return f"{drawn} of {plural(total, *what.split('/'))}{ending}" if drawn < total else ""


def _joined(*parts: str) -> str:
    return "; ".join(filter(None, parts))


def _styled(drawn: Any, title: str, note: str, height: int) -> Any:
    import plotly.io

    lines = textwrap.wrap(plain_text(note), NOTE_WIDTH)
    small = [f"<span style='font-size:11px'>{line}</span>" for line in lines]
    text = "<br>".join([f"<b>{plain_text(title)}</b>", *small])
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


# -- a tensor ---------------------------------------------------------------------------------------------------------


def _picture(report: TensorReport, kind: str) -> elements.DrawnLayout:
    picture = elements.drawn_layout(report)
    if picture is None or not picture.drawable:
        raise _refused(report, kind, "it has no element" if picture else "it has no strides; its panel shows the rest")
    return picture


def _refused(report: TensorReport, kind: str, otherwise: str) -> TensorMagicError:
    reasons = _joined(*(f"{gap.section}: {gap.reason}" for gap in report.gaps))
    return TensorMagicError(f'no "{kind}" figure of {elements.name(report)}: {reasons or otherwise}')


def strides(plotly: Any, report: TensorReport) -> Framed:
    """Draw the index grid, coloured by storage offset; hover tells index, offset and value."""
    picture = _picture(report, "strides")
    drawn = _grid_map(plotly, report, picture, "offset %{z}").update(
        z=[list(row) for row in picture.grid.offsets],
        colorbar={"title": {"text": "offset"}, "outlinewidth": 0, "thickness": 12},
    )
    if drawn.xgap:
        drawn.update(texttemplate="%{z}")
    note = elements.shown(report) or elements.formula(picture.layout, picture.index)
    title = f"Storage offset at each index of {elements.name(report)}"
    return _over_indices(plotly.Figure(drawn), picture, title, note)


def _grid_map(plotly: Any, report: TensorReport, picture: elements.DrawnLayout, ending: str) -> Any:
    """Return the cells of a grid, still without numbers; those of a small one are apart from each other.

    They have one template for what is said of them: the index from the axes, the value from the cell's own data.
    """
    grid = picture.grid
    axes = {grid.row_dim: "%{y}", grid.column_dim: "%{x}"}
    index = ", ".join(axes.get(dim, str(at)) for dim, at in enumerate(grid.fixed))
    value = " = %{customdata}" if grid.values else ""
    own_name = plain_text(elements.name(report)).replace("%{", "% {")
    parts = [f"{own_name}[{index}]{value}" if index else own_name + value, ending]
    apart = int(len(grid.rows) * len(grid.columns) <= ANNOTATED_CELLS)
    return plotly.Heatmap(
        x=[*map(str, grid.columns)], y=[*map(str, grid.rows)], colorscale=_SCALE, xgap=apart, ygap=apart,
        customdata=[[plain_text(shortened(text, 24)) for text in row] for row in grid.values] or None,
        hovertemplate=", ".join(filter(None, parts)) + "<extra></extra>",
    )  # fmt: skip


def _over_indices(drawn: Any, picture: elements.DrawnLayout, title: str, note: str) -> Framed:
    """Frame what is drawn over the indices of a grid."""
    names, grid = picture.layout.dim_names, picture.grid
    across, down = ("" if dim is None else names[dim] for dim in (grid.column_dim, grid.row_dim))
    drawn.layout.xaxis.update(title={"text": across}, type="category", showgrid=False)
    drawn.layout.yaxis.update(title={"text": down}, type="category", showgrid=False, autorange="reversed")
    return drawn, title, note, min(max(140 + 24 * len(grid.rows), 220), 520)


def storage(plotly: Any, report: TensorReport) -> Framed:
    """Draw the storage strip: coloured where it is read, empty where it is not."""
    picture = _picture(report, "storage")
    strip = picture.strip
    if strip is None:
        raise TensorMagicError(f'no "storage" figure of {elements.name(report)}: its storage is empty')
    middles = [None if cell.distinct == 0 else (cell.start + cell.stop - 1) / 2 for cell in strip.cells]
    drawn = plotly.Figure(plotly.Heatmap(
        z=[middles], x=[cell.start for cell in strip.cells], y=["storage"], colorscale=_SCALE, xgap=1,
        zmin=picture.low, zmax=max(picture.high, picture.low + 1), customdata=[[cell_title(c) for c in strip.cells]],
        hovertemplate="%{customdata}<extra></extra>", hoverongaps=True, showscale=False,
    ))  # fmt: skip
    drawn.update_xaxes(title={"text": "storage offset"}, showgrid=False)
    drawn.update_yaxes(showgrid=False, showticklabels=False, ticks="")
    unread = sum(cell.distinct == 0 for cell in strip.cells)
    note = _joined(elements.strip_shown(report), f"{plural(unread, 'cell')} not read, left empty" if unread else "")
    return drawn, f"Storage behind {elements.name(report)}: {plural(strip.stop - strip.start, 'element')}", note, 190


def values(plotly: Any, report: TensorReport) -> Framed:
    """Draw the values as a heatmap, NaN and Inf marked in red, beside their histogram."""
    picture, statistics = _picture(report, "values"), report.statistics
    grid = picture.grid
    if statistics is None or not grid.levels:
        raise _refused(report, "values", "its values were not read")
    finite = [[float(f"{level:.4g}") if math.isfinite(level) else None for level in row] for row in grid.levels]
    low, high = elements.value_range(grid, statistics) or (0.0, 1.0)
    look = {"colorbar": {"x": 0.575, "thickness": 10, "outlinewidth": 0}, "hoverongaps": True}
    drawn = plotly.Figure(_grid_map(plotly, report, picture, "").update(z=finite, zmin=low, zmax=high, **look))
    for kind, symbol in (("NaN", "x"), ("Inf", "diamond")):
        at = [(r, c) for r in range(len(grid.rows)) for c in range(len(grid.columns)) if picture.bad(r, c) == kind]
        few, texts = len(at) < ANNOTATED_CELLS, []
        for r, c in at if few else ():
            where = elements.element(report, elements.index_at(grid, r, c))
            value = shortened(picture.value(r, c), 24)
            texts.append(plain_text(f"{where}{f' = {value}' if value else ''}, offset {grid.offsets[r][c]}"))
        if at:
            drawn.add_trace(plotly.Scatter(
                x=[str(grid.columns[c]) for _, c in at], y=[str(grid.rows[r]) for r, _ in at], name=kind,
                marker={"symbol": symbol, "color": theme.BAD_COLOUR, "size": 7 if few else 4},
                text=texts or None, mode="markers",
                hovertemplate="%{text}<extra></extra>" if few else f"{kind}<extra></extra>",
            ))  # fmt: skip
    _histogram(plotly, drawn, statistics)
    bad = [("NaN", statistics.nan), ("+Inf", statistics.positive_infinity), ("−Inf", statistics.negative_infinity)]
    counted = ", ".join(f"{count(number)} {label}" for label, number in bad if number)
    note = _joined(elements.shown(report), statistics_scope(statistics), counted)
    return _over_indices(drawn, picture, f"Values of {elements.name(report)}", note)


def _histogram(plotly: Any, drawn: Any, statistics: Statistics) -> None:
    ends = list(pairwise(statistics.histogram_edges))
    counts = statistics.histogram_counts
    texts = [f"{short_number(low)} to {short_number(high)}: {count(number)}"
             for (low, high), number in zip(ends, counts, strict=bool(counts))]  # fmt: skip
    if counts:
        drawn.add_trace(plotly.Bar(
            x=[(low + high) / 2 for low, high in ends], y=list(counts), xaxis="x2", yaxis="y2",
            width=[high - low or abs(low) * 0.1 or 1.0 for low, high in ends],  # a single value still gets a bar
            marker={"color": theme.BAR_COLOUR}, text=texts, textposition="none",
            hovertemplate="%{text}<extra></extra>",
        ))  # fmt: skip
    drawn.update_layout(
        xaxis={"domain": [0, 0.56]}, xaxis2={"domain": [0.72, 1], "anchor": "y2", "title": {"text": "value"}},
        yaxis2={"anchor": "x2", "title": {"text": "elements"}}, showlegend=False, bargap=0.05,
    )  # fmt: skip


# -- a traced run, and two ---------------------------------------------------------------------------------------------


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
    numbers, drawn = [report.passes[at].number for at in kept], plotly.Figure()
    for place, series in enumerate(chosen):
        norms = [series.norms[at] for at in kept]
        drawn.add_trace(plotly.Scatter(
            x=numbers, y=[float(f"{norm:.4g}") if math.isfinite(norm) and norm > 0 else None for norm in norms],
            name=plain_text(shortened(series.name, 40)), mode="lines+markers", connectgaps=False, marker={"size": 4},
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
            drawn.add_trace(plotly.Scatter(
                x=[number for number, _ in points], y=[height] * len(points), mode="markers", name=label,
                marker={"symbol": symbol, "color": colour, "size": 9}, hovertemplate="%{text}<extra></extra>",
                text=[f"{plain_text(series.name)}, pass {number}: {label}" for number, series in points],
            ))  # fmt: skip
    drawn.update_xaxes(title={"text": "backward pass"})
    drawn.update_yaxes(title={"text": "gradient norm"}, type="log", exponentformat="power")
    drawn.update_layout(legend={"font": {"size": 11}})
    those = " drawn: those with a gradient, non-finite ones first, then the largest"
    note = _joined(_part(len(chosen), len(report.parameters), "parameter", those),
                   _part(len(kept), report.passes_traced, "pass/passes"))  # fmt: skip
    return drawn, f"Gradient norm per parameter: {shortened(report.title, 60)}", note, 420


def gradient_ratio(plotly: Any, report: ComparisonReport) -> Framed:
    """Draw, for every parameter, right over left at the step where they are furthest apart."""
    known = [(one, worst.ratio) for one in report.parameters
             if (worst := one.norms.worst) is not None and math.isfinite(worst.ratio)][:MOST_BARS]  # fmt: skip
    if not known:
        raise TensorMagicError('no "gradient_ratio" figure: no gradient of the two runs can be compared')
    said = [
        f"{comparison.factor(comparison.shown_moment(one.norms))}, {comparison.when(one.norms)}" for one, _ in known
    ]
    colours = [theme.RUN_COLOURS[ratio > 0] for _, ratio in known]
    left, right = plain_text(report.left.name), plain_text(report.right.name)
    drawn = _bars(plotly, [one.name for one, _ in known], [ratio for _, ratio in known], said, colours)
    drawn.update_xaxes(title_text=f"log10 of the gradient norm in {right} over that in {left}")
    left_out = len(report.parameters) - len(known)
    note = comparison.summary(report).replace("`", "")
    note = _joined(note, f"{left_out} parameters are not shown" if left_out else "")
    return drawn, f"{report.left.name} | {report.right.name}", note, 140 + BAR * len(known)


def _bars(plotly: Any, labels: Sequence[str], long: Sequence[float], said: list[str], colours: list[str]) -> Any:
    """Return bars, the first at the top; pointing at one shows what is said of it."""
    drawn = plotly.Figure(plotly.Bar(
        orientation="h", y=[*map(plain_text, labels)], x=long, marker={"color": colours}, customdata=said,
        hovertemplate="%{y}<br>%{customdata}<extra></extra>",
    ))  # fmt: skip
    return drawn.update_yaxes(autorange="reversed")


# -- memory -----------------------------------------------------------------------------------------------------------


def memory_map(plotly: Any, report: AliasReport) -> Framed:
    """Draw which bytes of each piece of shared memory each member reads, a line a member."""
    groups = [group for group in report.groups if len(group.members) > 1 and group.members[0].coverage]
    if not groups:
        raise TensorMagicError('no "memory_map" figure: no memory is shared by several objects')
    drawn, lines = plotly.Figure(), list[str]()
    for group in groups:
        members = group.members[: max(MOST_SHARING_LINES - len(lines), 0)]
        labels = [f"{letters(group.number)}  {plain_text(clipped(member.name))}" for member in members]
        places = [(label, cell * group.cell_bytes, part) for label, member in zip(labels, members, strict=True)
                  for cell, part in enumerate(member.coverage) if part != 0]  # fmt: skip
        look = {"color": theme.LINE_COLOURS[(group.number - 1) % len(theme.LINE_COLOURS)], "line": {"width": 0},
                "opacity": [1 if part is None else 0.35 + 0.65 * part for _, _, part in places]}  # fmt: skip
        if members:
            drawn.add_trace(plotly.Bar(
                orientation="h", y=[label for label, _, _ in places], base=[start for _, start, _ in places],
                x=[min(group.cell_bytes, group.nbytes - start) for _, start, _ in places], marker=look,
                customdata=["not counted" if part is None else f"{part:.0%} read" for _, _, part in places],
                hovertemplate="%{y}<br>from byte %{base}: %{customdata}<extra></extra>",
            ))  # fmt: skip
        lines += labels
    drawn.update_yaxes(categoryorder="array", categoryarray=lines[::-1])
    drawn.update_xaxes(title_text="byte of the memory")
    drawn.update_layout(barmode="overlay", showlegend=False)
    return drawn, "Shared memory", aliases_summary(report).replace("`", ""), 140 + BAR * len(lines)


def sizes(plotly: Any, table: TensorTable) -> Framed:
    """Draw the largest tensors as bars of their bytes, coloured by the memory they share."""
    rows, head = sorted(table.rows, key=lambda row: -row.nbytes)[:MOST_BARS], tensors.table_title(table)
    if not rows:
        raise TensorMagicError(f'no "sizes" figure: there are no tensors in {head}')
    labels = [clipped(row.name) + (f"  {letters(row.group)}" if row.group else "") for row in rows]
    colours = [theme.LINE_COLOURS[(row.group - 1) % len(theme.LINE_COLOURS)] if row.group else theme.ALONE_COLOUR
               for row in rows]  # fmt: skip
    said = [f"{elements.shape_text(row.shape)} {row.dtype} {row.device}, {number_of_bytes(row.nbytes)}" for row in rows]
    drawn = _bars(plotly, labels, [row.nbytes for row in rows], said, colours)
    drawn.update_xaxes(title_text="bytes")
    cut = f"the {MOST_BARS} largest of {count(len(table.rows))}" if len(rows) < len(table.rows) else ""
    note = _joined(cut, *(tensors.total(part, table) for part in table.totals))
    return drawn, f"{head}: {tensors.table_summary(table)}", note, 140 + BAR * len(rows)


def treemap(plotly: Any, report: MemoryReport | MemoryRunReport) -> Framed:
    """Draw what is alive, or was at the peak, as a treemap: device or run, name or line, storage."""
    if isinstance(report, MemoryRunReport):
        parts = [("the peak", memory_run.peak_tiles(report))]
        head, note = "Alive at the peak", _sentence(report)
    else:
        parts = [(device.device, memory.tiles(report, device.device)) for device in report.devices if device.live]
        head, note = memory.title(report).capitalize(), memory.summary(report)
    rectangles = [one for name, inner in parts if inner for one in _rectangles(name, inner)]
    if not rectangles:
        raise TensorMagicError('no "treemap" figure: no tensor was alive')
    ids, parents, labels, amounts, colours, more = zip(*rectangles, strict=True)
    sizes_ = [*map(number_of_bytes, amounts)]
    said = [f"{label}: {size}\n{rest}".strip() for label, size, rest in zip(labels, sizes_, more, strict=True)]
    drawn = plotly.Figure(plotly.Treemap(
        labels=[plain_text(shortened(label, 60)) for label in labels], ids=[*map(plain_text, ids)],
        parents=[*map(plain_text, parents)], values=amounts, branchvalues="total", marker={"colors": colours},
        textinfo="label+text", text=sizes_, hovertemplate="%{customdata}<extra></extra>", tiling={"pad": 1}, maxdepth=3,
        customdata=["<br>".join(plain_text(shortened(line, 120)) for line in one.split("\n")) for one in said],
    ))  # fmt: skip
    drawn.update_layout(uniformtext={"minsize": 9, "mode": "hide"})
    return drawn, head, note, 520


def _rectangles(name: str, inner: Sequence[Tile]) -> Iterator[tuple[str, str, str, int, str, str]]:
    """Yield the rectangles of a device: itself, its groups, their storages, the smallest of these together.

    Of each its id, that of the one it lies in, label, bytes, colour, and what more is said of it.
    """
    ranked = sorted(inner, key=lambda tile: -tile.nbytes)
    yield name, "", name, bytes_of(ranked), theme.role("cap"), _number(ranked)
    for place, (group, found) in enumerate(grouped(ranked[:MOST_TILES], lambda tile: tile.group).items()):
        where = f"{name}/{place}"
        yield where, name, group, bytes_of(found), theme.GROUP_COLOUR, _number(found)
        for at, tile in enumerate(found):
            colour = theme.CATEGORY_COLOURS[tile.category]
            yield f"{where}/{at}", where, tile.label, tile.nbytes, colour, tile.title
    if rest := ranked[MOST_TILES:]:
        words = f"{count(sum(tile.count for tile in rest))} smaller"
        yield f"{name}/rest", name, words, bytes_of(rest), theme.CATEGORY_COLOURS["other"], ""


def _number(tiles: Sequence[Tile]) -> str:
    return plural(sum(tile.count for tile in tiles), "storage")


def timeline(plotly: Any, report: MemoryRunReport) -> Framed:
    """Draw the live bytes over the operations of the run, stacked by category, the peak marked."""
    shown = main_timeline(report)
    if shown is None:
        raise TensorMagicError('no "timeline" figure: no operation allocated anything')
    moments, drawn = columns(shown, MOST_COLUMNS), plotly.Figure()
    for layer in by_category(shown):
        amounts = [layer.values[at] for at in moments]
        drawn.add_trace(plotly.Scatter(
            x=[shown.operation[at] for at in moments], y=amounts, name=memory_run.layer_words(report, layer),
            stackgroup="live", mode="lines", line={"width": 0, "shape": "hv"},
            fillcolor=theme.CATEGORY_COLOURS[layer.key],
            customdata=[*map(number_of_bytes, amounts)], hovertemplate="operation %{x}: %{customdata}",
        ))  # fmt: skip
    top = shown.live[shown.peak]
    drawn.add_annotation(x=shown.operation[shown.peak], y=top, text=f"peak {number_of_bytes(top)}", arrowhead=2)
    drawn.update_xaxes(title_text="operation")
    drawn.update_yaxes(title_text="alive", rangemode="tozero", **_round(top))
    note = _joined(_sentence(report), _part(len(moments), len(shown.live), "moment"))
    return drawn, f"Alive on {shown.device}", note, 420


def _sentence(report: MemoryRunReport) -> str:
    return f"{memory_run.peak(report)} {memory_run.summary(report)}".strip()


def _round(top: int) -> dict[str, list[Any]]:
    """Return an axis of bytes with round numbers, in words: plotly's own would write a billion as B."""
    marks = ticks(top)
    return {"tickvals": marks, "ticktext": [number_of_bytes(nbytes) if nbytes else "0" for nbytes in marks]}


def lines(plotly: Any, report: MemoryRunReport) -> Framed:
    """Draw the lines that took the most as bars: allocated, alive at the peak, kept after the run."""
    shown = [(at, line) for at, line in enumerate(report.lines) if line.allocated or line.freed][:MOST_CODE_LINES]
    if not shown:
        raise TensorMagicError('no "lines" figure: none of your lines allocated anything')
    labels = [plain_text(memory_run.line_words(report, at, width=48)) for at, _ in shown]
    bars = {
        "allocated": ("other", [line.allocated for _, line in shown]),
        "at the peak": ("saved for backward", [line.at_peak for _, line in shown]),
        "kept": ("gradient", [line.kept for _, line in shown]),
    }
    drawn = plotly.Figure([
        plotly.Bar(
            orientation="h", y=labels, x=amounts, name=name, marker={"color": theme.CATEGORY_COLOURS[colour]},
            customdata=[*map(number_of_bytes, amounts)],
            hovertemplate=f"%{{y}}<br>{name}: %{{customdata}}<extra></extra>",
        )
        for name, (colour, amounts) in bars.items()
    ])  # fmt: skip
    drawn.update_yaxes(autorange="reversed", automargin=True)
    drawn.update_xaxes(**_round(max(max(amounts) for _, amounts in bars.values())))
    drawn.update_layout(barmode="group")
    note = _joined(_part(len(shown), len(report.lines), "line", ""), _sentence(report))
    return drawn, "Memory by line", note, 160 + 30 * len(shown)


# Of each kind of figure: which reports have it, and what draws it, given plotly and the report. Of a report that has
# several, the first is what ``--figure`` alone shows.
KINDS: dict[str, tuple[type[Report] | tuple[type[Report], ...], Callable[[Any, Any], Framed]]] = {
    "strides": (TensorReport, strides),
    "storage": (TensorReport, storage),
    "values": (TensorReport, values),
    "gradient_flow": (TraceReport, gradient_flow),
    "memory_map": (AliasReport, memory_map),
    "sizes": (TensorTable, sizes),
    "timeline": (MemoryRunReport, timeline),
    "treemap": ((MemoryReport, MemoryRunReport), treemap),
    "lines": (MemoryRunReport, lines),
    "gradient_ratio": (ComparisonReport, gradient_ratio),
}
