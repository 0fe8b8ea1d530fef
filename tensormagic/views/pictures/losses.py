"""The losses of two runs as one small picture: two lines over the steps, on a scale that both share.

It is an image, so that hosts without scripts show it too; an image cannot see the theme of its page, so it holds
nothing but lines whose colours read on white and on near-black. What they mean stands beside it as text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tensormagic.reports.comparison import ComparisonReport, LossPair
from tensormagic.views.markup import escape, svg_image, tag
from tensormagic.views.nodes import Picture
from tensormagic.views.pictures.norms import LossScale
from tensormagic.views.svg_paths import document, moved, number, point
from tensormagic.views.text_canvas import wrapped
from tensormagic.views.theme import MIXED_COLOUR, RUN_COLOURS
from tensormagic.views.to_svg import legend_svg, text_svg
from tensormagic.words import plural, short_number, shortened

NAME = 48
WIDTH, HEIGHT = 360, 96
_EDGE = 5


@dataclass(frozen=True, slots=True)
class LossesPicture(Picture):
    """The losses of two compared runs."""

    report: ComparisonReport  # Whose losses they are.
    scale: LossScale  # That both share; see `loss_scale`.

    @property
    def sentence(self) -> str:
        """Both losses, first and last, the first that is not finite, and the step at which they differ most."""
        pairs, runs = self.report.losses, []
        for name, side in ((self.report.left.name, "left"), (self.report.right.name, "right")):
            known = [(pair.step, value) for pair in pairs if (value := getattr(pair, side)) is not None]
            bad = next((step for step, value in known if not math.isfinite(value)), None)
            broken = "" if bad is None else f", not finite from step {bad}"
            ends = f"from {short_number(known[0][1])} to {short_number(known[-1][1])}{broken}" if known else "has none"
            runs.append(f"{shortened(name, NAME)} {ends}")
        both = [(one.left, one.right, one.step) for one in pairs if one.left is not None and one.right is not None]
        finite = [one for one in both if math.isfinite(one[0] - one[1])]
        left, right, step = max(finite, key=lambda one: abs(one[0] - one[1]), default=(0.0, 0.0, 0))
        apart = "; equal at every step where both are finite" if finite else ""
        if left != right:
            apart = f"; furthest apart at step {step}: {short_number(left)} and {short_number(right)}"
        return f"Loss over {plural(len(pairs), 'step')}: {'; '.join(runs)}{apart}."

    @property
    def _title(self) -> str:
        return "loss, log scale" if self.scale.logarithmic else "loss"

    def html(self) -> str:
        """Return the lines as an image, with the ends of both axes beside it."""
        losses, scale = self.report.losses, self.scale
        picture = svg_image(document(loss_svg(losses, scale), WIDTH, HEIGHT), self.sentence, width=WIDTH, height=HEIGHT)
        ends = tag("span", escape(short_number(scale.high))) + tag("span", escape(short_number(scale.low)))
        steps = tag("span", f"step {losses[0].step}") + tag("span", f"step {losses[-1].step}")
        chart = tag("div", tag("div", ends, class_="tm-ends"), tag("div", picture, class_="tm-plot"), class_="tm-chart")
        return tag("figure", tag("figcaption", self._title), chart, tag("div", steps, class_="tm-steps"))

    def text(self, width: int) -> Iterable[str]:
        """Return in words what both lines do."""
        return wrapped(self.sentence, width, "  ", "  ")

    def svg(self, width: float) -> tuple[str, float]:
        """Return the lines, with the ends of both axes and the names of the runs."""
        losses, left = self.report.losses, 76.0  # room for -1.234e-17
        lines = moved(left, 20, loss_svg(losses, self.scale))
        low, high, base = short_number(self.scale.low), short_number(self.scale.high), 20.0 + HEIGHT
        texts = [
            text_svg(left, 12, self._title, quiet=True),
            text_svg(left - 6, 30, high, anchor="end", quiet=True),
            text_svg(left - 6, base, low, anchor="end", quiet=True),
            text_svg(left, base + 14, f"step {losses[0].step}", quiet=True),
            text_svg(left + WIDTH, base + 14, f"step {losses[-1].step}", anchor="end", quiet=True),
        ]
        names = [shortened(side.name, NAME) for side in (self.report.left, self.report.right)]
        legend, high_ = legend_svg(list(zip(RUN_COLOURS, names, strict=True)), width)
        return lines + "".join(texts) + moved(0, base + 24, legend), base + 24 + high_


def loss_svg(losses: Sequence[LossPair], scale: LossScale) -> str:
    """Return both lines, the right run's the thinner; a cross where a loss is not finite."""
    grid = "".join(f"M0,{number(y)}H{WIDTH}" for y in (_EDGE, HEIGHT - _EDGE))
    drawn = f'<path d="{grid}" stroke="{MIXED_COLOUR}" stroke-opacity=".35" fill="none"/>'
    first = losses[0].step
    across = (WIDTH - 2 * _EDGE) / max(losses[-1].step - first, 1)
    for side, colour, wide in zip(("left", "right"), RUN_COLOURS, ("4.5", "2"), strict=True):
        path, marks, pen = "", "", "M"
        for pair in losses:
            x, value = _EDGE + (pair.step - first) * across, getattr(pair, side)
            if value is not None and math.isfinite(value):
                path += f"{pen}{point(x, _EDGE + (1 - scale.share(value)) * (HEIGHT - 2 * _EDGE))}"
                pen = "L"
            else:
                marks += f"M{point(x - 3, 2)}l6,6m0,-6l-6,6" if value is not None else ""
                pen = "M"
        look = f'stroke="{colour}" stroke-width="{wide}" stroke-linejoin="round" stroke-linecap="round"'
        drawn += f'<path fill="none" {look} d="{path}{marks}"/>'
    return drawn
