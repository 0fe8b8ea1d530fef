"""The parts of the viewers that need no page, run by node: their own tests, the words of Python, a live delta."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from array import array
from pathlib import Path
from typing import Any

import pytest

import tensormagic.views
from tensormagic import words
from tensormagic.reports import UNREADABLE, UNTOUCHED, LiveFrame
from tensormagic.views.page.columns import pack_delta
from tensormagic.views.page.document import Limits, trace_document
from tensormagic.views.page.viewer_words import VIEWER_WORDS
from tensormagic.views.panels.trace_words import bad_text, norm_text
from tensormagic.views.theme import least_of, norm_scale
from tests.support.missing import missing
from tests.views import samples_viewer

STATIC = Path(tensormagic.views.__file__).parent / "static"
TESTS = sorted(Path(__file__).parents[1].joinpath("viewer").glob("*.test.mjs"))
COUNTS = [0, 1, 999, 1000, 9999, 10_000, 123_456, 67_108_864]
BYTES = [
    0, 1, 96, 1023, 1024, 1280, 1536, 1792, 4000, 999_999, 1_047_500, 2**20 - 1, 2**20, 123_456_789, 2**30,
    3 * 2**40, 2**60,
]  # fmt: skip
SECONDS = [
    0, 3.2e-7, 1.26e-6, 3.06e-4, 9.999e-4, 1.3e-3, 9.96e-3, 0.085, 0.0125, 1.25, 12.75, 60.5, 0.9996, 1, 12.41, 59.97,
    119.7, 200, 7261.2,
]  # fmt: skip
EDGES = 99.49, 99.5, 9999.4, 9999.5, 9.9999e-4, 1e-45, 3.4e38
SPREAD = (mantissa * 10.0**power for power in range(-12, 9) for mantissa in (1, 1.05, 2.45, 9.949, 9.96))
NORMS = [*array("f", [0, UNTOUCHED, UNREADABLE, 0.125, 2.5, *EDGES, *SPREAD])]  # as they come: in four bytes
BIASED = [0.3, 0.02, 0.05, 1.4, 0.7, 0.11, 2e-9, 4e-10]  # two biases before normalisations
SCALES = [[0.25], [0.25, 30.0], BIASED, [*BIASED[1:], 1e-9], [10.0**-at for at in range(12)]]
BOTH = {
    "digits": (COUNTS, words.count),
    "normText": (NORMS, norm_text),
    "bytesText": (BYTES, words.number_of_bytes),
    "secondsText": (SECONDS, words.seconds_text),
    "scaleOf": (SCALES, lambda norms: [*norm_scale([least_of(norms), max(norms)])]),
}
NOUN = [(0, "node"), (1, "node"), (2, "node"), (12_345, "node"), (1, "leaf", "leaves"), (2, "leaf", "leaves")]
BAD = [(3, 0), (0, 2), (12_345, 1)]
ASK = f"""
import * as common from "./dom.js";
import * as others from "./trace/words.js";
const words = {{ ...common, ...others }};
const asked = {json.dumps({name: numbers for name, (numbers, _) in BOTH.items()})};
const said = Object.fromEntries(Object.entries(asked).map(([name, numbers]) =>
  [name, numbers.map((one) => words[name](one))]));
said.badText = {json.dumps(BAD)}.map((counts) => words.badText(...counts));
said.not = [NaN, Infinity].map((norm) => words.normText(norm));
said.plural = {json.dumps(NOUN)}.map((noun) => words.plural(...noun));
console.log(JSON.stringify(said));
"""
TOLD: list[tuple[str, dict[str, Any]]] = [
    ("running", {"step": 0, "pass": 2, "time": "1.0 s", "silent": 0}),
    ("paused", {"step": 7, "next": 0, "time": "1.0 s"}),
    ("paused", {"step": 7, "next": 12, "time": "1.0 s"}),
    ("size", {"nodes": 12345, "boxes": 2}),
    ("size", {"nodes": 1, "boxes": False}),
    ("last_sent", {"time": 0}),
    ("path", {"label": "a[0] {nodes node}", "on": "1", "nodes": 2}),
    ("leaves", {"more": 1, "bad": 0}),
    ("leaves", {"more": 20, "bad": 3}),
]
WORDED = f"""
import {{ worded }} from "./dom.js";
const words = {json.dumps(VIEWER_WORDS)};
console.log(JSON.stringify({json.dumps(TOLD)}.map(([name, values]) => worded(words[name], values))));
"""
READ = """
import { readFileSync } from "node:fs";
import { unpackDelta } from "./trace/viewer.js";
const bytes = new Uint8Array([7, ...readFileSync("delta")]); // in a message the buffer stands anywhere
const [header, values] = unpackDelta(new DataView(bytes.buffer, 1));
console.log(JSON.stringify([header, [...values].map((value) => (Number.isFinite(value) ? value : String(value)))]));
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the modules of the viewer, their tests, and a document with boxes in boxes in boxes."""
    folder = tmp_path_factory.mktemp("viewer")
    for name in ("export", "memory", "trace"):
        shutil.copytree(STATIC / name, folder / name)
    shutil.copy(STATIC / "dom.js", folder)
    (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    document = trace_document(samples_viewer.large_run(3000, passes=1), limits=Limits(boxes=12))
    (folder / "document.json").write_text(json.dumps(document), encoding="utf-8")
    for test in TESTS:
        shutil.copy(test, folder)
    return folder


def run(folder: Path, *arguments: str) -> str:
    """What node says."""
    node = shutil.which("node") or missing("no node: it runs the viewer's units")
    ran = subprocess.run([node, *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def answer(folder: Path, module: str) -> Any:
    """What a module of ours writes."""
    (folder / "ask.mjs").write_text(module, encoding="utf-8")
    return json.loads(run(folder, "ask.mjs"))


@pytest.mark.parametrize("name", [test.name for test in TESTS])
def test_viewer_module(folder: Path, name: str) -> None:
    assert "# pass 0" not in run(folder, "--test", name)


def test_modules_put_together_hold_no_name_twice() -> None:
    """One module is made of all files: a top-level name of one would hide another's."""
    names = []
    for file in (STATIC / "dom.js", *(STATIC / "trace").glob("*.js")):
        lines = file.read_text(encoding="utf-8").splitlines()
        heads = [line.removeprefix("export ").split("(")[0].split() for line in lines if line[:1].isalpha()]
        names += [head[1] for head in heads if head[0] in {"function", "class", "const", "let"} and len(head) > 1]
    assert "GraphView" in names
    assert len(names) == len(set(names)), sorted({name for name in names if names.count(name) > 1})


def test_javascript_says_what_python_says(folder: Path) -> None:
    """Counts, bytes, durations, norms, what is not finite, and a count with what is counted."""
    said = answer(folder, ASK)
    assert {name: said[name] for name in BOTH} == {name: [*map(say, numbers)] for name, (numbers, say) in BOTH.items()}
    assert said["badText"] == [bad_text(*counts) for counts in BAD]
    assert said["not"] == [norm_text(math.nan), norm_text(math.inf)]
    assert said["plural"] == [words.plural(*noun) for noun in NOUN]


def test_sentences_of_python_are_filled_in(folder: Path) -> None:
    """Counts with what is counted; a part in brackets only where all in it is something; names stay as they are."""
    assert answer(folder, WORDED) == [words.worded(VIEWER_WORDS[name], **values) for name, values in TOLD] == [
        "step 0 · backward 2 · 1.0 s", "paused: step 7 · 1.0 s", "paused: step 7, next traced about 12 · 1.0 s",
        "12\u00a0345 nodes in 2 boxes", "1 node", "", "path through a[0] {nodes node}: 1 of 2 nodes",
        "1 leaf", "20 leaves, 3 NaN/Inf",
    ]  # fmt: skip


def test_the_page_reads_what_was_packed(folder: Path) -> None:
    """Counts as they are, also large ones; node norms, then parameter norms, with NaN and the sentinel.

    Before the first pass there are no norms.
    """
    norms, last = array("f", [0.5, UNTOUCHED, math.nan]), array("f", [math.inf])
    frame = LiveFrame(4, 1, 9, 2**40 + 1, True, -1, 3, norms, 8, last, 1.25, paused=False, next_step=2**40 + 7)
    (folder / "delta").write_bytes(pack_delta(frame))
    header, values = answer(folder, READ)
    assert header == {
        "structure": 4, "graph": 1, "pass": 9, "step": 2**40 + 1, "running": True, "cursor": -1, "reached": 3,
        "finished": 8, "seconds": 1.25, "paused": False, "next": 2**40 + 7, "nodes": 3, "parameters": 1,
    }  # fmt: skip
    assert values == [0.5, -1, "NaN", "Infinity"]
    nothing = LiveFrame(0, 0, 0, 0, False, -1, 0, array("f"), 0, array("f"), 0.0, paused=True)
    (folder / "delta").write_bytes(pack_delta(nothing))
    header, values = answer(folder, READ)
    assert (header["running"], header["paused"], header["nodes"], values) == (False, True, 0, [])
