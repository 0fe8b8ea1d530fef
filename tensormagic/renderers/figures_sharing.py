"""The plotly figures of shared memory, and of a comparison."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tensormagic.errors import TensorMagicError
from tensormagic.renderers.basics.theme import ALONE_COLOUR, LINE_COLOURS, RUN_COLOURS
from tensormagic.reports import AliasGroup, AliasReport, ComparisonReport, ParameterDifference, TensorRow, TensorTable
from tensormagic.views.nodes import clipped, letters
from tensormagic.views.panels.aliases import aliases_summary
from tensormagic.views.panels.comparison import factor, summary, told_moment, when
from tensormagic.views.panels.tensors import table_summary, table_title, total
from tensormagic.words import count, number_of_bytes, tuple_text

# Figures of shared memory and of many tensors. `tensormagic.renderers.figures` gives them plotly.

MOST_LINES = 60
MOST_BARS = 40
LINE = 22  # pixels of one line or bar


@dataclass(frozen=True, slots=True)
class Framed:
    """A figure and what stands over it."""

    figure: Any
    title: str
    note: str
    height: int


def memory_map(plotly: Any, report: AliasReport) -> Framed:
    """Draw which bytes of each piece of shared memory each member reads, a line a member."""
    groups = [group for group in report.groups if len(group.members) > 1 and group.members[0].coverage]
    if not groups:
        raise TensorMagicError('no "memory_map" figure: no memory is shared by several objects')
    drawn = plotly.Figure()
    lines: list[str] = []
    for group in groups:
        room = MOST_LINES - len(lines)
        if room > 0:
            drawn.add_trace(_bars(plotly, group, room))
            lines += [_label(group, at) for at in range(min(len(group.members), room))]
    drawn.update_yaxes(categoryorder="array", categoryarray=lines[::-1])
    drawn.update_xaxes(title_text="byte of the memory")
    drawn.update_layout(barmode="overlay", showlegend=False)
    return Framed(drawn, "Shared memory", aliases_summary(report).replace("`", ""), 140 + LINE * len(lines))


def _bars(plotly: Any, group: AliasGroup, room: int) -> Any:
    places = [
        (_label(group, at), cell * group.cell_bytes, part)
        for at, member in enumerate(group.members[:room])
        for cell, part in enumerate(member.coverage)
        if part != 0
    ]
    return plotly.Bar(
        orientation="h", y=[label for label, _, _ in places], base=[start for _, start, _ in places],
        x=[min(group.cell_bytes, group.nbytes - start) for _, start, _ in places],
        marker={"color": LINE_COLOURS[(group.number - 1) % len(LINE_COLOURS)], "line": {"width": 0},
                "opacity": [1 if part is None else 0.35 + 0.65 * part for _, _, part in places]},
        customdata=["not counted" if part is None else f"{part:.0%} read" for _, _, part in places],
        hovertemplate="%{y}<br>from byte %{base}: %{customdata}<extra></extra>",
    )  # fmt: skip


def _label(group: AliasGroup, at: int) -> str:
    return f"{letters(group.number)}  {plain_text(clipped(group.members[at].name))}"


def sizes(plotly: Any, table: TensorTable) -> Framed:
    """Draw the largest tensors as bars of their bytes, coloured by the memory they share."""
    rows = sorted(table.rows, key=lambda row: -row.nbytes)[:MOST_BARS]
    if not rows:
        raise TensorMagicError(f'no "sizes" figure: there are no tensors in {table_title(table)}')
    labels = [plain_text(clipped(row.name)) + (f"  {letters(row.group)}" if row.group else "") for row in rows]
    bars = plotly.Bar(
        orientation="h", y=labels, x=[row.nbytes for row in rows],
        marker={"color": [_colour(row) for row in rows]},
        customdata=[f"{tuple_text(row.shape)} {row.dtype} {row.device}, {number_of_bytes(row.nbytes)}" for row in rows],
        hovertemplate="%{y}<br>%{customdata}<extra></extra>",
    )  # fmt: skip
    drawn = plotly.Figure(bars)
    drawn.update_yaxes(autorange="reversed")
    drawn.update_xaxes(title_text="bytes")
    cut = f"the {MOST_BARS} largest of {count(len(table.rows))}; " if len(rows) < len(table.rows) else ""
    note = cut + "; ".join(total(part) for part in table.totals)
    return Framed(drawn, f"{plain_text(table_title(table))}: {table_summary(table)}", note, 140 + LINE * len(rows))


def _colour(row: TensorRow) -> str:
    return LINE_COLOURS[(row.group - 1) % len(LINE_COLOURS)] if row.group else ALONE_COLOUR


def plain_text(text: str) -> str:
    """Plotly reads tags in its texts: leave none of a person's."""
    return text.replace("<", "\u2039").replace(">", "\u203a")


# Two traced runs as a figure: how many times larger each parameter's gradient is. `figures` gives it plotly.


def gradient_ratio(plotly: Any, report: ComparisonReport) -> Framed:
    """Draw, for every parameter, right over left at the step where they are furthest apart."""
    rows = [one for one in report.parameters if _ratio(one) is not None][:MOST_BARS]
    if not rows:
        raise TensorMagicError('no "gradient_ratio" figure: no gradient of the two runs can be compared')
    ratios = [_ratio(one) or 0.0 for one in rows]
    bars = plotly.Bar(
        orientation="h", y=[plain_text(one.name) for one in rows], x=ratios,
        marker={"color": [RUN_COLOURS[ratio > 0] for ratio in ratios]},
        customdata=[f"{factor(told_moment(one.norms))}, {when(one.norms)}" for one in rows],
        hovertemplate="%{y}<br>%{customdata}<extra></extra>",
    )  # fmt: skip
    drawn = plotly.Figure(bars)
    drawn.update_yaxes(autorange="reversed")
    drawn.update_xaxes(title_text=f"log10 of the gradient norm in {plain_text(report.right.name)} over that in "
                       f"{plain_text(report.left.name)}")  # fmt: skip
    left_out = len(report.parameters) - len(rows)
    note = summary(report).replace("`", "") + (f"; {left_out} parameters are not shown" if left_out else "")
    return Framed(drawn, f"{report.left.name} | {report.right.name}", note, 140 + LINE * len(rows))


def _ratio(one: ParameterDifference) -> float | None:
    moment = one.norms.worst
    return moment.ratio if moment is not None and math.isfinite(moment.ratio) else None
