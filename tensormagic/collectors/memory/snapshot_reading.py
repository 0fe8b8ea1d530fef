"""From a snapshot file to plain dictionaries and lists, without importing or calling anything that it names."""

from __future__ import annotations

import io
import os
import pickle
import pickletools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NoReturn

from tensormagic.errors import SnapshotError
from tensormagic.words import error_text, number_of_bytes

# Reads one field of a snapshot's dictionaries: the type that it should have, or a default; never an exception.
#
# A snapshot may come from any version of torch, from another program, or from someone who means harm.

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


# Says in words what a pickle wanted that is no plain data: which module and name, or which kind of thing.

_LOOKED_THROUGH = 2**22  # bytes before an import that are searched for its name
_LONGEST_NAME = 100

_WANTED = {
    "REDUCE": "it wants to call a function",
    **dict.fromkeys(("OBJ", "NEWOBJ", "NEWOBJ_EX"), "it wants to make an object of a class"),
    "BUILD": "it wants to set the state of an object",
    **dict.fromkeys(("PERSID", "BINPERSID"), "it wants an object from outside the file (a persistent id)"),
    **dict.fromkeys(("EXT1", "EXT2", "EXT4"), "it wants an object from copyreg's registry of extensions"),
    **dict.fromkeys(("NEXT_BUFFER", "READONLY_BUFFER"), "it wants a buffer from outside the file"),
}


def wanted(data: bytes, at: int, name: str) -> str:
    """Return what the operation ``name`` at byte ``at`` would do: ``"it wants to import os.system"``."""
    if name in {"GLOBAL", "INST"}:
        module, attribute, *_ = [*data[at + 1 : at + 1 + 4 * _LONGEST_NAME].split(b"\n"), b"?"]
        return f"it wants to import {_shown(module)}.{_shown(attribute)}"
    if name == "STACK_GLOBAL":
        return f"it wants to import {_imported(data, at)}"
    return _WANTED.get(name, f"it uses {name}, which no snapshot needs")


def _shown(name: bytes) -> str:
    return ascii(name[:_LONGEST_NAME].decode("utf-8", "replace"))[1:-1]


def _imported(data: bytes, at: int) -> str:
    """Return the two names that lie on top of the stack at byte ``at``: module and attribute."""
    if at > _LOOKED_THROUGH:
        return "something (too far into the file to look up its name)"
    memo: dict[object, object] = {}
    stack: list[object] = []
    for opcode, argument, place in pickletools.genops(data[: at + 1]):
        if place == at:
            break
        if opcode.name == "MEMOIZE":
            memo[len(memo)] = stack[-1] if stack else "?"
        elif opcode.name in {"BINGET", "LONG_BINGET"}:
            stack.append(memo.get(argument, "?"))
        elif opcode.stack_after:
            stack.append(argument)
    names = ["?", "?", *(each for each in stack if isinstance(each, str))][-2:]
    return ".".join(_shown(each.encode()) for each in names)


# Looks through a pickle before it is loaded: plain data and nothing else, and no more memory than its length
# warrants.
#
# A pickle is a program. Loading one can import any module and call anything in it. What ``pickle`` writes for plain
# data needs only the operations listed here; every other one (``GLOBAL``, ``REDUCE``, ``BUILD``, ``EXT1``, persistent
# ids, …) is refused by name, with the byte at which it stands. So are the ways to make a small file fill the memory:
# lengths beyond the file's end, memo numbers far beyond what was stored (the loader makes room for all of them),
# numbers of thousands of digits, and many more containers than a snapshot of that length can have.
#
# The format: ``pickletools`` in the standard library, and PEP 307, 3154 and 574.

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
        raise SnapshotError(f"this is not a pickle: byte {at} is {data[at]:#04x}, which is not valid there")
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
        f"the file is cut short or damaged: at byte {at} it announces {length} bytes, but it ends at byte {size}"
    )


# From a snapshot file to plain dictionaries and lists, without importing or calling anything that the file names.

MOST_BYTES = 2**31

_OTHERS = (  # how files begin that people take for a snapshot, and what they are
    (b"\x1f\x8b", "it is gzip-compressed: unpack it first, `gunzip FILE`"),
    (b"PK\x03\x04", "it is a zip archive, as torch.save writes, not a memory snapshot"),
    (b'{"tensormagic"', "it is a report saved by tensormagic: `tensormagic.SnapshotReport.load(FILE)` reads it"),
    (b"<", "it is a page, not a pickle"),
)  # fmt: skip


class _PlainUnpickler(pickle.Unpickler):
    """Loads plain data. What `check_opcodes` let through asks for nothing else; this holds even if it did."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise SnapshotError(f"refused: it wants to import {module}.{name}. A snapshot is plain data only")

    def persistent_load(self, given: Any) -> NoReturn:
        raise SnapshotError(f"refused: it wants an object from outside the file ({given!r:.80})")


def read_file(path: str | os.PathLike[str], *, most_bytes: int = MOST_BYTES) -> Any:
    """Return what the pickle in the file holds.

    Raises:
        SnapshotError: where there is no such file, it is no pickle, damaged, too large, or more than plain data; the
            message names the file.
    """
    try:
        return load(_bytes_of(Path(path).expanduser(), most_bytes))
    except SnapshotError as error:
        raise SnapshotError(f"cannot read {os.fspath(path)!r} as a memory snapshot: {error}") from None


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
    try:
        if path.is_dir():
            raise SnapshotError("it is a folder")
        if path.exists() and not path.is_file():  # of a pipe nobody may ever write into
            raise SnapshotError("it is not a file")
        size = path.stat().st_size
        if size > most_bytes:
            raise SnapshotError(
                f"it has {number_of_bytes(size)}, but at most {number_of_bytes(most_bytes)} can be read; record fewer "
                "events, with `torch.cuda.memory._record_memory_history(max_entries=100_000)`"
            )
        with path.open("rb") as file:
            data = file.read(most_bytes + 1)
    except OSError as error:
        raise SnapshotError(error.strerror or str(error)) from None
    except ValueError as error:  # a NUL in its name
        raise SnapshotError(str(error)) from None
    _check_beginning(data)
    return data


def _check_beginning(data: bytes) -> None:
    if not data:
        raise SnapshotError("it is empty")
    described = next((described for begins, described in _OTHERS if data.lstrip()[: len(begins)] == begins), "")
    if not described and data.lstrip()[:1] in {b"{", b'"'}:
        described = "it looks like JSON; a snapshot is a pickle"
    if described:
        raise SnapshotError(described)
