"""Looks through a pickle before it is loaded: plain data and nothing else, and no more memory than its length warrants.

A pickle is a program. Loading one can import any module and call anything in it. What ``pickle`` writes for plain
data needs only the operations listed here; every other one (``GLOBAL``, ``REDUCE``, ``BUILD``, ``EXT1``, persistent
ids, …) is refused by name, with the byte at which it stands. So are the ways to make a small file fill the memory:
lengths beyond the file's end, memo numbers far beyond what was stored (the loader makes room for all of them), numbers
of thousands of digits, and many more containers than a snapshot of that length can have.

The format: ``pickletools`` in the standard library, and PEP 307, 3154 and 574.
"""

from __future__ import annotations

import pickletools
import re
from typing import Literal

from tensormagic.collectors.snapshots.refusals import wanted
from tensormagic.errors import SnapshotError

LONGEST_NUMBER = 16  # bytes, or four times as many digits: addresses and times need eight
BYTES_A_CONTAINER = 6  # a snapshot spends more than this on each dictionary and list
SPARE_CONTAINERS = 1000

Follows = Literal["fixed", "counted", "line"]

# What follows each operation: so many bytes; a length of so many bytes, and as many bytes as that says; or a line.
_ALLOWED: dict[str, tuple[Follows, int]] = {
    **dict.fromkeys(
        (
            "STOP", "MARK", "MEMOIZE", "NONE", "NEWTRUE", "NEWFALSE",
            "EMPTY_DICT", "DICT", "SETITEM", "SETITEMS", "EMPTY_LIST", "LIST", "APPEND", "APPENDS",
            "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_SET", "ADDITEMS", "FROZENSET",
        ),
        ("fixed", 0),
    ),
    "PROTO": ("fixed", 1), "FRAME": ("fixed", 8),
    "BININT1": ("fixed", 1), "BININT2": ("fixed", 2), "BININT": ("fixed", 4), "BINFLOAT": ("fixed", 8),
    "LONG1": ("counted", 1), "LONG4": ("counted", 4), "INT": ("line", 0), "LONG": ("line", 0), "FLOAT": ("line", 0),
    "SHORT_BINUNICODE": ("counted", 1), "BINUNICODE": ("counted", 4), "BINUNICODE8": ("counted", 8),
    "SHORT_BINBYTES": ("counted", 1), "BINBYTES": ("counted", 4), "BINBYTES8": ("counted", 8), "UNICODE": ("line", 0),
    "BINGET": ("fixed", 1), "LONG_BINGET": ("fixed", 4), "GET": ("line", 0),
    "BINPUT": ("fixed", 1), "LONG_BINPUT": ("fixed", 4), "PUT": ("line", 0),
}  # fmt: skip
_NUMBERS = {"LONG1", "LONG4", "INT", "LONG", "FLOAT", "GET", "PUT"}
_CONTAINERS = {
    "EMPTY_DICT", "DICT", "EMPTY_LIST", "LIST", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_SET", "FROZENSET",
}  # fmt: skip

_NAMES = {ord(opcode.code): opcode.name for opcode in pickletools.opcodes}
_STOP = next(code for code, name in _NAMES.items() if name == "STOP")

# A run of the operations that most of a snapshot is made of, passed over in one step: those of a fixed length that
# can neither harm nor grow. The first byte tells them apart, so that this reads exactly what a loader would.
_RUN = re.compile(rb"(?:[(Nuesa\x88\x89\x94]|[Kh].|M..|[Jj].{4}|\x8a\x06.{6}|\x8a\x07.{7}|G.{8}){1,1000}", re.DOTALL)


def check_opcodes(data: bytes) -> None:
    """Raise SnapshotError where ``data`` is not a whole pickle of plain data."""
    at, containers, size = 0, 0, len(data)
    most = SPARE_CONTAINERS + size // BYTES_A_CONTAINER
    while True:
        run = _RUN.match(data, at)
        at = run.end() if run is not None else at
        if at >= size:
            raise _cut_short(size)
        if data[at] == _STOP:
            return
        name = _name_at(data, at)
        containers += name in _CONTAINERS
        if containers > most:
            raise SnapshotError(
                f"refused at byte {at}: {containers} dictionaries, lists and tuples in a file of {size} bytes; "
                "no snapshot is made like that, and loading it could fill the memory"
            )
        at = _end_of(data, at, name)


def _name_at(data: bytes, at: int) -> str:
    name = _NAMES.get(data[at])
    if name is None:
        raise SnapshotError(f"this is no pickle: byte {at} is {data[at]:#04x}, which means nothing there")
    if name not in _ALLOWED:
        raise SnapshotError(f"refused at byte {at}: {wanted(data, at, name)}. A snapshot is plain data only")
    return name


def _end_of(data: bytes, at: int, name: str) -> int:
    """Return where the next operation begins."""
    follows, length = _ALLOWED[name]
    if follows == "line":
        end = data.find(b"\n", at)
        if end < 0:
            raise _cut_short(len(data))
        start, stop = at + 1, end + 1
    else:
        start = at + 1 + (length if follows == "counted" else 0)
        stop = start + (int.from_bytes(data[at + 1 : start], "little") if follows == "counted" else length)
    if stop > len(data):
        raise _cut_short(len(data), at, stop - start)
    _check_number(data, at, start, stop)
    return stop


def _check_number(data: bytes, at: int, start: int, stop: int) -> None:
    """Raise SnapshotError for a number that is too long, or that asks for a memo of more places than there are."""
    name, length = _NAMES[data[at]], stop - start
    if name in _NUMBERS and length > LONGEST_NUMBER * (4 if _ALLOWED[name][0] == "line" else 1):
        raise SnapshotError(f"refused at byte {at}: a number of {length} bytes; sizes and addresses have eight")
    if name in {"LONG_BINPUT", "PUT"}:
        place = _place(data[start:stop], text=name == "PUT")
        if place > at:
            raise SnapshotError(f"refused at byte {at}: it asks for place {place} of a memo that holds less than {at}")


def _place(given: bytes, *, text: bool) -> int:
    try:
        return int(given) if text else int.from_bytes(given, "little")
    except ValueError:
        return 0  # the loader says that it is no number


def _cut_short(size: int, at: int | None = None, length: int = 0) -> SnapshotError:
    if at is None:
        return SnapshotError(f"the file is cut short: it ends after {size} bytes, in the middle of its data")
    return SnapshotError(
        f"the file is cut short, or not what it says: at byte {at} it announces {length} bytes, but ends at byte {size}"
    )
