"""The picture that ``%tensor x --picture`` adds: images pixel by pixel, signals as lines, and how to read them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise

from tensormagic.reports import ImageFrame, SignalLine, TensorPicture, TensorReport
from tensormagic.views import svg_paths
from tensormagic.views.markup import escape, svg_image, tag
from tensormagic.views.nodes import Picture
from tensormagic.views.pictures.cells import text
from tensormagic.views.pictures.tensor_elements import name
from tensormagic.views.svg_paths import document, number, point
from tensormagic.views.text_canvas import BLOCKS, NOT_FINITE, wrapped
from tensormagic.views.theme import inked
from tensormagic.views.to_svg import text_svg
from tensormagic.words import TIMES, count, ordinal, plural, short_number, shortened

_SIDE_OF_ONE, _SIDE_OF_MANY = 256, 96  # pixels of the page that the longer side of an image takes, about
_SHADES = " \u2591\u2592\u2593\u2588"
_MOST_COLUMNS, _MOST_ROWS, _INDENT = 64, 28, " " * 10  # in a terminal
_MOST_NAMED = 3  # signals whose highest and lowest value is named
_WIDTH, _HEIGHT, _LEFT, _PAD, _FOOT = 800.0, 84.0, 74.0, 8.0, 18.0
# An opaque light card: an image in a page cannot see the page's theme.
_STYLE = inked(
    ".g{font:10.5px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;fill:$ink-2}"
    ".g .e{text-anchor:end}.g .line{fill:none;stroke:$n4;stroke-width:1.3;stroke-linejoin:round}"
    ".g .band{fill:$n4;stroke:$n4;stroke-width:.8;stroke-linejoin:round}"
    ".g .axis{stroke:$line;fill:none}.g .zero{stroke:$line-2;stroke-dasharray:2 3;fill:none}"
    ".g .bad{stroke:$error;stroke-width:1.6;fill:none}.g .dot{fill:$n4}.g .name{fill:$ink;font-weight:600}"
)


@dataclass(frozen=True, slots=True)
class Shot(Picture):
    """Images or signals that a tensor holds."""

    report: TensorReport
    shot: TensorPicture

    @property
    def sentence(self) -> str:
        """How the signals were read, and for the first of them where the highest and the lowest value are."""
        shot, ends = self.shot, list[str]()
        for line in shot.lines[:_MOST_NAMED]:
            high = [(value, -at) for at, value in enumerate(line.high) if math.isfinite(value)]
            low = [(value, at) for at, value in enumerate(line.low) if math.isfinite(value)]
            if high and low:
                (top, where), (bottom, there) = max(high), min(low)
                highest = f"highest {short_number(top)} at {-where * shot.step}"
                lowest = f"lowest {short_number(bottom)} at {there * shot.step}"
                ends.append(f"{line.label or name(self.report)}: {highest}, {lowest}")
        more = len(shot.lines) - len(ends)
        rest = f"; and {plural(more, 'more signal')}" if more and ends else ""
        return "; ".join([f"{name(self.report)}: {heading(self.report, shot)}", *notes(shot), *ends]) + rest

    def html(self) -> str:
        """Return an image each, or one for all signals, in a picture of its own."""
        if self.shot.lines:
            return tag("div", svg_image(signals_svg(self.shot), self.sentence, class_="tm-signals"), class_="tm-frames")
        figures = []
        for each, title, width, height in self._images():
            alt = f"{title} as an image of {each.width} {TIMES} {each.height} pixels; {'; '.join(notes(self.shot))}"
            image = f'<img src="{_source(each)}" width="{width}" height="{height}" alt="{escape(alt)}">'
            figures.append(tag("figure", image, tag("figcaption", tag("code", escape(title)))))
        return tag("div", *figures, class_="tm-frames")

    def _images(self) -> Iterator[tuple[ImageFrame, str, int, int]]:
        """Yield each image, what it is called, and its size on a page."""
        called, side = name(self.report), _SIDE_OF_ONE if len(self.shot.images) == 1 else _SIDE_OF_MANY
        for each in self.shot.images:
            scale = max(side // max(each.width, each.height), 1)
            title = f"{called}[{each.label}]" if each.label else called
            yield each, title, each.width * scale, each.height * scale

    def text(self, width: int) -> Iterator[str]:
        """Return the first image in shades of characters, or the signals as bars."""
        shot, columns = self.shot, min(_MOST_COLUMNS, width - 2 * len(_INDENT))
        for line in shot.lines:
            number_ = min(columns, len(line.high))
            bars = ""
            for start, stop in pairwise(len(line.high) * at // number_ for at in range(number_ + 1)):
                values = [value for value in line.high[start:stop] if not math.isnan(value)]
                bad = any(line.bad[start:stop]) or not values
                share = 0.0 if bad else (max(values) - shot.low) / ((shot.high - shot.low) or 1.0)
                bars += NOT_FINITE if bad else BLOCKS[round(share * (len(BLOCKS) - 1))]
            yield f"{shortened(line.label, 8):>9} {bars}"
        for image in shot.images[:1]:  # one character by half as many rows: a character is twice as high as wide
            step = max(-(-image.width // columns), -(-image.height // (2 * _MOST_ROWS)), 1)
            data, bytes_each, top = image.unpacked(), shot.channels + 1, len(_SHADES) - 1
            for y in range(0, image.height, 2 * step):
                shades = ""
                for x in range(0, image.width, step):
                    *levels, opacity = data[(at := (y * image.width + x) * bytes_each) : at + bytes_each]
                    shades += _SHADES[round(sum(levels) / len(levels) / 255 * top)] if opacity else NOT_FINITE
                yield _INDENT + shades.rstrip()
        caption = ["above is the first"] if len(shot.images) > 1 else []
        caption += ["in shades of its mean over the colours"] if shot.channels == 3 else []
        caption += [f"{NOT_FINITE} stands for these"] if shot.bad else []
        yield from wrapped("; ".join(caption), width, "  ", "  ") if caption else ()

    def svg(self, width: float) -> tuple[str, float]:
        """Return the images side by side, or the signals."""
        if self.shot.lines:
            content, height = _signals(self.shot)
            return tag("g", f"<style>{_STYLE}</style>", content, class_="g"), height
        x = y = high = 0.0
        parts = []
        for each, title, wide, tall in self._images():
            x, y, high = (0.0, y + high + 24, 0.0) if x and x + wide > width else (x, y, high)
            place = f'x="{number(x)}" y="{number(y)}" width="{wide}" height="{tall}" style="image-rendering:pixelated"'
            parts += [f'<image {place} href="{_source(each)}"/>', text_svg(x, y + tall + 14, title)]
            x, high = x + wide + 10, max(high, tall)
        return "".join(parts), y + high + 18


def heading(report: TensorReport, shot: TensorPicture) -> str:
    """Return ``4 of 32 images 28 × 28, read as (N, C, H, W)``."""
    drawn = len(shot.images or shot.lines)
    what = "signal" if shot.lines else "image"
    found = f"{drawn} of {plural(shot.of, what)}" if drawn < shot.of else plural(drawn, what)
    size = f" {TIMES} ".join(map(count, shot.size))
    length = f" of {size} values" if shot.lines else f", {size} pixels"
    return f"{found}{length}; {name(report)} is read as {shot.reading}"


def notes(shot: TensorPicture) -> tuple[str, ...]:
    """Return how values became colours or heights, what was left out, and what could not be drawn."""
    low, high, lines = short_number(shot.low), short_number(shot.high), shot.lines
    if lines:
        scale = f"from {low} to {high}{', the same for all' if len(lines) > 1 else ''}"
        left_out = f"a column stands for {count(shot.step)} values: from their smallest to their largest"
    else:
        ends = f"darkest {low}, brightest {high}" if shot.channels == 3 else f"black {low}, white {high}"
        shown = "the smallest and largest shown" + (", one scale for all" if len(shot.images) > 1 else "")
        known = "values as they are"
        why = {"bytes": "bytes as they are", "truth": "False and True", "unit": known, "shown": shown}
        scale, left_out = f"{ends}: {why[shot.scale]}", f"every {ordinal(shot.step)} pixel across and down"
    verb = "is" if shot.bad == 1 else "are"
    bad = f"{plural(shot.bad, 'value' if lines else 'pixel')} that {verb} NaN or infinite {verb}"
    marked = f"{bad} {'marked red' if lines else 'hatched'}" if shot.bad else ""
    return tuple(filter(None, (scale, left_out if shot.step != 1 else "", marked)))


def _source(each: ImageFrame) -> str:
    return svg_paths.image(each.unpacked(), each.width, each.height)


def signals_svg(shot: TensorPicture) -> str:
    """Return all signals as a picture of its own."""
    content, height = _signals(shot)
    ground = inked('<rect width="100%" height="100%" fill="$bg"/>')
    return document(f"<style>{_STYLE}</style>{ground}{content}", _WIDTH, height, ' class="g"')


def _signals(shot: TensorPicture) -> tuple[str, float]:
    """Return all signals, one below the other, on the same scale."""
    height = len(shot.lines) * (_HEIGHT + _PAD) + _PAD + _FOOT
    charts = "".join(_chart(shot, line, _PAD + at * (_HEIGHT + _PAD)) for at, line in enumerate(shot.lines))
    foot = text(_LEFT, height - 6, "0") + text(_WIDTH - _PAD, height - 6, count(shot.size[0] - 1), "e")
    return charts + foot, height


def _chart(shot: TensorPicture, line: SignalLine, top: float) -> str:
    span, bottom, right = (shot.high - shot.low) or 1.0, top + _HEIGHT, number(_WIDTH - _PAD)
    step = (_WIDTH - _LEFT - _PAD) / max(len(line.low) - 1, 1)

    def place(at: int, value: float) -> tuple[float, float]:
        return _LEFT + at * step, top + _HEIGHT * (1 - (value - shot.low) / span)

    parts = [f'<path class="axis" d="M{point(_LEFT, top)}V{number(bottom)}H{right}"/>']
    if shot.low < 0 < shot.high:
        parts.append(f'<path class="zero" d="M{point(_LEFT, place(0, 0.0)[1])}H{right}"/>')
    parts += [text(_LEFT - 5, y, short_number(value), "e") for y, value in ((top + 9, shot.high), (bottom, shot.low))]
    if line.label:
        middle = number(top + _HEIGHT / 2)
        parts.append(f'<text class="name" x="{number(_PAD)}" y="{middle}">{escape(line.label)}</text>')
    for bad, run in groupby(range(len(line.low)), key=lambda at: math.isnan(line.low[at])):
        columns = list(run)
        upper, lower = ([place(at, ends[at]) for at in columns] for ends in (line.high, line.low))
        if bad:  # a line never bridges what is not a number
            continue
        if len(columns) == 1:
            (x, y), (_, low) = upper[0], lower[0]
            rod = f'<path class="line" d="M{point(x, y)}V{number(low)}"/>'
            parts.append(f'{rod}<circle class="dot" cx="{number(x)}" cy="{number(y)}" r="2"/>')
        elif upper == lower:
            parts.append(f'<path class="line" d="M{"L".join(point(*each) for each in upper)}"/>')
        else:
            parts.append(f'<path class="band" d="M{"L".join(point(*each) for each in (*upper, *lower[::-1]))}z"/>')
    marks = "".join(f"M{point(place(at, 0.0)[0], top)}v{number(_HEIGHT)}" for at, found in enumerate(line.bad) if found)
    return "".join(parts) + (f'<path class="bad" d="{marks}"/>' if marks else "")
