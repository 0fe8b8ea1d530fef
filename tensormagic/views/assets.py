"""The static files that panels inline, and the code that the panels of a page share."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tensormagic.views.markup import packed, tag

# The static files that panels inline: style sheets and viewers, read once and joined without a bundler.

_STATIC = Path(__file__).parent / "static"
_IMPORT = re.compile(r'^import \{[^}]*\} from "\./(\w+\.js)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?!default)", re.MULTILINE)
_TYPE = re.compile(r"/\*\* @.*? \*/ ?")  # a type written into a line of code: for the checker alone


@cache
def static(filename: str) -> str:
    """Return a file of ``static/`` without its indentation, empty lines and whole-line comments."""
    lines = (line.strip() for line in (_STATIC / filename).read_text(encoding="utf-8").splitlines())
    return "\n".join(_TYPE.sub("", line) for line in lines if line and not _is_comment(line))


@cache
def module(folder: str, entry: str) -> str:
    """Return a JavaScript module and all it imports from its folder as one module, which exports what ``entry`` does.

    The files are modules of their own, each after those it imports; imports are by name, and no top-level name is
    used twice in one folder.
    """
    order: list[str] = []
    _gather(folder, entry, order)
    inner = [_EXPORT.sub("", _source(folder, name)) for name in order[:-1]]
    return "\n".join([*inner, _source(folder, entry)])


def _gather(folder: str, name: str, order: list[str]) -> None:
    for imported in _IMPORT.findall(static(f"{folder}/{name}")):
        if imported not in order:
            _gather(folder, imported, order)
    order.append(name)


def _source(folder: str, name: str) -> str:
    return _IMPORT.sub("", static(f"{folder}/{name}")).strip()


def _is_comment(line: str) -> bool:
    if line.startswith("/*") and "*/" in line:  # a type in front of code is no whole-line comment
        return line.endswith("*/")
    return line.startswith(("//", "/*", "*/", "* ")) or line == "*"


# The code that the panels of a page share: each piece has a key, and lies packed in an element that runs nothing.
#
# An output by itself carries every piece it needs. In a notebook, whose outputs lie on one page, a piece need not be
# there twenty times: `lean` takes it out of an output, and writes in its place which cell's output carries it. The
# script ``shelf.js``, of which every panel has one, brings the two together.

_CARRIED = re.compile(r'<script type="text/plain" data-tm-code="([\w-]+)">([^<]+)</script>')
_END = "</section>"


@cache
def code(name: str, source: str, mount: str, *, beside: str = "") -> str:
    """Return the element that carries a piece of code.

    Args:
        name: What it is for: ``tensor``.
        source: JavaScript, its comments and indentation gone.
        mount: What of it is called with the panel, the function that unpacks, and the key.
        beside: What else makes this piece another one.
    """
    whole = f"{source}\nreturn {mount};"
    key = f"{name}-{zlib.crc32((whole + beside).encode()):08x}"
    return tag("script", packed(whole), type="text/plain", data_tm_code=key)


@cache
def code_of(name: str, *filenames: str, mount: str) -> str:
    """Return the element that carries files of ``static/``; see `code`."""
    return code(name, "\n".join(map(static, filenames)), mount)


@cache
def loader() -> str:
    """Return the script that a panel with code ends with."""
    return tag("script", f"(() => {{{static('shelf.js')}\nmountPanels(document.currentScript)}})()")


def with_loader(html: str) -> str:
    """Return a panel that ends with the one script which it, and all within it, needs."""
    return f"{html.replace(loader(), '').removesuffix(_END)}{loader()}{_END}"


def keys(html: str) -> frozenset[str]:
    """Return the keys of the pieces that an output carries."""
    return frozenset(elements(html))


def elements(html: str) -> dict[str, str]:
    """Return the elements that carry code in an output, by key."""
    return {match[1]: match[0] for match in _CARRIED.finditer(html)}


def lean(html: str, elsewhere: Mapping[str, int]) -> str:
    """Return an output without the pieces that another carries.

    Args:
        html: The output.
        elsewhere: The number of the cell whose output carries a piece, by key.
    """
    return _CARRIED.sub(lambda match: _pointer(match, elsewhere), html)


def once_each(html: str) -> str:
    """Return an output of several panels in which the first that needs a piece carries it for the others."""
    known: set[str] = set()

    def carried(match: re.Match[str]) -> str:
        if match[1] in known:
            return tag("script", type="text/plain", data_tm_code=match[1])
        known.add(match[1])
        return match[0]

    return _CARRIED.sub(carried, html)


def _pointer(match: re.Match[str], elsewhere: Mapping[str, int]) -> str:
    if match[1] not in elsewhere:
        return match[0]
    return tag("script", type="text/plain", data_tm_code=match[1], data_tm_cell=elsewhere[match[1]])
