"""A panel as one SVG file on a light card, for papers and slides: what is open in a page, from top to bottom."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import singledispatch
from itertools import accumulate

from tensormagic.reports import Finding
from tensormagic.views import nodes, theme
from tensormagic.views.markup import escape, fitted, tag, text_width, wrapped
from tensormagic.views.nodes import Cell, Node
from tensormagic.views.svg_paths import document, moved, number, rect
from tensormagic.views.text_canvas import printable
from tensormagic.views.theme import role
from tensormagic.views.to_text import inline, plain
from tensormagic.words import count, shortened

# The page that a panel is drawn on as SVG: a light card that grows downwards; its texts and legends.

_MARGIN, _KEY_HEIGHT = 16.0, 22.0
_FONT = "system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif"
_INK, _QUIET, _PAPER = map(role, ("ink", "ink-2", "bg"))
_GROUNDS = theme.GROUNDS | {"tm-df": _PAPER, "tm-dr": role("skip"), "tm-du": role("hatch"), "tm-sf": _PAPER}


class Page:
    """A card, `WIDTH` wide inside of its margins: things are put below one another."""

    def __init__(self) -> None:
        """Start empty."""
        self._height, self._parts = _MARGIN, list[str]()

    def put(self, content: str, height: float) -> None:
        """Add SVG content of that height."""
        self._parts.append(moved(_MARGIN, self._height, content))
        self._height += height + 8

    def svg(self, alternative: str) -> str:
        """Return the whole picture; ``alternative`` says what it shows."""
        wide, high = WIDTH + 2 * _MARGIN, round(self._height + _MARGIN / 2)
        ground = f'<rect width="{wide:.0f}" height="{high}" fill="{_PAPER}"/>'
        sentence = tag("title", escape(one_line(alternative)))
        return document(f"{sentence}{ground}{''.join(self._parts)}", wide, high, f' role="img" font-family="{_FONT}"')


def legend_svg(entries: Sequence[tuple[str, str]], width: float) -> tuple[str, float]:
    """Return a legend, and how high it is: colour and words each."""
    x, y, parts = 0.0, 0.0, list[str]()
    for colour, words in entries:
        described = fitted(words, width - 36, 13)
        wide = text_width(described, 13) + 36
        if x and x + wide > width:
            x, y = 0.0, y + _KEY_HEIGHT
        parts.append(rect(x, y, 12, 12, rx=2, fill=colour) + text_svg(x + 18, y + 11, described, size=13))
        x += wide
    return "".join(parts), y + _KEY_HEIGHT if parts else 0.0


def text_svg(x: float, y: float, words: str, *, size: float = 12, anchor: str = "start", **look: object) -> str:
    """Return a text; ``bold``, ``quiet`` and ``ink`` say how it looks."""
    ink = look.get("ink") or (_QUIET if look.get("quiet") else _INK)
    weight = "600" if look.get("bold") else None
    place = {"x": number(x), "y": number(y), "font_size": number(size), "fill": ink, "font_weight": weight}
    return tag("text", escape(one_line(words)), **place, text_anchor=anchor if anchor != "start" else None)


def one_line(words: str) -> str:
    """Return words on one line, with nothing in them that XML cannot hold."""
    return printable(words.replace("\n", " ").replace("\u00a0", " "))


def ground_colour(ground: str) -> str:
    """Return the colour of a style class of a legend: ``tm-cp`` (a category), ``tm-l0`` (a line), ``tm-df``."""
    return _GROUNDS.get(ground.split(maxsplit=1)[0], role("line-2"))


WIDTH, LINE, SIZE = 1000.0, 18.0, 13.0
MOST_ROWS, MOST_LINES = 24, 80  # of a table, of a listing
_AMOUNT = 76.0  # pixels of a number at the left of a line
_GAP, _BAR_WIDTH, _STRIP_WIDTH, _CELL_LINES = 18.0, 120.0, 200.0, 4
_MONO = "ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace"
_MONO_EM = 0.61  # of the size of its letters
_BOLD = 1.13  # times as wide
_BESIDE = 154.0  # where what was found stands, beside its code
_CODE, _MARK = re.compile(r"`([^`]+)`"), "\x00"  # no character that a text could hold and be drawn with
_TONES = {"error": "error", "warning": "warning", "note": "note", "mark": "ink-2"}


def render(view: nodes.Panel) -> str:
    """Return a panel as a picture; its folded parts are left out."""
    page = Page()
    return page.svg(_draw_panel(view, page))


def _draw_panel(view: nodes.Panel, page: Page) -> str:
    """Put a panel on a page, and return what it is about."""
    facts = " \u00b7 ".join(filter(None, map(_one_line, view.facts)))
    title = " ".join(plain(view.title).split())
    page.put(text_svg(0, 15, fitted(title, WIDTH, 16, bold=True), bold=True, size=16), 18)
    _paragraph(page, facts)
    for words in filter(None, view.second):
        _paragraph(page, plain(words), ink=_QUIET)
    draw(view.lead, page)
    for node in view.body:
        draw(node, page)
    for each in view.after:
        _draw_panel(each, page)
    return f"{plain(view.label or view.title)}: {facts}".rstrip(": ")


def _one_line(node: Cell) -> str:
    return inline(node).replace("\n", "  ")


def _paragraph(page: Page, words: str, *, ink: str | None = None, bold: bool = False, indent: float = 0.0) -> None:
    for line in wrapped(words, (WIDTH - indent) / (_BOLD if bold else 1), SIZE, 60) if words else ():
        page.put(text_svg(indent, 12, line, size=SIZE, ink=ink, bold=bold), LINE - 8)


@singledispatch
def draw(node: Node, page: Page) -> None:
    """Put a node on a page; a text is a paragraph."""
    _paragraph(page, plain(str(node)) if node else "")


@draw.register
def _(node: nodes.Findings, page: Page) -> None:
    for at, finding in enumerate(node.findings[: node.most]):
        page.put(*_finding(finding, f"{_one_line(node.where[at])}: " if node.where else ""))
    _paragraph(page, node.rest, ink=_QUIET)
    if not node.findings and node.clear:
        _paragraph(page, plain(node.clear), ink=role("ok"), bold=True)
    for gap in node.gaps:
        _paragraph(page, plain(f"{gap.section} not shown: {gap.reason}"), ink=_QUIET)


def _finding(finding: Finding, where: str) -> tuple[str, float]:
    """Return a finding on a ground of its colour, code set as code, and how high it is."""
    ink, ground, place = role(finding.severity), role(f"{finding.severity}-bg"), finding.location
    lines = [(_INK, line) for line in _prose(where + finding.message)]
    if place is not None:
        lines.append((_QUIET, escape(one_line(fitted(f"{place.label}: {place.text}", WIDTH - _BESIDE - 12, SIZE)))))
    lines += [(_QUIET, line) for line in _prose(finding.remedy)]
    height = (LINE - 1) * len(lines) + 10
    words = (tag("text", line, x=number(_BESIDE), y=number(18 + (LINE - 1) * at), font_size=number(SIZE), fill=tone)
             for at, (tone, line) in enumerate(lines))  # fmt: skip
    sign = f'<path d="M14,7l6.5,6.5l-6.5,6.5l-6.5,-6.5z" fill="{ink}"/>'
    name = text_svg(28, 18, f"{finding.code} {finding.severity}", size=SIZE, ink=ink, bold=True)
    grounds = rect(0, 0, WIDTH, height, fill=ground) + rect(0, 0, 3, height, fill=ink)
    drawn = f"{grounds}{sign}{name}{''.join(words)}"
    return moved(0, 4, drawn), height


def _prose(text: str) -> list[str]:
    """Return a text broken into lines, as content of text elements; what is between backticks is set as code.

    Code may go on from one line to the next: each line closes what it opened. A backtick without a partner stays.
    """
    inside, lines = False, []
    for line in wrapped(_CODE.sub(f"{_MARK}\\1{_MARK}", text), WIDTH - _BESIDE - 12, SIZE, 60) if text else ():
        pieces = []
        for at, piece in enumerate(line.split(_MARK)):
            inside ^= bool(at)
            words = escape(one_line(piece))
            pieces.append(
                tag("tspan", words, font_family="ui-monospace,monospace", font_size="12") if inside and piece else words
            )
        lines.append("".join(pieces))
    return lines


@draw.register
def _(node: nodes.Section, page: Page) -> None:
    if node.folded or not nodes.is_there(node):
        return
    if node.title:
        chip = f"{nodes.letters(node.chip)}  " if node.chip else ""
        _paragraph(page, chip + plain(node.title), bold=True)
        _paragraph(page, plain(node.note), ink=_QUIET)
    for part in node.body:
        draw(part, page)


@draw.register
def _(node: nodes.Paragraph, page: Page) -> None:
    roles = {"quiet": "ink-2", "warning": "warning", "error": "error"}
    _paragraph(page, _one_line(node.text), ink=role(roles.get(node.look or "", "ink")))


@draw.register
def _(node: nodes.Items, page: Page) -> None:
    for item in node.items[: node.most]:
        _paragraph(page, _one_line(item), indent=12)
    _paragraph(page, node.rest, ink=_QUIET, indent=12)


# -- tables and listings ---------------------------------------------------------------------------------------------


@draw.register
def _(node: nodes.Table, page: Page) -> None:
    if node.rows:
        page.put(*table_svg(node, WIDTH))
        left = nodes.left_out_words(node, min(len(node.rows), node.most[0], MOST_ROWS))
        _paragraph(page, left, ink=_QUIET)


def table_svg(node: nodes.Table, room: float) -> tuple[str, float]:
    """Return the first rows of a table, and how high they are."""
    shown = node.rows[: min(node.most[0], MOST_ROWS)]
    if not shown:
        return "", 0.0
    widths = _widths(node.columns, shown, room)
    starts = [0.0, *accumulate(width + _GAP for width in widths)]
    parts, y = [], 0.0
    places = [*zip(node.columns, starts, widths, strict=False)]
    if any(column.title for column in node.columns):
        for column, x, wide in places:
            title = "" if "silent" in column.look.split() else plain(column.title)
            parts.append(_words(title, x, y, wide, f"{column.look} quiet"))
        y += LINE
    for row in shown:
        cells = [_cell(each, x, y, wide, column.look) for each, (column, x, wide) in zip(row, places, strict=True)]
        parts += [drawn for drawn, _ in cells]
        y += max(lines for _, lines in cells) * (LINE - 3) + 3
    return "".join(parts), y - 4


def _widths(columns: Sequence[nodes.Column], rows: Sequence[Sequence[Cell]], wide: float) -> list[float]:
    """Return how wide each column is: as its widest cell, and where that is too much, the widest are narrowed."""

    def needed(each: Cell) -> float:
        if isinstance(each, nodes.Bar | nodes.Strip):
            return _BAR_WIDTH if isinstance(each, nodes.Bar) else _STRIP_WIDTH if each.shares else 0.0
        return max((text_width(line, SIZE) for line in inline(each).split("\n")), default=0.0)

    widths = [max(text_width(plain(column.title), SIZE), *(needed(row[at]) for row in rows))
              for at, column in enumerate(columns)]  # fmt: skip
    room = wide - _GAP * (len(columns) - 1)
    least = max(min(60.0, room / len(columns)), 1.0)  # of so many columns that no room is left beside the gaps
    while sum(widths) > room and max(widths) > least:
        at = widths.index(max(widths))
        widths[at] = max(least, widths[at] * 0.95)
    return widths


def _cell(each: Cell, x: float, y: float, wide: float, look: str) -> tuple[str, int]:
    """Return a cell, and how many lines it takes."""
    if isinstance(each, nodes.Bar):
        ground = rect(x, y + 3, _BAR_WIDTH, 10, rx=2, fill=role("skip"))
        return ground + rect(x, y + 3, _BAR_WIDTH * each.share, 10, rx=2, fill=role("n3")), 1
    if isinstance(each, nodes.Strip):
        cells, high = max(len(each.shares), 1), 14
        part, drawn = _STRIP_WIDTH / cells, [rect(x, y + 1, _STRIP_WIDTH, 14, fill=role("skip"))]
        for at, share in enumerate(each.shares):
            colour, top = theme.offset_colour(at / max(cells - 1, 1)), y + 1 + high * (1 - (share or 0))
            drawn += [rect(x + at * part, top, part, high * share, fill=colour)] if share else []
        return tag("g", tag("title", escape(each.sentence)), *drawn), 1
    lines = [part for line in inline(each).split("\n") for part in wrapped(line, wide + 1, SIZE, _CELL_LINES)]
    return "".join(_words(line, x, y + at * (LINE - 3), wide, look) for at, line in enumerate(lines)), len(lines)


def _words(words: str, x: float, y: float, wide: float, look: str) -> str:
    looks, shown = look.split(), fitted(words, wide + 1, SIZE)
    place, anchor = (x + wide, "end") if "number" in looks else (x, "start")
    return text_svg(place, y + 12, shown, size=SIZE, anchor=anchor, quiet="quiet" in looks) if shown else ""


@draw.register
def _(node: nodes.Source, page: Page) -> None:
    left = _AMOUNT * len(node.columns)
    drawn = [_line(line, left) for line in node.lines[:MOST_LINES]]
    if node.columns:
        titles = (text_svg(_AMOUNT * at, 12, title, size=12, anchor="end", ink=_QUIET)
                  for at, title in enumerate(node.columns, 1))  # fmt: skip
        page.put("".join(titles), 12)
    heights = [0.0, *accumulate(height for _, height in drawn)]
    page.put("".join(moved(0, y, part) for (part, _), y in zip(drawn, heights, strict=False)), heights[-1])
    left = len(node.lines) - len(drawn)
    _paragraph(page, f"and {count(left)} more lines" if left > 0 else "", ink=_QUIET)


def _line(line: nodes.Line, left: float) -> tuple[str, float]:
    """Return a line, its number behind ``left`` pixels of amounts, and how high it is with what is below it."""
    if not line.number:
        return text_svg(left + 40, 13, line.text or "\u22ee", size=12, ink=_QUIET, bold=bool(line.text)), LINE
    tone, em = role(_TONES[line.sign]) if line.sign else _QUIET, 12 * _MONO_EM
    code, parts = line.text.expandtabs(4), list[str]()
    begin = left + 40 + (len(code) - len(code.lstrip())) * em  # in place of the spaces before the code
    shown = shortened(code, max(int((WIDTH - begin) / em), 8))
    for end, amount in enumerate(line.amounts, 1):
        if isinstance(amount, nodes.Bar) and amount.share:
            wide = (_AMOUNT - 8) * amount.share
            parts.append(rect(_AMOUNT * end - wide, 1, wide, LINE - 2, fill=role("n0"), fill_opacity=".3"))
        if amount:
            parts.append(text_svg(_AMOUNT * end - 2, 13, _one_line(amount), size=12, anchor="end"))
    parts += [
        text_svg(left + 28, 13, str(line.number), size=12, anchor="end", ink=tone, bold=bool(line.sign)),
        tag("g", text_svg(begin, 13, shown, size=12), font_family=_MONO),
    ]
    if line.marked and (at := code.find(line.marked)) >= 0:
        parts.append(rect(left + 40 + at * em, 16, len(line.marked) * em, 2, fill=tone))
    beside, notes = ([*filter(None, map(_one_line, each))] for each in (line.beside, line.below))
    start = max(left + 52 + len(code) * em, WIDTH * 0.5)
    if len(beside) == 1 and start + text_width(beside[0], 12) <= WIDTH:
        parts.append(text_svg(start, 13, beside.pop(), size=12, ink=_QUIET))
    wrapped_notes = [each for words in (*beside, *notes) for each in wrapped(words, WIDTH - 64, 12, 6)]
    parts += [text_svg(64, 13 + LINE * at, words, size=12, ink=tone) for at, words in enumerate(wrapped_notes, 1)]
    return "".join(parts), LINE * (1 + len(wrapped_notes))


# -- drawings --------------------------------------------------------------------------------------------------------


@draw.register
def _(node: nodes.Parts, page: Page) -> None:
    x, drawn = 0.0, []
    for part in node.parts:
        look = {"fill": ground_colour(part.ground), "stroke": role("line-2"), "stroke_width": ".5"}
        drawn.append(rect(x, 0, part.share * WIDTH, 20, **look))
        x += part.share * WIDTH
    page.put("".join(drawn), 22)
    page.put(*legend_svg([(ground_colour(part.ground), f"{part.words} {part.amount}") for part in node.parts], WIDTH))
    _paragraph(page, plain(node.note), ink=_QUIET)


@draw.register
def _(node: nodes.Picture, page: Page) -> None:
    page.put(*node.svg(WIDTH))
