"""Segments of a CUDA allocator: what it has reserved, each as long as it is large, and the blocks in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tensormagic.renderers.basics.markup import escape, tag
from tensormagic.renderers.basics.svg_paths import number
from tensormagic.renderers.basics.theme import role
from tensormagic.reports import Segment, SnapshotStretch, StretchState
from tensormagic.views.nodes import Picture
from tensormagic.views.pictures.timeline_stack import line_colour
from tensormagic.views.svg_page import text_svg
from tensormagic.words import DOT, number_of_bytes, percent, plural

STRETCHES = 48  # of a segment that is drawn
STATES: dict[StretchState, str] = {
    "allocated": "in use",
    "awaiting free": "waiting for another stream",
    "mixed": "small blocks, in use and free",
    "free": "free",
}
_GROUNDS = {"awaiting free": "tm-sw", "mixed": "tm-sm", "free": "tm-sf"}
_GLYPHS = {"allocated": "\u2588", "awaiting free": "\u2592", "mixed": "\u2593", "free": "\u00b7"}


@dataclass(frozen=True, slots=True)
class SegmentsPicture(Picture):
    """Segments, the largest first (snapshots).

    Attributes:
        segments: What is drawn.
        ranks: The lines that have a colour.
        line_words: Names a line by its number.
    """

    segments: Sequence[Segment]
    ranks: dict[int, int]
    line_words: Callable[[int], str]

    @property
    def sentence(self) -> str:
        """How many there are."""
        return plural(len(self.segments), "segment")

    def html(self) -> str:
        """Return a bar a segment, below its words, and a legend."""
        largest = self.segments[0].nbytes or 1
        drawn = (self._segment(segment, largest) for segment in self.segments)
        keys = [tag("span", "in use: coloured by line, as above", class_="tm-key quiet")]
        keys += [tag("span", tag("span", class_=f"tm-swatch {_GROUNDS[state]}"), escape(STATES[state]), class_="tm-key")
                 for state in ("free", "awaiting free", "mixed")]  # fmt: skip
        return tag("ul", *drawn) + tag("div", " ".join(keys), class_="tm-keys")

    def _segment(self, segment: Segment, largest: int) -> str:
        described = segment_words(segment)
        words = tag("p", tag("b", escape(segment.device)), " ", escape(described), class_="quiet")
        spans = (self._stretch(one, segment.nbytes) for one in drawn_stretches(segment))
        style = f"width:{max(100 * segment.nbytes / largest, 1):.1f}%"
        return tag(
            "li", words, tag("div", *spans, class_="tm-bar tm-segment", style=style, role="img", aria_label=described)
        )

    def _stretch(self, stretch: SnapshotStretch, whole: int) -> str:
        ground = _GROUNDS.get(stretch.state, f"tm-l{self.ranks.get(stretch.line, len(self.ranks))}")
        width = 100 * stretch.nbytes / whole if whole else 0
        return tag("span", class_=ground, style=f"width:{width:.2f}%", title=self.stretch_words(stretch))

    def stretch_words(self, stretch: SnapshotStretch) -> str:
        """Return what lies in a stretch."""
        what = f"{number_of_bytes(stretch.nbytes)} {STATES[stretch.state]}"
        blocks = f", {plural(stretch.blocks, 'block')}" if stretch.blocks > 1 else ""
        return what + blocks + (f", {self.line_words(stretch.line)}" if stretch.line >= 0 else "")

    def text(self, width: int) -> Iterator[str]:
        """Return a strip of characters a segment, below its words."""
        largest = self.segments[0].nbytes or 1
        yield "  \u2588 in use, \u2592 waiting, \u2593 small blocks, \u00b7 free"
        for segment in self.segments:
            yield f"  {segment.device}  {segment_words(segment)}"
            yield f"  \u2502{_drawn(segment, max(round((width - 4) * segment.nbytes / largest), 1))}\u2502"

    def svg(self, width: float) -> tuple[str, float]:
        """Return a bar a segment, below its words."""
        largest, parts = self.segments[0].nbytes or 1, list[str]()
        for at, segment in enumerate(self.segments):
            x, top = 0.0, 40.0 * at
            parts.append(text_svg(0, top + 12, f"{segment.device}  {segment_words(segment)}", size=12))
            for one in drawn_stretches(segment):
                wide = width * one.nbytes / largest
                place = f'x="{number(x)}" y="{number(top + 17)}" width="{number(wide)}" height="16"'
                parts.append(f'<rect {place} fill="{self._colour(one)}" stroke="{role("line-2")}" stroke-width=".5"/>')
                x += wide
        return "".join(parts), 40.0 * len(self.segments)

    def _colour(self, stretch: SnapshotStretch) -> str:
        if stretch.state == "allocated":
            return line_colour(self.ranks.get(stretch.line, len(self.ranks)))
        return {"free": role("bg"), "mixed": role("n0")}.get(stretch.state, role("hatch"))


def segment_words(segment: Segment) -> str:
    """Return what is special about a segment."""
    parts = [
        number_of_bytes(segment.nbytes),
        f"{number_of_bytes(segment.allocated)} in use",
        plural(segment.blocks, "block"),
        segment.kind,
        f"stream {segment.stream}" if segment.stream else "",
        f"pool {segment.pool}" if any(segment.pool) else "",
        "expandable" if segment.expandable else "",
        f"fragmentation {percent(segment.fragmentation)}" if segment.fragmentation else "",
    ]
    return f" {DOT} ".join(filter(None, parts))


def drawn_stretches(segment: Segment, number: int = STRETCHES) -> list[SnapshotStretch]:
    """Return the stretches of a segment that can be drawn: neighbours too narrow to be seen are one."""
    least = segment.nbytes / number
    found: list[list[SnapshotStretch]] = []
    open_ = 0.0
    for one in segment.stretches:
        if found and one.nbytes < least and open_ < least:
            found[-1].append(one)
        else:
            found.append([one])
            open_ = 0.0
        open_ += one.nbytes
    return [_joined(group) for group in found]


def _joined(group: list[SnapshotStretch]) -> SnapshotStretch:
    states = {one.state for one in group}
    largest = max(group, key=lambda one: one.nbytes)
    return SnapshotStretch(
        state=largest.state if len(states) == 1 else "mixed",
        nbytes=sum(one.nbytes for one in group),
        used=sum(one.used for one in group),
        blocks=sum(one.blocks for one in group),
        line=largest.line,
    )


def _drawn(segment: Segment, width: int) -> str:
    """Return a segment as a strip of characters, as long as it is large."""
    strip, at = "", 0
    for one in drawn_stretches(segment, width):
        at += one.nbytes
        end = round(width * at / segment.nbytes) if segment.nbytes else 0
        strip += _GLYPHS[one.state] * (end - len(strip))
    return strip.ljust(width)
