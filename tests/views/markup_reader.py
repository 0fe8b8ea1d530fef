"""Reads HTML as a browser would, for tests: which elements there are, with which attributes, and which text is seen."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from urllib.parse import unquote

import bleach


def svg_of(source: str) -> str:
    """The picture in an ``<img src>``, as it was before it became an address."""
    assert source.startswith("data:image/svg+xml,")
    return re.sub(r"='([^'\"]*)'", r'="\1"', unquote(source.removeprefix("data:image/svg+xml,"))) + "\n"


# fmt: off
GITHUB_TAGS = frozenset({
    "h1", "h2", "h3", "h4", "h5", "h6", "br", "b", "i", "strong", "em", "a", "pre", "code", "img", "tt", "div", "ins",
    "del", "sup", "sub", "p", "picture", "ol", "ul", "table", "thead", "tbody", "tfoot", "blockquote", "dl", "dt",
    "dd", "kbd", "q", "samp", "var", "hr", "ruby", "rt", "rp", "li", "tr", "td", "th", "s", "strike", "summary",
    "details", "caption", "figure", "figcaption", "abbr", "bdo", "cite", "dfn", "mark", "small", "source", "span",
    "time", "wbr",
})
# fmt: on
GITHUB_EVERYWHERE = ["alt", "align", "colspan", "rowspan", "width", "height", "title", "scope", "open"]
GITHUB_ATTRIBUTES = {"*": GITHUB_EVERYWHERE, "img": ["src"]}


def as_github(html: str) -> str:
    """Return what is left of ``html``: of a script and a style nothing, of other tags their text."""
    html = re.sub(r"<(script|style)\b.*?</\1>", "", html, flags=re.DOTALL)
    return bleach.clean(html, GITHUB_TAGS, GITHUB_ATTRIBUTES, protocols={"http", "https"}, strip=True)


class Page(HTMLParser):
    """What a fragment holds.

    Attributes:
        elements: Tag and attributes, in order.
        text: What a user reads, spaces collapsed; scripts and styles left out.
        scripts: The content of every script, by its type ("" for none).
        left_open: Tags opened and not closed in the right order.
    """

    VOID = frozenset({"img", "br", "col", "meta", "input"})

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[str, str]] = []
        self.left_open: list[str] = []
        self._open: list[str] = []
        self._parts: list[str] = []
        self.feed(html)
        self.close()
        self.left_open += self._open

    @property
    def text(self) -> str:
        return " ".join("".join(self._parts).split())

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def with_class(self, class_: str) -> list[dict[str, str | None]]:
        return [found for _, found in self.elements if class_ in (found.get("class") or "").split()]

    # What a start closes, and what an end closes with it: those ends that HTML lets be left out.
    IMPLIED = {  # noqa: RUF012
        "td": {"td", "th"}, "th": {"td", "th"}, "tr": {"td", "th", "tr"}, "dt": {"dt", "dd"}, "dd": {"dt", "dd"},
        "p": {"p"}, "div": {"p"}, "table": {"p"},
    }  # fmt: skip
    ENDED = {  # noqa: RUF012
        "thead": {"td", "th", "tr"}, "tbody": {"td", "th", "tr"}, "table": {"td", "th", "tr"}, "tr": {"td", "th"},
        "div": {"dt", "dd", "p"}, "dl": {"dt", "dd"}, "header": {"p"},
    }  # fmt: skip

    def handle_starttag(self, tag, attrs):
        self._imply(self.IMPLIED.get(tag, ()))
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append(tag)
        if tag == "script":
            self.scripts.append((dict(attrs).get("type") or "", ""))
        if tag in {"td", "th", "p", "div", "br", "tr", "summary", "dt", "dd"}:
            self._parts.append(" ")

    def _imply(self, closed):
        while self._open and self._open[-1] in closed:
            self._open.pop()

    def handle_endtag(self, tag):
        self._imply(self.ENDED.get(tag, ()))
        if self._open and self._open[-1] == tag:
            self._open.pop()
        else:
            self.left_open.append(f"/{tag}")

    def handle_data(self, data):
        if self._open and self._open[-1] == "script":
            kind, text = self.scripts[-1]
            self.scripts[-1] = (kind, text + data)
        elif not (self._open and self._open[-1] == "style"):
            self._parts.append(data)
