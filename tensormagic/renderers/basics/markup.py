"""The one place where text becomes markup: everything a person or a tensor can say is escaped here.

``escape`` is for element text and quoted attributes alike. ``json_block`` is for data inside a ``<script>``: in
there HTML escaping does not apply, but ``</script>`` and ``<!--`` must never appear. What is invisible is written out
by `plain_text`.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
from typing import Any

from tensormagic.renderers.basics.plain_text import visible

_WORTH_WAITING = 500_000  # characters, packed as small as can be
_UNSAFE_IN_SCRIPT = re.compile("[<>\u2028\u2029\ud800-\udfff]")
_ATTRIBUTE = re.compile('="([^"\']*)"')
_PERCENT = {ord(letter): f"%{ord(letter):02X}" for letter in '%<#"&\n\r\t'}


def escape(text: object) -> str:
    """Return ``text`` safe for element content and for quoted attribute values."""
    words = str(text)
    return html.escape(words if words.isascii() and words.isprintable() else visible(words), quote=True)


def attributes(**pairs: object) -> str:
    """Return `` name="value"`` for every pair that is not None; ``_`` in a name becomes ``-`` (``class_`` → class)."""
    named = ((name.rstrip("_").replace("_", "-"), value) for name, value in pairs.items())
    return "".join(f' {name}="{escape(value)}"' for name, value in named if value is not None)


def tag(name: str, *content: str, **pairs: object) -> str:
    """Return an element around ``content`` (markup already); attribute values are escaped."""
    return f"<{name}{attributes(**pairs)}>{''.join(content)}</{name}>"


def corner(words: str, **pairs: object) -> str:
    """Return a head cell above other heads: nothing to see, ``words`` for who has the table read out."""
    return tag("th", tag("span", escape(words), class_="tm-sr"), **pairs)


def json_block(data: Any) -> str:
    """Return ``data`` as JSON that can stand inside a ``<script>`` element."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    return _UNSAFE_IN_SCRIPT.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def packed(text: str) -> str:
    """Return ``text`` gzipped, in base 64: a browser unpacks it by itself.

    The gzip header carries no time stamp: the same text packs to the same bytes.
    """
    level = 9 if len(text) < _WORTH_WAITING else 6  # of a long text: 3 % more bytes in a seventh of the time
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=level, mtime=0)).decode("ascii")


def unpacked(text: str) -> str:
    """Return what `packed` packed."""
    return gzip.decompress(base64.b64decode(text)).decode()


def svg_data_uri(svg: str) -> str:
    """Return an ``<img src>`` that draws ``svg`` in any host, sanitised ones included; for a double-quoted attribute.

    Only what would end the attribute or the address is written in percent: a quarter less than base 64.
    """
    single = _ATTRIBUTE.sub(r"='\1'", svg.strip())
    return "data:image/svg+xml," + in_address(single)


def in_address(text: str) -> str:
    """Return ``text`` as it stands in what `svg_data_uri` returns."""
    return text.translate(_PERCENT)


def svg_image(svg: str, alt: str, **pairs: object) -> str:
    """Return an ``<img>`` that draws ``svg``; ``alt`` says what is to be seen."""
    return f'<img{attributes(**pairs, alt=alt)} src="{svg_data_uri(svg)}">'
