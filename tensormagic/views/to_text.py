"""A panel as plain text: every line of every panel of nodes in a terminal comes from here.

Lines are measured as a terminal shows them. Nothing rests on colour: what is coloured in a page has a sign or words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import singledispatch
from itertools import chain, groupby

from tensormagic.reports import Finding
from tensormagic.views import nodes
from tensormagic.views.nodes import Cell, Node
from tensormagic.views.text_canvas import columns_of, cut, printable, share_bar, table, wrapped
from tensormagic.views.theme import SIGNS
from tensormagic.words import NOT_EQUAL, evidence_text, plural, tuple_text

NARROWEST = 40
_FOLDED = 14  # lines of what is folded within a part
_CODE = 36  # columns that code has at the right of numbers, at least
_BAR = 16  # columns
_SHADES = "\u2591\u2584\u2588"  # not used, partly used, used
_RULE, _OVERLINE = "\u2500", "\u203e"
_SPACES = re.compile(r"[ \t\r\n]+")  # no-break spaces stay: they hold a number together


def render(view: nodes.Panel, *, width: int = 100, brief: bool = False) -> str:
    """Return a panel as text, no line wider than ``width`` (at least 40) columns.

    A ``brief`` one names what is folded in a page, in place of writing it out.
    """
    width = max(width, NARROWEST)
    if brief:
        body, named = _unfolded(view.body)
        more = [nodes.Paragraph(f"with --text also: {', '.join(named)}", "quiet")] if named else []
        view = replace(view, body=[*body, *more])
    drawn = "\n".join(lines(view, width))
    return "\n".join([drawn, *(f"\n{render(each, width=width).rstrip()}" for each in view.after)]) + "\n"


def _unfolded(body: Sequence[Node]) -> tuple[list[Node], list[str]]:
    """Return nodes without their folded sections, and what these are called."""
    kept: list[Node] = []
    named: list[str] = []
    for node in body:
        if not isinstance(node, nodes.Section):
            kept.append(node)
        elif node.folded and node.title:
            if any(True for _ in text(node, NARROWEST)):  # what has no text is not there with --text either
                named.append(f"{node.title} ({plain(node.note)})" if node.note else node.title)
        else:
            unfolded, inner = _unfolded(node.body)
            kept.append(replace(node, body=unfolded))
            named += inner
    return kept, named


def lines(view: nodes.Panel, width: int) -> list[str]:
    """Return a panel's own lines, without those that stand below it."""
    # Paragraphs stand together.
    parts = groupby(view.body, lambda node: isinstance(node, str | nodes.Paragraph) or id(node))
    blocks = [_head(view, width), *([line for node in each for line in text(node, width)] for _, each in parts)]
    every = "\n\n".join("\n".join(block) for block in blocks if block).split("\n")
    return [cut(printable(line.replace("\u00a0", " ")), width) for line in every]


def _head(view: nodes.Panel, width: int) -> list[str]:
    """Return the title and the facts, ruled to the right edge where one line holds them, and the quiet lines below."""
    facts = [fact for fact in map(inline, view.facts) if fact]
    lead = f"{_RULE * 2} {plain(view.title)} " + (f"{_RULE * 2} " if facts else "")
    lines = wrapped(" \u00b7 ".join(facts), width, lead, "   ") if facts else [lead]
    lines = [f"{lines[0].rstrip()} ".ljust(width, _RULE)[:width]] if len(lines) == 1 else [*lines, _RULE * width]
    lines += [line for words in view.second if words for line in wrapped(plain(words), width, "   ", "   ")]
    if isinstance(view.lead, str):
        return lines + (["", *wrapped(plain(view.lead), width)] if view.lead else [])
    return [*lines, *view.lead.text(width)]


def plain(words: str) -> str:
    """Return a text without the marks of code and without what a terminal could obey, on one line, its indent kept."""
    return printable(_SPACES.sub(" ", words.replace("`", "")).strip(" "))


def finding_lines(finding: Finding, width: int, *, title: bool = False) -> list[str]:
    """Return a finding: sign, severity, code and message, then remedy and place, under a hanging indent.

    Of one that is folded there is the title alone: what was found, and where.
    """
    head = f" {SIGNS[finding.severity]} {finding.severity:<8} {finding.code}  "
    hanging = " " * len(head)
    if title:
        place = f" ({finding.location.label})" if finding.location is not None else ""
        return wrapped(plain(finding.message) + place, width, head, hanging)
    extra = [finding.remedy and f"remedy: {plain(finding.remedy)}"]
    if finding.location is not None:
        extra.append(f"{finding.location.label}: {finding.location.text}".rstrip(": "))
    extra += [f"{line.what}: {line.location.label}: {line.location.text}" for line in finding.related]
    if finding.evidence:
        extra.append(f"evidence: {evidence_text(finding.evidence)}")
    more = chain.from_iterable(wrapped(words, width, hanging, hanging) for words in extra if words)
    return [*wrapped(plain(finding.message), width, head, hanging), *more]


@singledispatch
def text(node: Node, width: int) -> Iterable[str]:
    """Return a node's lines; a text is a paragraph."""
    return wrapped(plain(str(node)), width, "  ", "  ") if node else []


@singledispatch
def inline(node: Cell) -> str:
    """Return a node as part of a line."""
    return plain(node) if isinstance(node, str) else ""


@text.register
def _(node: nodes.Findings, width: int) -> Iterator[str]:
    for at, finding in enumerate(node.findings):
        if at == node.most:
            yield from wrapped(f"and {node.rest.partition(':')[0]}:", width, " ", " ")
        before = f"{inline(node.where[at])}: " if node.where else ""
        yield from finding_lines(replace(finding, message=before + finding.message), width, title=at >= node.most)
    if not node.findings and node.clear:
        yield from wrapped(plain(node.clear), width, " ", " ")
    for gap in node.gaps:
        yield from wrapped(plain(f"not shown: {gap.section}: {gap.reason}"), width, "", "   ")


@text.register
def _(node: nodes.Section, width: int) -> Iterator[str]:
    inner = [list(text(part, width)) for part in node.body]
    if not any(inner):
        return
    note = plain(node.note)
    below = note if note.endswith(".") or "(" in note else ""  # a sentence, or what has parentheses of its own
    note = f" ({note})" if note and not below else ""
    if node.chip:
        yield from wrapped(plain(node.title) + note, width, f" {nodes.letters(node.chip)}  ", "    ")
    elif node.title:
        yield from wrapped(_capitals(node.title) + note, width)
    yield from wrapped(below, width, "  ", "  ") if below else ()
    above = False
    for part, lines in zip(node.body, inner, strict=True):
        if above and lines and isinstance(part, nodes.Section) and part.title and not node.title:
            yield ""
        above = above or bool(lines)
        short = isinstance(part, nodes.Section) and part.folded and len(lines) > _FOLDED + 1
        yield from lines[:_FOLDED] if short else lines
        if short:
            yield f"    and {plural(len(lines) - _FOLDED, 'more line')}"


def _capitals(title: str) -> str:
    """Return a title in capitals; code in it stays as it is: names differ by case."""
    parts = title.split("`")
    return plain("".join(part if at % 2 else part.upper() for at, part in enumerate(parts)))


@text.register
def _(node: nodes.Paragraph, width: int) -> Iterable[str]:
    sign, words = f" {SIGNS[node.look]} " if node.look in SIGNS else "  ", inline(node.text)
    return wrapped(words, width, sign, " " * len(sign)) if words else []


@text.register
def _(node: nodes.Items, width: int) -> Iterator[str]:
    for item in node.items[: node.most]:
        yield from wrapped(inline(item).replace("\n", "  "), width, "    ", "      ")
    if node.rest:
        yield f"    {node.rest}"


@text.register
def _(node: nodes.Table, width: int) -> Iterator[str]:
    kept = [at for at, column in enumerate(node.columns) if column.in_terminal]
    shown = [[inline(row[at]) for at in kept] for row in node.rows[: node.most[1]]]
    if not shown:
        return
    titles, right = list[str](), list[int]()
    for place, column in enumerate(node.columns[at] for at in kept):
        looks = {*column.look.split()}
        title = plain(column.title) if looks & {"left", "right"} else _capitals(column.title)
        titles.append("" if "silent" in looks else title)
        right += [place] if "number" in looks else []
    yield from table([titles, *shown] if any(titles) else shown, width, right=right)
    left = nodes.left_out_words(node, len(shown))
    if left:
        yield f"  {left}"


@text.register
def _(node: nodes.Source, width: int) -> Iterator[str]:
    if node.columns:
        yield from _with_amounts(node, width)
        return
    signs = any(line.sign for line in node.lines)
    for line in node.lines:
        yield from _line(line, width, signs=signs)


def _line(line: nodes.Line, width: int, *, signs: bool) -> Iterator[str]:
    if not line.number:
        yield f" {printable(line.text)}" if line.text else "     \u22ee"
        return
    sign = ("\u2022" if line.sign == "mark" else SIGNS.get(line.sign, " ")) + " " if signs else ""
    lead, further = f" {line.number:>3} {sign}", " " * 11
    code, beside = lead + printable(line.text.expandtabs(4)), [inline(part) for part in line.beside if part]
    joined = f"{code}  \u2190 {beside[0]}" if len(beside) == 1 else ""
    if joined and not wrapped(joined, width)[1:]:
        yield joined
    else:
        yield from _code(lead, printable(line.text.expandtabs(4)), width)
        at = line.text.find(line.marked) if line.marked else -1
        if at >= 0 and columns_of(lead + line.text) <= width:
            yield " " * columns_of(lead + line.text[:at]) + _OVERLINE * columns_of(line.marked)
        yield from (each for part in beside for each in wrapped(part, width, "         \u2190 ", further))
    for part in line.below:
        yield from wrapped(inline(part).replace("\n", "  "), width, " " * 9, further)


def _with_amounts(node: nodes.Source, width: int) -> Iterator[str]:
    """Yield a listing with numbers at the left of each line; where that leaves the code no room, below it."""
    empty = [""] * len(node.columns)
    rows = [[inline(amount) for amount in line.amounts] or empty for line in node.lines]
    wide = [max(map(columns_of, column)) for column in zip(node.columns, *rows, strict=True)]

    def aligned(cells: Sequence[str]) -> str:
        return "".join("  " + " " * (most - columns_of(cell)) + cell for cell, most in zip(cells, wide, strict=True))

    below = width - columns_of(aligned(node.columns)) < _CODE
    yield from () if below else [f"{aligned(node.columns)}  line"]
    for line, amounts in zip(node.lines, rows, strict=True):
        code = printable(line.text.expandtabs(4)) if line.number or line.text else "\u22ef"
        yield from _code(f"{'' if below else aligned(amounts)}  {line.number or '':>4}  ", code, width)
        pairs = zip(node.columns, amounts, strict=True)
        named = [f"{name} {amount}".replace(" ", "\u00a0") for name, amount in pairs if amount]
        yield from wrapped("  ".join(named), width, " " * 12, " " * 12) if below and named else ()


def _code(lead: str, code: str, width: int) -> Iterator[str]:
    """Yield a line of the source, whole: where there is no room, it goes on below, further in."""
    inner = " " * min(columns_of(lead) + len(code) - len(code.lstrip()) + 4, width - _CODE // 2)
    lines = wrapped(lead + code, width, "", inner)
    # A word that is too long for a line begins beside its number all the same.
    if lines[1:] and not lines[0].removeprefix(lead.rstrip()).strip():
        room = width - columns_of(lead)
        end = 1 + max(code.rfind(",", 0, room), code.rfind("(", 0, room // 2)) or room
        lines = [lead + code[:end], *wrapped(code[end:], width, inner, inner)]
    yield from lines if lines[1:] else [(lead + code).rstrip()]


# -- what is in a line -------------------------------------------------------------------------------------------


inline.register(tuple, lambda node: "  ".join(filter(None, map(inline, node))))
inline.register(nodes.Words, lambda node: plain(node.text))
inline.register(nodes.Shape, lambda node: tuple_text(tuple(map(inline, node.sizes))))
inline.register(nodes.Chip, lambda node: nodes.letters(node.number))
inline.register(nodes.Bar, lambda node: plain(node.words) or share_bar(node.share, _BAR))


@inline.register
def _(node: nodes.Clash) -> str:
    because = plain(node.because)
    return f"{SIGNS['error']}{plain(node.text)} {because if because.startswith(NOT_EQUAL) else f'({because})'}"


@inline.register
def _(node: nodes.Noted) -> str:
    """Return what a cell says, each note on a line of its own below it."""
    return "\n".join(filter(None, map(inline, (node.text, *node.notes))))


@inline.register
def _(node: nodes.Strip) -> str:
    return "".join("?" if share is None else _SHADES[(share > 0) + (share == 1)] for share in node.shares)


# -- drawings --------------------------------------------------------------------------------------------------------


@text.register
def _(node: nodes.Parts, width: int) -> Iterator[str]:
    rows = [(part.words, inline(nodes.Bar(part.share)), part.amount, part.of) for part in node.parts]
    yield from table(rows, width, right=(2, 3)) if rows else ()
    if node.note:
        yield from wrapped(plain(node.note), width, "  ", "  ")


@text.register
def _(node: nodes.Picture, width: int) -> Iterable[str]:
    return node.text(width)
