"""From a snapshot file to plain dictionaries and lists, without importing or calling anything that the file names."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from tensormagic.collectors.snapshots.opcodes import check_opcodes
from tensormagic.errors import SnapshotError
from tensormagic.words import number_of_bytes

MOST_BYTES = 2**31

_OTHERS = (  # how files begin that people take for a snapshot, and what they are
    (b"\x1f\x8b", "it is gzip-compressed: unpack it first, `gunzip FILE`"),
    (b"PK\x03\x04", "it is a zip archive, as torch.save writes, and no snapshot of memory"),
    (b'{"tensormagic"', "it is a report saved by tensormagic: `tensormagic.SnapshotReport.load(FILE)` reads it"),
    (b"<", "it is a page, not a pickle"),
)  # fmt: skip


class _PlainUnpickler(pickle.Unpickler):
    """Loads plain data. What `check_opcodes` let through asks for nothing else; this holds even if it did."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise SnapshotError(f"refused: it wants to import {module}.{name}. A snapshot is plain data only")

    def persistent_load(self, given: Any) -> NoReturn:
        raise SnapshotError(f"refused: it wants an object from outside the file ({given!r:.80})")


def read_file(path: str | os.PathLike[str], *, most_bytes: int = MOST_BYTES) -> tuple[Any, int]:
    """Return what the pickle in the file holds, and its length in bytes.

    Raises:
        SnapshotError: where there is no such file, it is no pickle, damaged, too large, or more than plain data; the
            message names the file.
    """
    try:
        data = _bytes_of(Path(path).expanduser(), most_bytes)
        return load(data), len(data)
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
        raise SnapshotError(f"it is damaged: {type(error).__name__}: {error}") from None


def _bytes_of(path: Path, most_bytes: int) -> bytes:
    try:
        if path.is_dir():
            raise SnapshotError("it is a folder")
        size = path.stat().st_size
        if size > most_bytes:
            raise SnapshotError(
                f"it has {number_of_bytes(size)}, and at most {number_of_bytes(most_bytes)} are read; record fewer "
                "events, with `torch.cuda.memory._record_memory_history(max_entries=100_000)`"
            )
        with path.open("rb") as file:
            data = file.read(most_bytes + 1)
    except OSError as error:
        raise SnapshotError(error.strerror or str(error)) from None
    _check_beginning(data)
    return data


def _check_beginning(data: bytes) -> None:
    if not data:
        raise SnapshotError("it is empty")
    told = next((told for begins, told in _OTHERS if data.lstrip()[: len(begins)] == begins), "")
    if not told and data.lstrip()[:1] in {b"{", b'"'}:
        told = "it looks like JSON; a snapshot is a pickle"
    if told:
        raise SnapshotError(told)


def plain_data(given: str | os.PathLike[str] | Mapping[str, Any] | list[Any]) -> tuple[Any, str, int]:
    """Return the data of a file, or of what ``torch.cuda.memory._snapshot()`` returned; the file's name and length."""
    if isinstance(given, str | os.PathLike):
        data, size = read_file(given)
        return data, Path(os.fspath(given)).name, size
    return given, "", 0
