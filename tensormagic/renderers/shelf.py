"""The code that the panels of a page share: each piece has a key, and lies packed in an element that runs nothing.

An output by itself carries every piece it needs. In a notebook, whose outputs lie on one page, a piece need not be
there twenty times: `lean` takes it out of an output, and writes in its place which cell's output carries it. The
script ``shelf.js``, of which every panel has one, brings the two together.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from functools import cache

from tensormagic.renderers.assets import static
from tensormagic.renderers.basics.markup import packed, tag

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
