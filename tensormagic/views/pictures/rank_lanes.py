"""When ranks came to collectives: a lane a rank, a tick a collective, and a hole where a rank is missing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tensormagic.renderers.basics.markup import escape, tag
from tensormagic.renderers.basics.svg_paths import number
from tensormagic.renderers.basics.theme import BAD_COLOUR, DIVERGING, OTHER_COLOUR, role
from tensormagic.renderers.terminal.text_canvas import wrapped
from tensormagic.reports import Arrivals
from tensormagic.views.nodes import Picture
from tensormagic.views.pictures.placement import inline, lettered, words
from tensormagic.words import count, listed, plural, ranks_text, seconds_text

_MOST_ROWS = 16
_ROW, _LEFT = 16.0, 72.0
_HOLE = "○"


@dataclass(frozen=True)
class RankLanes(Picture):
    """Lanes along one axis of time; where clocks of several machines differ they are moved to agree."""

    come: Arrivals

    def _row(self, at: int) -> list[float]:
        size = len(self.come.numbers)
        return list(self.come.seconds[at * size : (at + 1) * size])

    def _last(self) -> list[float]:
        """Return when the last rank came to each."""
        rows = [self._row(at) for at in range(len(self.come.ranks))]
        known = [[each for each in column if not math.isnan(each)] for column in zip(*rows, strict=True)]
        return [max(each, default=0.0) for each in known]

    def _shown(self) -> tuple[list[int], int]:
        """Return the lanes that are drawn, those with holes and the latest ones first among many; how many are not."""
        every = range(len(self.come.ranks))
        if len(every) <= _MOST_ROWS:
            return list(every), 0
        rows = {at: self._row(at) for at in every}
        holes = {at: sum(map(math.isnan, row)) for at, row in rows.items()}
        sums = {at: sum(each for each in row if not math.isnan(each)) for at, row in rows.items()}
        chosen = sorted(every, key=lambda at: (-holes[at], -sums[at]))[:_MOST_ROWS]
        return sorted(chosen), len(every) - len(chosen)

    @property
    def sentence(self) -> str:
        """What is to be seen, in a sentence."""
        come = self.come
        span = seconds_text(max(self._last(), default=0.0))
        told = [f"The last {plural(len(come.numbers), 'collective')} of group {come.group}, in {span}"]
        missing = [rank for at, rank in enumerate(come.ranks) if any(map(math.isnan, self._row(at)))]
        if missing:
            told.append(f"{ranks_text(missing)} did not come to all of them")
        return "; ".join(told)

    def _kinds(self) -> str:
        """Return what the collectives are, each once."""
        found = [
            f"{operation}{f' ({line})' if line else ''}"
            for operation, line in dict.fromkeys(zip(self.come.operations, self.come.lines, strict=True))
        ]
        return listed(found, most=4)

    def text(self, width: int) -> Iterable[str]:
        """Return a lane of characters for each rank: ``|`` where it came, ``-`` where it waits for the last."""
        shown, more = self._shown()
        last = self._last()
        label = max(len(f"rank {self.come.ranks[at]}") for at in shown)
        room = max(width - label - 4, 16)
        scale = (room - 1) / (max(last, default=0.0) or 1.0)
        for at in shown:
            lane = [" "] * room
            for moment, until in zip(self._row(at), last, strict=True):
                if math.isnan(moment):
                    continue
                for place in range(int(moment * scale) + 1, int(until * scale)):
                    lane[place] = "-"
            for moment, until in zip(self._row(at), last, strict=True):
                missing = math.isnan(moment)
                lane[int((until if missing else moment) * scale)] = _HOLE if missing else "|"
            yield f"  {f'rank {self.come.ranks[at]}'.ljust(label)}  {''.join(lane)}".rstrip()
        rest = f"; {plural(more, 'rank')} not drawn" if more else ""
        legend = f"| a collective, - waits for the last rank, {_HOLE} did not come"
        yield from wrapped(f"{self.sentence}: {self._kinds()}. {legend}{rest}", width, "  ", "  ")

    def svg(self, width: float) -> tuple[str, float]:
        """Return lanes with ticks, bars for waiting, and lines that join the same collective."""
        shown, more = self._shown()
        last = self._last()
        scale = (width - _LEFT - 20) / (max(last, default=0.0) or 1.0)
        ticks, waits, lanes, holes, drawn = [], [], [], [], []
        joined: list[list[tuple[float, float]]] = [[] for _ in self.come.numbers]
        for line, at in enumerate(shown):
            y = 8 + line * _ROW
            drawn.append(words(4, y + 4, f"rank {self.come.ranks[at]}"))
            lanes.append(f"M{number(_LEFT)},{number(y)}H{number(width - 12)}")
            for place, (moment, until) in enumerate(zip(self._row(at), last, strict=True)):
                end = _LEFT + until * scale
                if math.isnan(moment):
                    holes.append(tag("circle", cx=number(end), cy=number(y), r="4", fill="none", stroke=BAD_COLOUR,
                                     stroke_width="1.6"))  # fmt: skip
                    continue
                x = _LEFT + moment * scale
                ticks.append(f"M{number(x)},{number(y - 5)}v10")
                joined[place].append((x, y))
                if end - x > 1.5:
                    waits.append(f"M{number(x)},{number(y - 2.5)}H{number(end)}v5H{number(x)}z")
        lines = ["M" + "L".join(f"{number(x)},{number(y)}" for x, y in points) for points in joined if len(points) > 1]
        parts = [
            tag("path", d="".join(lanes), stroke=OTHER_COLOUR, stroke_width=".5", fill="none"),
            tag("path", d="".join(waits), fill=DIVERGING[4]) if waits else "",
            tag("path", d="".join(lines), stroke=OTHER_COLOUR, stroke_width=".8", fill="none"),
            tag("path", d="".join(ticks), stroke=role("ink-2"), stroke_width="1.4", fill="none"),
            *holes,
        ]
        y = 8 + len(shown) * _ROW + 6
        span = max(last, default=0.0)
        drawn += [words(_LEFT, y, "0"), words(width - 60, y, seconds_text(span))]
        y += 15
        x = 4.0
        legend = [(DIVERGING[4], "waits for the last rank")] + ([(BAD_COLOUR, "did not come")] if holes else [])
        for colour, told in legend:
            parts.append(tag("path", d=f"M{number(x)},{number(y - 8)}h10v9h-10z", fill=colour))
            drawn.append(words(x + 14, y, told))
            x += 150
        if more:
            drawn.append(words(x, y, f"{count(more)} more ranks"))
        return lettered("".join([*parts, *drawn])), y + 8

    def html(self) -> str:
        """Return it as a picture with its words above."""
        inner, height = self.svg(720.0)
        told = escape(f"{self.sentence}: {self._kinds()}")
        return tag("p", told, class_="quiet") + inline(inner, height, self.sentence)
