"""A panel as HTML: every element of every panel of nodes comes from here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import singledispatch
from itertools import groupby

from tensormagic.reports import Finding
from tensormagic.views import nodes, svg_paths, theme
from tensormagic.views.markup import corner, escape, tag
from tensormagic.views.nodes import Cell, Node
from tensormagic.views.theme import category_style, icon, sheet, static
from tensormagic.words import evidence_text


def fold(title: str, *content: str, state: str = "") -> str:
    """Return what opens on demand: a heading behind a plus sign, with what it would show in quiet words beside it."""
    body = "".join(content)
    if not body:
        return ""
    sentence = " " + tag("span", escape(state), class_="quiet") if state else ""
    inside = tag("div", body, class_="tm-inside")
    return tag("details", tag("summary", title, sentence), inside, class_="tm-fold")


def folds(*each: str) -> str:
    """Return disclosures side by side; nothing where there are none."""
    shown = " ".join(one for one in each if one)
    return tag("div", shown, class_="tm-folds") if shown else ""


def scroll(label: str, *content: str, class_: str = "") -> str:
    """Return content that is as high as it may be and scrolls beyond, by the keyboard too; ``label`` names it."""
    pairs = {"class_": f"tm-scroll {class_}".strip(), "tabindex": "0", "role": "region", "aria_label": label}
    pairs["data_lm_suppress_shortcuts"] = "true"  # JupyterLab would take the arrow keys for its own
    return tag("div", *content, **pairs)


# Findings and gaps as HTML: a row each, its remedy one click away; complete where styles and scripts are stripped.


def with_code(text: str) -> str:
    """Return ``text`` escaped, with what is between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def findings_html(node: nodes.Findings) -> str:
    """Return the findings strip, errors with their remedies shown; nothing where there is no finding."""
    rows = [*map(finding_html, node.findings)]
    if node.where:
        pairs = zip(node.findings, node.where, strict=True)
        rows = [finding_html(finding, before=f"{cell(where)}: ", is_open=False) for finding, where in pairs]
    rest = [tag("summary", escape(node.rest)), *rows[node.most :]]
    folded = tag("details", *rest, class_="tm-fold tm-rest") if node.rest else ""
    return tag("div", *rows[: node.most], folded, class_="tm-find") if rows else ""


def finding_html(finding: Finding, *, before: str = "", is_open: bool | None = None) -> str:
    """Return one row of the strip, an error open: what to do, other lines, and where it is with its numbers.

    Where ``is_open`` says whether it is open, what to do is all that is in it. ``before`` stands before the message.
    """
    place = finding.location
    inside = [tag("p", with_code(finding.remedy), class_="tm-remedy")] if finding.remedy else []
    if is_open is None:
        is_open = finding.severity == "error"
        text = f": {tag('code', escape(place.text))}" if place is not None and place.text else ""
        described = [escape(place.label) + text] if place is not None else []
        if finding.related and described:  # this line first, and the others in a row below it
            inside.append(tag("p", described.pop()))
        for line in finding.related:
            code = f": {tag('code', escape(line.location.text))}" if line.location != place else ""  # shown already
            inside.append(tag("p", escape(f"{line.what}: {line.location.label}"), code))
        described += [escape(f"evidence: {evidence_text(finding.evidence)}")] if finding.evidence else []
        described.append(f"explained by {tag('code', escape(finding.help))}")
        inside.append(tag("p", " \u00b7 ".join(described)))
    name = tag("span", f"{escape(finding.code)} {escape(finding.severity)}", class_="tm-sev")
    message = tag("span", before, with_code(finding.message))
    more = tag("span", "remedy" if finding.remedy else "more", class_="tm-hint")
    summary = tag("summary", icon(finding.severity), " ", name, " ", message, " ", more)
    fix = tag("div", *inside, class_="tm-fix")
    return tag("details", summary, fix, class_=f"tm-{finding.severity}", open="" if is_open else None)


# What a node looks like stands in ``static/view.css``, a listing in ``source.css``; all text passes through
# `basics.markup`. Everything works without scripts, and reads in order where styles are stripped.

_CLASSES: dict[nodes.Look, str] = {
    "quiet": "quiet", "badge": "tm-badge", "error": "tm-failed", "failed": "tm-what", "warning": "tm-unseen",
    "left": "tm-chip tm-a", "right": "tm-chip tm-b", "up": "tm-sign tm-up", "down": "tm-sign tm-down",
}  # fmt: skip
_COLUMN = {"number": "tm-num", "code": "tm-mono", "quiet": "quiet", "wide": "tm-wide", "bars": "tm-bars"}
_COLOURS = 254  # of a PNG of one byte a pixel
_FROM_THE_LEFT = "text-align:left"  # of code, also where styles are stripped: cells are then set from the right
_DOT, _DOTS_WIDE, _DOTS_HIGH, _ROW_GAP = 3, 80, 6, 2  # pixels of a dot of a strip; dots along its sides, between rows


def render(view: nodes.Panel, *, below: bool = False) -> str:
    """Return a panel as a ``<section>`` that needs nothing from outside, and those that stand below it."""
    label = (view.label or view.title.capitalize()).replace("`", "")
    own = _style(view)  # the panel above brings what all share
    style = tag("style", own if below else sheet("view.css", extra=own))
    drawn = tag("section", style, *inside(view), class_=f"tm tm-{view.kind}", aria_label=label)
    return drawn + "".join(render(each, below=True) for each in view.after)


def top(view: nodes.Panel) -> str:
    """Return a panel as the top of another one."""
    style = tag("style", static("view.css"), _style(view))
    return style + tag("div", *inside(view), class_=f"tm tm-{view.kind} tm-top")


def _style(view: nodes.Panel) -> str:
    """Return the style of a panel's pictures, and of listings, tables and kinds of memory where it has any."""
    sheets = ("source.css", *view.sheets) if _has(view.body, nodes.Source) else tuple(view.sheets)
    sheets += ("table.css",) if view.kind != "tensor" and _has(view.body, nodes.Table) else ()  # a tensor's are narrow
    return "".join(map(static, sheets)) + (category_style() if "memory.css" in sheets else "")


def _has(body: Iterable[Node], kind: type[nodes.Source | nodes.Table]) -> bool:
    """Say whether a node of that kind is in a body or in its sections."""
    return any((nodes.is_there(node) and isinstance(node, kind)) or
               (isinstance(node, nodes.Section) and _has(node.body, kind)) for node in body)  # fmt: skip


def inside(view: nodes.Panel) -> list[str]:
    """Return the header and the parts of a panel."""
    facts, badges = list[str](), list[str]()
    for fact in view.facts:
        is_badge = isinstance(fact, nodes.Words) and fact.look == "badge"
        (badges if is_badge else facts).append(cell(fact))
    described = (fact if fact.startswith("<") else tag("span", fact) for fact in facts if fact)
    line = " ".join([tag("b", with_code(view.title), class_="tm-name"), *described])
    lead = with_code(view.lead) if isinstance(view.lead, str) else view.lead.html()
    head = tag(
        "header",
        tag("p", icon(view.icon) if view.icon else "", line, class_="tm-line"),
        " " + tag("p", " ".join(badges), class_="tm-badges") if badges else "",
        tag("p", lead, class_="tm-lead") if lead else "",
        *(tag("p", with_code(text), class_="tm-second quiet") for text in view.second if text),
        class_="tm-head",
    )
    return [head, *_blocks(view.body)]


def _blocks(body: Iterable[Node]) -> Iterable[str]:
    """Yield the parts of a panel: folded ones side by side, and plain ones framed together, where they follow."""

    def framing(node: Node) -> str:
        if isinstance(node, nodes.Section):
            return "folded" if node.folded else "framed"
        return {nodes.Findings: "framed", nodes.Source: "tm-section tm-listing"}.get(type(node), "tm-section")

    for kind, parts in groupby(body, framing):
        inner = [html(node) for node in parts]
        if kind == "folded":
            yield folds(*inner)
        elif kind == "framed":
            yield "".join(inner)
        elif any(inner):
            yield tag("div", *inner, class_=kind)


@singledispatch
def html(node: Node) -> str:
    """Return a node as markup; a text is a paragraph."""
    return tag("p", with_code(str(node))) if node else ""


@singledispatch
def cell(node: Cell) -> str:
    """Return what fits into a line as markup."""
    return with_code(str(node)) if node else ""


@html.register
def _(node: nodes.Findings) -> str:
    clear = tag("p", icon("ok"), " ", escape(node.clear), class_="tm-clear") if node.clear else ""
    gaps = [tag("p", tag("b", escape(gap.section)), " not shown: ", with_code(gap.reason)) for gap in node.gaps]
    return (findings_html(node) or clear) + (tag("div", *gaps, class_="tm-gaps") if gaps else "")


@html.register
def _(node: nodes.Section) -> str:
    body = "".join(map(html, node.body))
    if not body:
        return ""
    chip = f"{cell(nodes.Chip(node.chip))} " if node.chip else ""
    title = chip + with_code(node.title)
    note = f" {tag('span', with_code(node.note), class_='quiet')}" if node.note else ""
    if node.folded:
        return fold(title + note, body)
    head = tag("div", tag("h3", title), note, class_="tm-about") if title else ""
    return tag("div", head, body, class_="tm-section")


@html.register
def _(node: nodes.Paragraph) -> str:
    sign, words = f"{icon(node.look)} " if node.look in {"warning", "error"} else "", cell(node.text)
    return tag("p", sign, words, class_=_CLASSES[node.look] if node.look else None) if words else ""


@html.register
def _(node: nodes.Items) -> str:
    more = [tag("li", escape(node.rest), class_="quiet")] if node.rest else []
    return tag("ul", *(tag("li", cell(item)) for item in node.items[: node.most]), *more)


# -- tables and listings ---------------------------------------------------------------------------------------------


@html.register
def _(node: nodes.Table) -> str:
    if not node.rows:
        return ""
    shown = node.rows[: node.most[0]]
    looks = [column.look.split() for column in node.columns]
    classes = [" ".join(_COLUMN[look] for look in each if look in _COLUMN) or None for each in looks]
    kinds = [(("th", "row") if "name" in each else ("td", None)) for each in looks]
    rows = (
        tag("tr", *(tag(kind, cell(one), scope=scope, class_=class_)
                    for one, (kind, scope), class_ in zip(row, kinds, classes, strict=True)))
        for row in shown
    )  # fmt: skip
    full = any({"wide", "bars"} & {*each} for each in looks)
    head = _head(node.columns) if any(column.title for column in node.columns) else ""
    table = tag("table", head, tag("tbody", *rows), class_="tm-list tm-full" if full else "tm-list")
    left = nodes.left_out_words(node, len(shown))
    table += tag("p", escape(left), class_="quiet") if left else ""
    return scroll(node.label, table) if node.label else table


def _head(columns: Sequence[nodes.Column]) -> str:
    titles = []
    for column in columns:
        looks = column.look.split()
        if "silent" in looks:
            titles.append(corner(column.title, scope="col"))
            continue
        side: nodes.Look | None = "left" if "left" in looks else "right" if "right" in looks else None
        title = cell(nodes.Words(column.title, side)) if side else with_code(column.title)
        right = "tm-num" if "number" in looks else None
        titles.append(tag("th", title, scope="col" if column.title else None, class_=right))
    return tag("thead", tag("tr", *titles))


@html.register
def _(node: nodes.Source) -> str:
    if not node.lines:
        return ""
    columns, signs = len(node.columns), any(line.sign for line in node.lines)
    beside = any(line.beside for line in node.lines)
    titles = [("number of the line", ""), *([("mark", "")] if signs else []), ("line", node.titles[0])]
    titles += [("what it did", node.titles[1])] if beside else []
    heads = [tag("th", escape(title), scope="col", class_="tm-num") for title in node.columns]
    heads += [tag("th", escape(seen), scope="col") if seen else corner(said, scope="col") for said, seen in titles]
    rows = []
    for line in node.lines:
        wide, look = {"colspan": len(heads), "class_": "tm-heading"}, f"tm-at tm-at-{line.sign}" if line.sign else None
        cells = _line(line, columns, signs=signs, beside=beside)
        heading = tag("td", escape(line.text) or "\u22ee", **wide)
        rows.append(tag("tr", *cells, class_=look) if line.number else tag("tr", heading))
    table = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows), class_="tm-code")
    return scroll("The source, line by line", table)


def _line(line: nodes.Line, columns: int, *, signs: bool, beside: bool) -> Iterator[str]:
    """Yield the cells of a line: numbers, its own number, where lines have them its sign, code, what is beside it."""
    for amount in [*line.amounts, *[None] * (columns - len(line.amounts))]:
        yield tag("td", cell(amount), class_="tm-num")
    swatch = tag("span", class_=f"tm-swatch {line.ground}") if line.ground else ""
    yield tag("td", swatch, str(line.number), class_="tm-number")
    if signs:
        yield tag("td", "\u2022" if line.sign == "mark" else icon(line.sign) if line.sign else "", class_="tm-sign")
    before, found, after = line.text.partition(line.marked) if line.marked else (line.text, "", "")
    code = escape(before) + (tag("mark", escape(found)) if found else "") + escape(after)
    below = (tag("p", cell(part), class_="tm-below") for part in line.below)
    yield tag("td", tag("code", code), *below, class_="tm-text", style=_FROM_THE_LEFT)
    if beside:
        yield tag("td", *(tag("p", cell(part)) for part in line.beside), class_="tm-beside")


# -- what is in a line -------------------------------------------------------------------------------------------


@cell.register(tuple)
def _(node: tuple[Cell, ...]) -> str:
    return " ".join(filter(None, map(cell, node)))


@cell.register
def _(node: nodes.Words) -> str:
    hint = node.hint or None
    if not node.text:
        return ""
    if node.look == "code":
        return tag("code", escape(node.text), title=hint)
    if node.look == "literal":
        return escape(node.text)
    name = "b" if node.look == "strong" else "span"
    return tag(name, with_code(node.text), class_=_CLASSES.get(node.look), title=hint)


@cell.register
def _(node: nodes.Noted) -> str:
    notes = (tag("span", with_code(each), class_="tm-sub") if isinstance(each, str) else cell(each)
             for each in node.notes if each)  # fmt: skip
    return " ".join([cell(node.text), *notes])


@cell.register
def _(node: nodes.Clash) -> str:
    return tag("span", tag("b", with_code(node.text)), " ", tag("i", escape(node.because)), class_="tm-dim tm-not")


@cell.register
def _(node: nodes.Shape) -> str:
    comma = "," if len(node.sizes) == 1 else ""
    return tag("span", "(", ", ".join(map(cell, node.sizes)), comma, ")", class_="tm-dims")


@cell.register
def _(node: nodes.Chip) -> str:
    if not node.number:
        return ""
    colour = theme.CHIP_COLOURS[(node.number - 1) % len(theme.CHIP_COLOURS)]
    style = f"background-color:{colour};color:{theme.ink_on(colour)}"
    return tag("span", nodes.letters(node.number), class_="tm-chip", style=style)


@cell.register
def _(node: nodes.Bar) -> str:
    if node.words:
        ground, long = f"tm-amount {node.ground}".strip(), f"--w:{100 * node.share:.0f}%"
        return tag("span", escape(node.words), class_=ground, style=long)
    return tag("span", tag("i", style=f"width:{100 * node.share:.1f}%"), class_="tm-track")


@cell.register
def _(node: nodes.Strip) -> str:
    """Return a small picture: coloured by place where it is used, hatched where it is not, crossed where unknown."""
    if not (cells := len(node.shares)):
        return ""
    columns, colours = list[list[int]](), min(cells, _COLOURS)
    for at, share in enumerate(node.shares):
        if node.row and at and at % node.row == 0:
            columns += [[svg_paths.EMPTY] * _DOTS_HIGH] * _ROW_GAP
        column = [svg_paths.NOT_A_NUMBER] * _DOTS_HIGH
        if share is not None:  # it is filled from below
            filled = min(max(round(share * _DOTS_HIGH), 1 if share else 0), _DOTS_HIGH - (share < 1))
            column = [svg_paths.PLUS_INFINITY] * (_DOTS_HIGH - filled) + [at * colours // cells] * filled
        columns += [column] * max(_DOTS_WIDE // cells, 1)
    palette = [theme.offset_colour(at / max(colours - 1, 1)) for at in range(colours)]
    source = svg_paths.heatmap([list(row) for row in zip(*columns, strict=True)], palette, size=_DOT)
    ground = f"background-color:{theme.role('skip')}"  # light on either side: the scale begins in a dark blue
    image = tag("img", src=source, alt=node.sentence, title=node.sentence, style=ground, class_="tm-reach")
    return image.removesuffix("</img>")


# -- drawings --------------------------------------------------------------------------------------------------------


@html.register
def _(node: nodes.Parts) -> str:
    said = [f"{part.words}: {part.amount}" + (f", {part.of}" if part.of else "") for part in node.parts]
    bar = (tag("span", class_=part.ground, style=f"width:{100 * part.share:.2f}%", title=sentence)
           for part, sentence in zip(node.parts, said, strict=True))  # fmt: skip
    keys = [key(part.ground, escape(part.words), part.amount) for part in node.parts]
    keys += [tag("span", escape(node.note), class_="tm-key quiet")] if node.note else []
    drawn = tag("div", *bar, class_="tm-bar", role="img", aria_label="; ".join(said)) if said else ""
    return drawn + tag("div", " ".join(keys), class_="tm-keys")


def key(ground: str, words: str, amount: str = "") -> str:
    """Return an entry of a legend: the colour of a style class, what it stands for, as markup, and how much that is."""
    number = f" {tag('b', escape(amount))}" if amount else ""
    return tag("span", tag("span", class_=f"tm-swatch {ground}"), words, number, class_="tm-key")


@html.register
def _(node: nodes.Picture) -> str:
    return node.html()
