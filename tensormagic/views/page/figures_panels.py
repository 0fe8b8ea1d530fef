"""The plotly figures of memory, of sharing, and of a comparison."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tensormagic.errors import TensorMagicError
from tensormagic.reports import (
    AliasReport,
    ComparisonReport,
    MemoryReport,
    MemoryRunReport,
    TensorTable,
)
from tensormagic.views.nodes import clipped, letters
from tensormagic.views.panels import memory_run
from tensormagic.views.panels.aliases import aliases_summary
from tensormagic.views.panels.comparison import factor, shown_moment, summary as comparison_summary, when
from tensormagic.views.panels.memory import summary, tiles, title
from tensormagic.views.panels.tensors import table_summary, table_title, total
from tensormagic.views.pictures.tensor_elements import shape_text
from tensormagic.views.pictures.timeline import by_category, columns, main_timeline, ticks
from tensormagic.views.pictures.treemap import Tile, bytes_of, grouped
from tensormagic.views.theme import ALONE_COLOUR, CATEGORY_COLOURS, GROUP_COLOUR, LINE_COLOURS, RUN_COLOURS, role
from tensormagic.words import count, number_of_bytes, plural, shortened

# Figures of shared memory and of many tensors. `tensormagic.views.page.figures` gives them plotly.

MOST_SHARING_LINES = 60
MOST_BARS = 40
SHARING_LINE = 22  # pixels of one line or bar


Framed = tuple[Any, str, str, int]  # a figure, what is over it (a title, and words below that), and how high it is


def memory_map(plotly: Any, report: AliasReport) -> Framed:
    """Draw which bytes of each piece of shared memory each member reads, a line a member."""
    groups = [group for group in report.groups if len(group.members) > 1 and group.members[0].coverage]
    if not groups:
        raise TensorMagicError('no "memory_map" figure: no memory is shared by several objects')
    drawn = plotly.Figure()
    lines: list[str] = []
    for group in groups:
        members = group.members[: max(MOST_SHARING_LINES - len(lines), 0)]
        labels = [f"{letters(group.number)}  {plain_text(clipped(member.name))}" for member in members]
        places = [(label, cell * group.cell_bytes, part) for label, member in zip(labels, members, strict=True)
                  for cell, part in enumerate(member.coverage) if part != 0]  # fmt: skip
        look = {"color": LINE_COLOURS[(group.number - 1) % len(LINE_COLOURS)], "line": {"width": 0},
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
    return drawn, "Shared memory", aliases_summary(report).replace("`", ""), 140 + SHARING_LINE * len(lines)


def sizes(plotly: Any, table: TensorTable) -> Framed:
    """Draw the largest tensors as bars of their bytes, coloured by the memory they share."""
    rows = sorted(table.rows, key=lambda row: -row.nbytes)[:MOST_BARS]
    if not rows:
        raise TensorMagicError(f'no "sizes" figure: there are no tensors in {table_title(table)}')
    labels = [plain_text(clipped(row.name)) + (f"  {letters(row.group)}" if row.group else "") for row in rows]
    colours = [LINE_COLOURS[(row.group - 1) % len(LINE_COLOURS)] if row.group else ALONE_COLOUR for row in rows]
    said = [f"{shape_text(row.shape)} {row.dtype} {row.device}, {number_of_bytes(row.nbytes)}" for row in rows]
    drawn = _below_each_other(plotly, labels, [row.nbytes for row in rows], colours, said)
    drawn.update_xaxes(title_text="bytes")
    cut = f"the {MOST_BARS} largest of {count(len(table.rows))}; " if len(rows) < len(table.rows) else ""
    note, head = cut + "; ".join(total(part, table) for part in table.totals), table_title(table)
    return drawn, f"{head}: {table_summary(table)}", note, 140 + SHARING_LINE * len(rows)


def _below_each_other(
    plotly: Any, labels: list[str], long: Sequence[float], colours: list[str], said: list[str]
) -> Any:
    """Return bars, the first at the top; pointing at one shows what is said of it."""
    drawn = plotly.Figure(plotly.Bar(
        orientation="h", y=labels, x=long, marker={"color": colours}, customdata=said,
        hovertemplate="%{y}<br>%{customdata}<extra></extra>",
    ))  # fmt: skip
    return drawn.update_yaxes(autorange="reversed")


def plain_text(text: str) -> str:
    """Plotly reads tags in its texts: leave none of a user's."""
    return text.replace("<", "\u2039").replace(">", "\u203a")


# Two traced runs as a figure: how many times larger each parameter's gradient is. `figures` gives it plotly.


def gradient_ratio(plotly: Any, report: ComparisonReport) -> Framed:
    """Draw, for every parameter, right over left at the step where they are furthest apart."""
    moments = [(one, one.norms.worst) for one in report.parameters]
    known = [(one, worst.ratio) for one, worst in moments if worst is not None and math.isfinite(worst.ratio)]
    rows, ratios = [one for one, _ in known[:MOST_BARS]], [ratio for _, ratio in known[:MOST_BARS]]
    if not rows:
        raise TensorMagicError('no "gradient_ratio" figure: no gradient of the two runs can be compared')
    said = [f"{factor(shown_moment(one.norms))}, {when(one.norms)}" for one in rows]
    colours = [RUN_COLOURS[ratio > 0] for ratio in ratios]
    drawn = _below_each_other(plotly, [plain_text(one.name) for one in rows], ratios, colours, said)
    drawn.update_xaxes(title_text=f"log10 of the gradient norm in {plain_text(report.right.name)} over that in "
                       f"{plain_text(report.left.name)}")  # fmt: skip
    left_out = len(report.parameters) - len(rows)
    note = comparison_summary(report).replace("`", "") + (f"; {left_out} parameters are not shown" if left_out else "")
    return drawn, f"{report.left.name} | {report.right.name}", note, 140 + SHARING_LINE * len(rows)


# Figures of memory: the treemap, the timeline, the lines. `tensormagic.views.page.figures` gives them plotly.

MOST_TILES = 600
MOST_LINES = 30
MOST_COLUMNS = 1000
LINE = 30  # pixels of one line of code


def treemap(plotly: Any, report: MemoryReport | MemoryRunReport) -> Framed:
    """Draw what is alive, or was at the peak, as a treemap: device or run, name or line, storage."""
    if isinstance(report, MemoryRunReport):
        parts = [("the peak", memory_run.peak_tiles(report))]
        head, note = "Alive at the peak", _sentence(report)
    else:
        parts = [(device.device, tiles(report, device.device)) for device in report.devices if device.live]
        head, note = title(report).capitalize(), summary(report)
    nodes = [node for name, inner in parts if inner for node in _tree(name, inner)]
    if not nodes:
        raise TensorMagicError('no "treemap" figure: no tensor was alive')
    drawn = plotly.Treemap(
        labels=[plain_text(shortened(node.label, 60)) for node in nodes], ids=[plain_text(node.id) for node in nodes],
        parents=[plain_text(node.parent) for node in nodes], values=[node.nbytes for node in nodes],
        branchvalues="total", marker={"colors": [node.colour for node in nodes]}, textinfo="label+text",
        text=[number_of_bytes(node.nbytes) for node in nodes], customdata=[_hover(node) for node in nodes],
        hovertemplate="%{customdata}<extra></extra>", tiling={"pad": 1}, maxdepth=3,
    )  # fmt: skip
    figure = plotly.Figure(drawn)
    figure.update_layout(uniformtext={"minsize": 9, "mode": "hide"})
    return figure, head, note, 520


@dataclass(frozen=True, slots=True)
class Node:
    """A rectangle of plotly's treemap, and the one that it lies in."""

    label: str
    id: str
    parent: str
    nbytes: int
    colour: str
    described: str = ""


def _tree(name: str, inner: Sequence[Tile]) -> Iterable[Node]:
    """Return the nodes of a device: itself, its groups, their storages, the smallest of these together."""
    ranked = sorted(inner, key=lambda tile: -tile.nbytes)
    groups = grouped(ranked[:MOST_TILES], lambda tile: tile.group)
    yield Node(name, name, "", bytes_of(ranked), role("cap"), _number(ranked))
    for place, (group, found) in enumerate(groups.items()):
        where = f"{name}/{place}"
        yield Node(group, where, name, bytes_of(found), GROUP_COLOUR, _number(found))
        for at, tile in enumerate(found):
            yield Node(tile.label, f"{where}/{at}", where, tile.nbytes, CATEGORY_COLOURS[tile.category], tile.title)
    rest = ranked[MOST_TILES:]
    if rest:
        words = f"{count(sum(tile.count for tile in rest))} smaller"
        yield Node(words, f"{name}/rest", name, bytes_of(rest), CATEGORY_COLOURS["other"])


def _number(inner: Iterable[Tile]) -> str:
    return plural(sum(tile.count for tile in inner), "storage")


def _hover(node: Node) -> str:
    lines = node.described.split("\n") if node.described else []
    return "<br>".join(
        plain_text(shortened(line, 120)) for line in (f"{node.label}: {number_of_bytes(node.nbytes)}", *lines)
    )


def timeline(plotly: Any, report: MemoryRunReport) -> Framed:
    """Draw the live bytes over the operations of the run, stacked by category, the peak marked."""
    drawn = main_timeline(report)
    if drawn is None:
        raise TensorMagicError('no "timeline" figure: no operation allocated anything')
    moments = columns(drawn, MOST_COLUMNS)
    across = [drawn.operation[at] for at in moments]
    figure = plotly.Figure()
    for layer in by_category(drawn):
        amounts = [layer.values[at] for at in moments]
        figure.add_trace(plotly.Scatter(
            x=across, y=amounts, name=memory_run.layer_words(report, layer), stackgroup="live", mode="lines",
            line={"width": 0, "shape": "hv"}, fillcolor=CATEGORY_COLOURS[layer.key],
            customdata=list(map(number_of_bytes, amounts)), hovertemplate="operation %{x}: %{customdata}",
        ))  # fmt: skip
    top = drawn.live[drawn.peak]
    figure.add_annotation(x=drawn.operation[drawn.peak], y=top, text=f"peak {number_of_bytes(top)}", arrowhead=2)
    figure.update_xaxes(title_text="operation")
    figure.update_yaxes(title_text="alive", rangemode="tozero", **_round(top))
    thinned = f"; {len(moments)} of {plural(len(drawn.live), 'moment')} drawn" if len(moments) < len(drawn.live) else ""
    return figure, f"Alive on {drawn.device}", _sentence(report) + thinned, 420


def _sentence(report: MemoryRunReport) -> str:
    return f"{memory_run.peak(report)} {memory_run.summary(report)}".strip()


def _round(top: int) -> dict[str, list[Any]]:
    """Return an axis of bytes with round numbers, in words: plotly's own would write a billion as B."""
    marks = ticks(top)
    return {"tickvals": marks, "ticktext": [number_of_bytes(nbytes) if nbytes else "0" for nbytes in marks]}


def lines(plotly: Any, report: MemoryRunReport) -> Framed:
    """Draw the lines that took the most as bars: allocated, alive at the peak, kept after the run."""
    shown = [(at, line) for at, line in enumerate(report.lines) if line.allocated or line.freed][:MOST_LINES]
    if not shown:
        raise TensorMagicError('no "lines" figure: none of your lines allocated anything')
    labels = [plain_text(memory_run.line_words(report, at, width=48)) for at, _ in shown]
    figure = plotly.Figure([
        plotly.Bar(
            orientation="h", y=labels, x=amounts, name=name, marker={"color": colour},
            customdata=list(map(number_of_bytes, amounts)),
            hovertemplate=f"%{{y}}<br>{name}: %{{customdata}}<extra></extra>",
        )
        for name, colour, amounts in (
            ("allocated", CATEGORY_COLOURS["other"], [line.allocated for _, line in shown]),
            ("at the peak", CATEGORY_COLOURS["saved for backward"], [line.at_peak for _, line in shown]),
            ("kept", CATEGORY_COLOURS["gradient"], [line.kept for _, line in shown]),
        )
    ])  # fmt: skip
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_xaxes(**_round(max(max(line.allocated, line.at_peak, line.kept) for _, line in shown)))
    figure.update_layout(barmode="group")
    cut = f"{len(shown)} of {plural(len(report.lines), 'line')}; " if len(shown) < len(report.lines) else ""
    return figure, "Memory by line", cut + _sentence(report), 160 + LINE * len(shown)
