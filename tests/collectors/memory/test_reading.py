"""Snapshot files are read as plain data: what they name is never imported, what they call is never called."""

from __future__ import annotations

import collections
import copyreg
import gzip
import io
import json
import os
import pickle
import pickletools
import struct
import sys
import tracemalloc

import pytest
import torch
from hypothesis import given, settings, strategies as some

from tensormagic import SnapshotError
from tensormagic.collectors.memory.snapshot_reading import load, read_file
from tests.support.snapshot_writer import ToyAllocator, stack

CALLED: list[str] = []


def sentinel(*given: object) -> str:
    """Note that someone called."""
    CALLED.append(str(given))
    return "called"


class Reduces:
    """Pickles as a call of the sentinel."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        """Return what to call."""
        return sentinel, ("reduced",)


class Stateful:
    """Pickles with a state to set."""

    def __setstate__(self, state: object) -> None:
        """Note that a state was set."""
        sentinel(state)

    def __getstate__(self) -> dict[str, int]:
        """Return a state."""
        return {"x": 1}


class Asks(pickle.Pickler):
    """Writes persistent ids for text."""

    def persistent_id(self, obj: object) -> object:
        """Return an id for text."""
        return ("outside", [1]) if obj == "here" else None


def asking() -> bytes:
    """Return a pickle with a persistent id."""
    file = io.BytesIO()
    Asks(file, protocol=4).dump({"segments": ["here"]})
    return file.getvalue()


HOSTILE = {
    "os.system": (pickle.dumps(os.system), r"posix\.system|nt\.system"),
    "eval, protocol 0": (pickle.dumps(eval, 0), r"__builtin__\.eval"),
    "eval, by name": (b"cbuiltins\neval\n(S'1+1'\ntR.", r"byte 0: it wants to import builtins\.eval"),
    "eval, by INST": (b"(S'1+1'\nibuiltins\neval\n.", r"STRING"),
    "a call": (pickle.dumps({"segments": [Reduces()]}), r"test_reading\.sentinel"),
    "a state": (pickle.dumps([Stateful()]), r"copyreg\._reconstructor|test_reading\.Stateful"),
    "a chain of calls": (pickle.dumps([collections.OrderedDict(a=Reduces())]), r"collections\.OrderedDict"),
    "a tensor": (pickle.dumps({"segments": [torch.ones(2)]}), r"torch\._utils\._rebuild_tensor_v2"),
    "a persistent id": (asking(), "it uses BINPERSID"),
    "a textual persistent id": (b"Psome-id\n.", "byte 0: it uses PERSID"),
    "an extension": (b"\x80\x02\x82\x07.", "byte 2: it uses EXT1"),
    "an extension of four bytes": (b"\x80\x02\x84\x07\x00\x00\x00.", "it uses EXT4"),
    "a module with line ends": (b"cos\x1b[31m\nsystem\n.", r"os\\x1b\[31m\.system"),
    "a bytearray": (pickle.dumps(bytearray(b"x"), 5), "BYTEARRAY8"),
    "an outside buffer": (b"\x80\x05\x97.", "it uses NEXT_BUFFER"),
    "a name in the memo": (
        b"\x80\x04\x8c\x02os\x94\x8c\x06system\x940h\x00h\x01\x93.",
        "refused at byte 16: it uses POP",
    ),
    "names fetched from the memo": (
        b"\x80\x04\x8c\x02os\x94\x8c\x06system\x94\x85h\x00h\x01\x93.",
        r"byte 21: it wants to import os\.system",
    ),
    "a bare call": (b"\x80\x02)R.", "byte 3: it uses REDUCE"),
    "a built object": (b"\x80\x02}}b.", "byte 4: it uses BUILD"),
    "a duplicate": (b"\x80\x02]2.", "DUP"),
}

BOMBS = {
    "a text of 2⁶⁰ bytes": b"\x80\x04\x8d" + struct.pack("<Q", 2**60) + b"x.",
    "bytes of 2⁶³ bytes": b"\x80\x04\x8e" + struct.pack("<Q", 2**63) + b"x.",
    "a frame of 2⁶⁰ bytes": b"\x80\x04\x95" + struct.pack("<Q", 2**60) + b"N",
    "a text of 4 GiB": b"\x80\x04X" + struct.pack("<I", 2**32 - 1) + b"x.",
    "a number of 2 GiB": b"\x80\x04\x8b" + struct.pack("<I", 2**31 - 1) + b"x.",
    "a number of 10⁶ bytes": b"\x80\x04\x8b" + struct.pack("<I", 10**6) + b"x" * 10**6 + b".",
    "a number of 10⁶ digits": b"I" + b"9" * 10**6 + b"\n.",
    "a long of 10⁶ digits": b"L" + b"9" * 10**6 + b"L\n.",
    "a memo of 2³¹ places": b"\x80\x04Nr" + struct.pack("<I", 2**31) + b".",
    "a memo of 2³¹ places, as text": b"\x80\x04Np2147483648\n.",
    "very many dictionaries": b"\x80\x04" + b"}" * 10**6 + b".",
    "very many tuples": b"\x80\x04N" + b"\x85" * 10**6 + b".",
    "a text that never ends": b"V" + b"x" * 10**5,
    "nothing but marks": b"(" * 10**5,
    "no stop": b"\x80\x04N",
    "half a number": b"\x80\x04J\x01\x02",
    "an unknown memo": b"\x80\x04h\x07.",
    "an unhashable key": b"\x80\x04}(]Nu.",
    "text that is none": b"\x80\x04\x8c\x02\xff\xff.",
    "a set of sets": b"\x80\x04\x8f(\x8f\x90.",
    "an empty stack": b"\x80\x04.",
    "a protocol of the future": b"\x80\x63N.",
    "a number that is none": b"Ix\n.",
    "a memo place that is none": b"Npx\n.",
    "a memo place below zero": b"Np-1\n.",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_more_than_plain_data_is_refused_by_name(case):
    """Nothing is imported or called, and the error says what was wanted and at which byte."""
    data, told = HOSTILE[case]
    modules, CALLED[:] = set(sys.modules), []
    with pytest.raises(SnapshotError, match=f"refused at byte .*{told}|{told}"):
        load(data)
    assert not CALLED
    assert set(sys.modules) == modules


def test_a_registered_extension_is_not_used():
    """An extension that is registered, and cached by an earlier load, is refused like every other."""
    copyreg.add_extension(__name__, "sentinel", 0x7FFF)
    try:
        data = pickle.dumps(Reduces(), 2)
        pickle.loads(data)
        assert CALLED
        CALLED[:] = []
        with pytest.raises(SnapshotError, match="it uses EXT2"):
            load(data)
        assert not CALLED
    finally:
        copyreg.remove_extension(__name__, "sentinel", 0x7FFF)


@pytest.mark.parametrize("case", BOMBS)
def test_bombs_and_ruins_are_errors_and_need_no_memory(case):
    """A file that announces more than it has, or wants room for nothing, ends in an error and needs no memory."""
    data = BOMBS[case]
    tracemalloc.start()
    with pytest.raises(SnapshotError):
        load(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4_000_000 + 10 * len(data)


def test_every_operation_that_makes_objects_is_refused_before_anything_is_loaded():
    """Of all that Python's pickle knows, what imports, calls, builds or fetches is refused at its byte."""
    reaching = [
        opcode for opcode in pickletools.opcodes
        if opcode.name.endswith(("GLOBAL", "PERSID", "_BUFFER"))
        or opcode.name.startswith(("EXT", "NEWOBJ", "DUP", "POP"))
        or opcode.name in {"INST", "OBJ", "REDUCE", "BUILD", "BYTEARRAY8"}
    ]  # fmt: skip
    assert len(reaching) == 19
    for opcode in reaching:
        with pytest.raises(SnapshotError, match=r"refused at byte 2: it (wants|uses)"):
            load(b"\x80\x04" + opcode.code.encode("latin-1") + b"\n" * 12 + b".")


PLAIN = some.recursive(
    some.none() | some.booleans() | some.integers(-(2**63), 2**63) | some.floats(allow_nan=False) | some.text()
    | some.binary(),
    lambda inner: some.lists(inner) | some.dictionaries(some.text(), inner) | some.tuples(inner, inner)
    | some.frozensets(some.integers()),
    max_leaves=12,
)  # fmt: skip


@given(PLAIN, some.integers(0, 5))
@settings(max_examples=150, deadline=None)
def test_plain_data_is_read_as_it_was_written(data, protocol):
    """Whatever plain data pickle writes, with any protocol, comes back as it was; bytes and sets need a newer one."""
    written = pickle.dumps(data, protocol)
    if b"_codecs" in written or b"builtin" in written:  # how old protocols write bytes and sets
        with pytest.raises(SnapshotError, match=r"_codecs\.encode|builtin"):
            load(written)
    else:
        assert load(written) == data


@given(some.binary(max_size=60), some.integers(0, 10**4), some.integers(0, 255))
@settings(max_examples=300, deadline=None)
def test_any_bytes_give_plain_data_or_an_error(noise, place, value):
    """Random bytes, and a snapshot with a byte changed or cut off, never end in anything but plain data or an error."""
    CALLED[:] = []
    allocator = ToyAllocator()
    allocator.alloc(1000, stack(7))
    whole = pickle.dumps(allocator.snapshot())
    at = place % len(whole)
    for data in (noise, b"\x80\x04" + noise + b".", whole[:at], whole[:at] + bytes([value]) + whole[at + 1 :]):
        try:
            found = load(data)
        except SnapshotError:
            continue
        assert type(found) in {dict, list, tuple, str, bytes, int, float, bool, type(None), set, frozenset}
    assert not CALLED


def test_a_snapshot_survives_every_protocol_and_padding(tmp_path):
    """The zeros that torch's viewer pads with, and old protocols, change nothing."""
    allocator = ToyAllocator()
    allocator.alloc(3000, stack(7, 9))
    given_ = allocator.snapshot()
    for protocol in range(6):
        path = tmp_path / f"{protocol}.pickle"
        path.write_bytes(pickle.dumps(given_, protocol) + b"\0\0")
        assert read_file(path) == given_


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (b"", "it is empty"),
        (gzip.compress(pickle.dumps({"segments": []}), mtime=0), "gunzip"),
        (b"PK\x03\x04xxxx", "zip archive, as torch.save"),
        (json.dumps({"segments": []}).encode(), "looks like JSON"),
        (json.dumps({"tensormagic": "memory snapshot"}).encode(), r"SnapshotReport\.load"),
        (b"<!doctype html>", "a page"),
        (pickle.dumps({"segments": [1, 2, 3]})[:-6], "cut short"),
        ("Grüße".encode("utf-16"), "it is no pickle"),
    ],
)
def test_other_files_are_told_for_what_they_are(tmp_path, written, told):
    """A file that is no snapshot is named, with what it is instead and what to do."""
    path = tmp_path / "memory.pickle"
    path.write_bytes(written)
    with pytest.raises(SnapshotError, match=f"memory.pickle.*{told}"):
        read_file(path)


def test_missing_files_folders_and_huge_files_are_told(tmp_path):
    """What cannot be opened, or is too long, says so."""
    with pytest.raises(SnapshotError, match="No such file"):
        read_file(tmp_path / "none.pickle")
    with pytest.raises(SnapshotError, match="it is a folder"):
        read_file(tmp_path)
    path = tmp_path / "huge.pickle"
    path.write_bytes(b"x" * 100)
    with pytest.raises(SnapshotError, match=r"100 B, but at most 99 B can be read.*max_entries"):
        read_file(path, most_bytes=99)
