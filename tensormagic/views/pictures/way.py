"""The way from a tensor to the loss as a row of boxes: where the gradient flows, and where it ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tensormagic.renderers.basics.markup import escape, tag
from tensormagic.renderers.basics.plain_text import fitted, text_width
from tensormagic.renderers.basics.svg_paths import number
from tensormagic.renderers.basics.theme import role
from tensormagic.renderers.terminal.text_canvas import table
from tensormagic.reports import WayStep, WhyReport
from tensormagic.views.nodes import Picture
from tensormagic.views.svg_page import text_svg
from tensormagic.words import short_number, shortened

DETACHED = "//"
ARROW = "\u2190"
_LABEL = 40  # characters
_HIGH, _ROW, _BETWEEN = 46.0, 62.0, 30.0  # pixels of a box, from row to row, between boxes


@dataclass(frozen=True, slots=True)
class WayPicture(Picture):
    """The way of a gradient (why).

    Attributes:
        report: Whose way it is.
    """

    report: WhyReport

    @property
    def sentence(self) -> str:
        """How it is to be read."""
        return legend(self.report)

    def html(self) -> str:
        """Return a row of boxes that wraps; there is no script and no picture to load."""
        came, way = reached(self.report), self.report.way
        drawn = "".join(
            (_arrow(way[at - 1], step, came=came[at - 1]) if at else "") + _stop(self.report, step, came=came[at])
            for at, step in enumerate(way)
        )
        return tag("div", drawn, class_="tm-way") + tag("p", escape(self.sentence), class_="quiet")

    def text(self, width: int) -> Iterator[str]:
        """Return a line a stop."""
        rows = []
        for at, step in enumerate(self.report.way):
            sign = " " if not at else DETACHED if step.kind in {"cut", "nothing"} else ARROW
            label = f"{sign} {shortened(step.label, _LABEL)}"
            rows.append((label, step.detail, line_words(self.report, step), came_words(step), "!" if step.bad else ""))
        yield "from the tensor to the loss; the gradient flows upwards"
        yield from table([("", "", "line", "gradient", ""), *rows], indent=2, width=width)

    def svg(self, width: float) -> tuple[str, float]:
        """Return the boxes in rows."""
        came, x, y, parts = reached(self.report), 0.0, 0.0, list[str]()
        for at, step in enumerate(self.report.way):
            label, *below = [shortened(step.label, _LABEL), *_below(self.report, step)]
            room = max(text_width(label, 13, bold=True), text_width(" \u00b7 ".join(below), 11)) + 20
            wide = min(max(room, 52.0), width - _BETWEEN)
            if x and x + _BETWEEN + wide > width:
                x, y = 0.0, y + _ROW
            if at:
                ended = _ends(self.report.way[at - 1], step)
                ink = role("error" if ended else "ink" if came[at - 1] else "hatch")
                parts.append(text_svg(x + _BETWEEN / 2, y + 28, DETACHED if ended else ARROW, size=16, anchor="middle",
                                      ink=ink, bold=ended))  # fmt: skip
            parts.append(_box(x + (_BETWEEN if at else 0), y, wide, step))
            inside = x + (_BETWEEN if at else 0) + wide / 2
            ink = role("error") if step.bad else role("ink")
            parts.append(text_svg(inside, y + 19, fitted(label, wide - 8, 13, bold=True), size=13, anchor="middle",
                                  bold=True, ink=ink))  # fmt: skip
            described = fitted(" \u00b7 ".join(below), wide - 8, 11)
            parts.append(text_svg(inside, y + 36, described, size=11, anchor="middle", quiet=not step.bad, ink=None))
            x += wide + (_BETWEEN if at else 0)
        parts.append(text_svg(0, y + _ROW + 8, self.sentence, size=12, quiet=True))
        return "".join(parts), y + _ROW + 14


def _box(x: float, y: float, wide: float, step: WayStep) -> str:
    edge = role("error") if step.bad else role("accent") if step.kind == "tensor" else role("line-2")
    ground = role("error-bg") if step.bad else role("bg")
    place = f'x="{number(x)}" y="{number(y)}" width="{number(wide)}" height="{number(_HIGH)}" rx="4"'
    return f'<rect {place} fill="{ground}" stroke="{edge}"/>'


def _ends(before: WayStep, after: WayStep) -> bool:
    return not {"cut", "nothing"}.isdisjoint({before.kind, after.kind})


def _below(report: WhyReport, step: WayStep) -> list[str]:
    """Return what stands below the name of a stop."""
    return [text for text in (step.detail, line_words(report, step), came_words(step)) if text]


def _arrow(before: WayStep, after: WayStep, *, came: bool) -> str:
    ended = "cut" in {before.kind, after.kind} or "nothing" in {before.kind, after.kind}
    kind = "tm-ended" if ended else "tm-some" if came else "tm-none"
    return tag("span", DETACHED if ended else ARROW, class_=f"tm-arrow {kind}")


def _stop(report: WhyReport, step: WayStep, *, came: bool) -> str:
    kinds = [
        "tm-stop",
        f"tm-{step.kind}",
        "" if came or step.kind == "cut" else "tm-none",
        "tm-bad" if step.bad else "",
    ]
    label = tag("code", escape(shortened(step.label, _LABEL)), class_="tm-label")
    below = [text for text in (step.detail, line_words(report, step)) if text]
    small = "".join(tag("span", escape(text), class_="tm-small") for text in below)
    norm = came_words(step)
    amount = tag("span", escape(norm), class_="tm-small tm-norm") if norm else ""
    hint = step.location.text if step.location is not None else None
    return tag("span", label, small, amount, class_=" ".join(filter(None, kinds)), title=hint or None)


def came_words(step: WayStep) -> str:
    """Return what came to a stop of the way: ``norm 0.43``, ``zero``; empty where that is not known."""
    if step.norm is None:
        return ""
    return "zero" if step.norm == 0 else f"norm {short_number(step.norm)}"


def line_words(report: WhyReport, step: WayStep) -> str:
    """Return the line of a stop of the way, with its file or cell where the way leads through several; else empty."""
    if step.location is None:
        return ""
    files = {each.location.filename for each in report.way if each.location is not None}
    return step.location.label if len(files) > 1 else f"line {step.location.line}"


def reached(report: WhyReport) -> list[bool]:
    """Return for each stop whether the gradient came there: not before the last cut, seen from the tensor."""
    ends = [at for at, step in enumerate(report.way) if step.kind in {"cut", "nothing"}]
    last = ends[-1] if ends else -1
    return [at > last for at in range(len(report.way))]


def legend(report: WhyReport) -> str:
    """Return how the picture of the way is to be read."""
    if any(step.kind == "cut" for step in report.way):
        return "the gradient flows from right to left, and does not come past the cut"
    measured = any(step.norm is not None for step in report.way)
    return "the gradient flows from right to left" + (
        "; under each stop what came to it in the last pass" if measured else ""
    )
