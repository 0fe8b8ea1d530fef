"""From a snapshot file to plain dictionaries and lists, without importing or calling anything that it names.

A snapshot may come from any version of torch, from another program, or from someone who means harm.
"""

from __future__ import annotations

import io
import os
import pickle
import pickletools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from tensormagic.errors import SnapshotError
from tensormagic.words import error_text, number_of_bytes

# One field of a snapshot's dictionaries: of the type that it should have, or a default; never an exception.

LARGEST = 2**63  # no size, address or time is larger


def whole(given: Any, key: str, default: int = 0) -> int:
    """Return a whole number, between minus and plus `LARGEST`."""
    value = given.get(key, default)
    return value if type(value) is int and -LARGEST <= value <= LARGEST else default


def size(given: Any, key: str) -> int:
    """Return a number of bytes; 0 where there is none, or a negative one."""
    return max(whole(given, key), 0)


def word(given: Any, key: str) -> str:
    """Return a text of at most 500 characters; empty where there is none."""
    value = given.get(key)
    return value[:500] if isinstance(value, str) else ""


def entries(given: Any) -> list[Any]:
    """Return what should be a list; empty where it is none."""
    return given if isinstance(given, list) else []


def dictionaries(given: Any) -> Iterator[dict[Any, Any]]:
    """Yield the dictionaries of what should be a list of them."""
    return (one for one in entries(given) if isinstance(one, dict))


# A pickle is a program. Loading one can import any module and call anything in it. What ``pickle`` writes for plain
# data needs only the operations listed here; every other one is refused by name, with the byte at which it stands,
# before anything is loaded. So are the ways to make a small file fill the memory: lengths beyond the file's end, memo
# numbers far beyond what was stored (the loader makes room for all of them), numbers of thousands of digits, and many
# more containers than a snapshot of that length can have.

LONGEST_NUMBER = 128  # bits: addresses and times need 64
BYTES_A_CONTAINER = 6  # a snapshot spends more than this on each dictionary and list
SPARE_CONTAINERS = 1000

_CONTAINERS = {
    "EMPTY_DICT", "DICT", "EMPTY_LIST", "LIST", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_SET", "FROZENSET",
}  # fmt: skip
_ALLOWED = _CONTAINERS | {
    "STOP", "MARK", "MEMOIZE", "PROTO", "FRAME", "NONE", "NEWTRUE", "NEWFALSE", "BININT1", "BININT2", "BININT", "INT",
    "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "SETITEM", "SETITEMS", "APPEND", "APPENDS", "EMPTY_TUPLE",
    "ADDITEMS", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8",
    "GET", "BINGET", "LONG_BINGET", "PUT", "BINPUT", "LONG_BINPUT",
}  # fmt: skip
_IMPORTS = {"GLOBAL", "INST", "STACK_GLOBAL"}
_NAMES = {ord(opcode.code): opcode.name for opcode in pickletools.opcodes}

# A run of the operations that most of a snapshot is made of, passed over in one step: those of a fixed length that
# can neither harm nor grow. The first byte tells them apart, so that this reads exactly what a loader would.
_RUN = re.compile(rb"(?:[(Nuesa\x88\x89\x94]|[Kh].|M..|[Jj].{4}|\x8a\x06.{6}|\x8a\x07.{7}|G.{8}){1,1000}", re.DOTALL)


class _PlainUnpickler(pickle.Unpickler):
    """Loads plain data. What `check_opcodes` let through asks for nothing else; this holds even if it did."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise SnapshotError(f"it wants to import {ascii(module[:100])[1:-1]}.{ascii(name[:100])[1:-1]}")

    def persistent_load(self, given: Any) -> NoReturn:
        raise SnapshotError(f"it wants an object from outside the file ({given!r:.80})")


def check_opcodes(data: bytes) -> None:
    """Raise SnapshotError where ``data`` is not a whole pickle of plain data."""
    stream, containers, length = io.BytesIO(data), 0, len(data)
    while True:
        if (run := _RUN.match(data, stream.tell())) is not None:
            stream.seek(run.end())
        at = stream.tell()
        name = _NAMES.get(data[at], "") if at < length else ""
        if name and name not in _ALLOWED:
            raise SnapshotError(f"refused at byte {at}: {_wanted(data, name)}. A snapshot is plain data only")
        try:
            argument: Any = next(pickletools.genops(stream))[1]
        except ValueError as error:
            raise SnapshotError(f"it is no pickle, damaged, or cut short at byte {at}: {error}") from None
        if name == "STOP":
            return
        containers += name in _CONTAINERS
        if containers > SPARE_CONTAINERS + length // BYTES_A_CONTAINER:
            raise SnapshotError(
                f"refused at byte {at}: {containers} dictionaries, lists and tuples in a file of {length} bytes; "
                "no snapshot is made like that, and loading it could fill the memory"
            )
        if isinstance(argument, int) and argument.bit_length() > LONGEST_NUMBER:
            raise SnapshotError(f"refused at byte {at}: a number of {argument.bit_length()} bits; sizes have 64")
        if name in {"PUT", "LONG_BINPUT"} and argument > at:
            raise SnapshotError(f"refused at byte {at}: it asks for place {argument} of a memo that holds less")


def _wanted(data: bytes, name: str) -> str:
    """Return what the first operation that is not allowed would do: ``"it wants to import os.system"``."""
    if name not in _IMPORTS:
        return f"it uses {name}, which no snapshot needs"
    try:  # what stands before it is plain data, and it imports nothing
        return str(_PlainUnpickler(io.BytesIO(data)).load())
    except SnapshotError as error:
        return str(error)
    except Exception:
        return "it wants to import something"


MOST_BYTES = 2**31

_OTHERS = (  # how files begin that people take for a snapshot, and what they are
    (b"\x1f\x8b", "it is gzip-compressed: unpack it first, `gunzip FILE`"),
    (b"PK\x03\x04", "it is a zip archive, as torch.save writes, not a memory snapshot"),
    (b'{"tensormagic"', "it is a report saved by tensormagic: `tensormagic.SnapshotReport.load(FILE)` reads it"),
    (b"<", "it is a page, not a pickle"),
    (b"{", "it looks like JSON; a snapshot is a pickle"),
    (b'"', "it looks like JSON; a snapshot is a pickle"),
)  # fmt: skip


def read_file(path: str | os.PathLike[str], *, most_bytes: int = MOST_BYTES) -> Any:
    """Return what the pickle in the file holds.

    Raises:
        SnapshotError: where there is no such file, it is no pickle, damaged, too large, or more than plain data; the
            message names the file.
    """
    try:
        return load(_bytes_of(Path(path).expanduser(), most_bytes))
    except (OSError, ValueError, SnapshotError) as error:  # ValueError: a NUL in its name
        told = (isinstance(error, OSError) and error.strerror) or error
        raise SnapshotError(f"cannot read {os.fspath(path)!r} as a memory snapshot: {told}") from None


def load(data: bytes) -> Any:
    """Return the plain data that a pickle holds.

    Raises:
        SnapshotError: where it is none, damaged, or more than plain data.
    """
    try:
        check_opcodes(data)
        return _PlainUnpickler(io.BytesIO(data)).load()
    except SnapshotError:
        raise
    except MemoryError:
        raise SnapshotError("there is not enough memory to load it") from None
    except Exception as error:  # a damaged pickle can end in almost any of them
        raise SnapshotError(f"it is damaged: {error_text(error)}") from None


def _bytes_of(path: Path, most_bytes: int) -> bytes:
    if path.is_dir():
        raise SnapshotError("it is a folder")
    if path.exists() and not path.is_file():  # of a pipe nobody may ever write into
        raise SnapshotError("it is not a file")
    length = path.stat().st_size
    if length > most_bytes:
        raise SnapshotError(
            f"it has {number_of_bytes(length)}, but at most {number_of_bytes(most_bytes)} can be read; record fewer "
            "events, with `torch.cuda.memory._record_memory_history(max_entries=100_000)`"
        )
    with path.open("rb") as file:
        data = file.read(most_bytes + 1)
    if not data:
        raise SnapshotError("it is empty")
    begin = data.lstrip()[:20]
    if described := next((described for begins, described in _OTHERS if begin.startswith(begins)), ""):
        raise SnapshotError(described)
    return data
