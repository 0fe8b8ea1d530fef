"""Two traced runs as a figure: how many times larger each parameter's gradient is. `figures` gives it plotly."""

from __future__ import annotations

import math
from typing import Any

from tensormagic.errors import TensorMagicError
from tensormagic.renderers.basics.theme import RUN_COLOURS
from tensormagic.renderers.figures_sharing import Framed, plain_text
from tensormagic.reports import ComparisonReport, ParameterDifference
from tensormagic.views.panels.comparison import factor, summary, told_moment, when

MOST_BARS = 40
LINE = 22  # pixels of one bar


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
