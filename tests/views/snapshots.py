"""Exact snapshots in ``tests/snapshots``: a file a case, with the ending that opens it; texts of a panel in one.

``TENSORMAGIC_SNAPSHOTS=refresh pytest tests/views`` writes them anew; the difference is then read in
the commit. A stored panel is its markup and the data that are not packed: its style and its viewer have tests of their
own, and of a PNG the pixels count, because compressed bytes differ between builds of zlib.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import struct
import zlib
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "snapshots"
REFRESH = os.environ.get("TENSORMAGIC_SNAPSHOTS") == "refresh"


def assert_snapshot(filename: str, text: str) -> None:
    """Compare ``text`` with the stored file of that name, or store it where a refresh was asked for."""
    path = FOLDER / filename
    told = comparable(text) + "\n"
    if REFRESH:
        path.write_text(told, encoding="utf-8", newline="\n")
    assert path.exists(), f"no snapshot {filename}: run with TENSORMAGIC_SNAPSHOTS=refresh, and look at it"
    assert told.replace("><", ">\n<") == path.read_text(encoding="utf-8").replace("><", ">\n<")


def comparable(text: str) -> str:
    """Return what counts of an output: no style sheet, no viewer, PNGs as a hash of their pixels."""
    text = re.sub(r"<style>.*?</style>", "<style/>", text, flags=re.DOTALL)
    text = re.sub(r'<script(| type="text/plain"[^>]*)>.*?</script>', r"<script\1/>", text, flags=re.DOTALL)
    text = re.sub(r'(data-tm-code="\w+)-\w+', r"\1", text)
    return re.sub(r"data:image/png;base64,([A-Za-z0-9+/=]+)", lambda match: _pixel_hash(match[1]), text)


def _pixel_hash(encoded: str) -> str:
    width, height, rows = pixels(encoded)
    return f"png {width}x{height} {hashlib.sha256(b''.join(rows)).hexdigest()[:16]}"


def pixels(encoded: str) -> tuple[int, int, list[bytes]]:
    """Return width, height and rows of palette places of a PNG of one byte a pixel without filters."""
    data = base64.b64decode(encoded)
    width, height = struct.unpack(">II", data[16:24])
    at, packed = 8, b""
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        packed += data[at + 8 : at + 8 + size] if data[at + 4 : at + 8] == b"IDAT" else b""
        at += size + 12
    raw = zlib.decompress(packed)
    return width, height, [raw[y * (width + 1) + 1 : (y + 1) * (width + 1)] for y in range(height)]
