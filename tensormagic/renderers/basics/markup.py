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
_BASE_85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_UNSAFE_IN_SCRIPT = re.compile("[<>\u2028\u2029\ud800-\udfff]")
_ATTRIBUTE = re.compile('="([^"\']*)"')
_PERCENT = {ord(letter): f"%{ord(letter):02X}" for letter in '%<#"&\n\r\t'}
_SAFE = str.maketrans("<&>", ",.:")  # of the 85 characters the three that mean something in a page
_UNSAFE = str.maketrans(",.:", "<&>")


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
    """Return ``text`` gzipped, in 85 characters that mean nothing in a script or in JSON: unpack.js reads it.

    Base 85 takes 6 % less than base 64. The gzip header carries no time stamp: the same text packs to the same bytes.
    """
    level = 9 if len(text) < _WORTH_WAITING else 6  # of a long text: 3 % more bytes in a seventh of the time
    small = gzip.compress(text.encode(), compresslevel=level, mtime=0)
    written = base64.b85encode(small) if len(text) < _WORTH_WAITING else _base85(small)
    return written.decode("ascii").translate(_SAFE)


def bunched(text: str) -> str:
    """Return ``text`` packed by bzip2, in the same characters: code of 100 KB takes a tenth less than gzipped.

    No browser undoes it by itself: ``unbunch.js`` does, once a page, in some 45 ms while it is still interpreted.
    Where Python was built without bzip2, which its documentation calls optional, it is packed as always, and nothing
    is gained.
    """
    try:
        import bz2
    except ImportError:
        return packed(text)
    return base64.b85encode(bz2.compress(text.encode())).decode("ascii").translate(_SAFE)


def _base85(data: bytes) -> bytes:
    """Return what `base64.b85encode` does, which takes fifteen times as long."""
    import numpy as np  # a thirtieth of a second, that only what is long should cost

    missing = -len(data) % 4
    rest = np.frombuffer(data + bytes(missing), ">u4").astype(np.uint32)
    digits = np.empty((len(rest), 5), np.uint8)
    for place in range(4, -1, -1):
        rest, digits[:, place] = np.divmod(rest, np.uint32(85))
    written = np.frombuffer(_BASE_85, np.uint8)[digits].tobytes()
    return written[: len(written) - missing]


def unpacked(text: str) -> str:
    """Return what `packed` packed."""
    return gzip.decompress(base64.b85decode(text.translate(_UNSAFE))).decode()


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
