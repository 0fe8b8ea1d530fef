"""What a live panel's page is sent, and what it makes of it: the module that takes it apart runs in node."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from array import array
from pathlib import Path

import tensormagic.views
from tensormagic.reports import UNTOUCHED, LiveFrame
from tensormagic.views.page.columns import pack_delta
from tests.support.missing import missing

VIEWER = Path(tensormagic.views.__file__).parent / "static" / "trace"
READ = """
import { readFileSync } from "node:fs";
import { unpackDelta } from "./trace/viewer.js";
const bytes = new Uint8Array([7, ...readFileSync("delta")]); // in a message the buffer stands anywhere
const [header, values] = unpackDelta(new DataView(bytes.buffer, 1));
console.log(JSON.stringify([header, [...values].map((value) => (Number.isFinite(value) ? value : String(value)))]));
"""


def _unpacked(folder: Path, buffer: bytes) -> list[object]:
    node = shutil.which("node") or missing("no node: what the page makes of a delta is tested by it")
    shutil.copytree(VIEWER, folder / "trace", dirs_exist_ok=True)
    folder.joinpath("package.json").write_text('{"type": "module"}', encoding="utf-8")
    folder.joinpath("delta").write_bytes(buffer)
    folder.joinpath("read.mjs").write_text(READ, encoding="utf-8")
    done = subprocess.run([node, "read.mjs"], cwd=folder, capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_the_page_reads_what_was_packed(tmp_path: Path) -> None:
    """Counts as they are, also large ones; node norms, then parameter norms, with NaN and the sentinel."""
    norms, last = array("f", [0.5, UNTOUCHED, math.nan]), array("f", [math.inf])
    frame = LiveFrame(4, 1, 9, 2**40 + 1, True, -1, 3, norms, 8, last, 1.25, resting=False, next_step=2**40 + 7)
    header, values = _unpacked(tmp_path, pack_delta(frame))
    assert header == {
        "structure": 4, "graph": 1, "pass": 9, "step": 2**40 + 1, "running": True, "cursor": -1, "reached": 3,
        "finished": 8, "seconds": 1.25, "resting": False, "next": 2**40 + 7, "nodes": 3, "parameters": 1,
    }  # fmt: skip
    assert values == [0.5, -1, "NaN", "Infinity"]


def test_a_frame_of_nothing_is_its_numbers_alone(tmp_path: Path) -> None:
    """Before the first pass there are no norms."""
    frame = LiveFrame(0, 0, 0, 0, False, -1, 0, array("f"), 0, array("f"), 0.0, resting=True)
    header, values = _unpacked(tmp_path, pack_delta(frame))
    assert isinstance(header, dict)
    assert (header["running"], header["resting"], header["nodes"], values) == (False, True, 0, [])
