"""The viewer says a number as Python does: the two are asked for the same numbers, and must give the same text."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import tensormagic.views
from tensormagic import words
from tests.support.missing import missing

STATIC = Path(tensormagic.views.__file__).parent / "static"
COUNTS = [0, 1, 999, 1000, 9999, 10_000, 123_456, 67_108_864]
BYTES = [
    0,
    1,
    96,
    1023,
    1024,
    1280,
    1536,
    1792,
    4000,
    999_999,
    1_047_500,
    2**20 - 1,
    2**20,
    123_456_789,
    2**30,
    3 * 2**40,
    2**60,
]
SECONDS = [
    0,
    3.2e-7,
    1.26e-6,
    3.06e-4,
    9.999e-4,
    1.3e-3,
    9.96e-3,
    0.085,
    0.0125,
    1.25,
    12.75,
    60.5,
    0.9996,
    1,
    12.41,
    59.97,
    119.7,
    200,
    7261.2,
]
BOTH = {
    "digits": (COUNTS, words.count),
    "bytesText": (BYTES, words.number_of_bytes),
    "secondsText": (SECONDS, words.seconds_text),
}
NOUN = [(0, "node"), (1, "node"), (2, "node"), (12_345, "node")]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What the functions of words.js make of the numbers, by function."""
    node = shutil.which("node") or missing("no node: it runs the viewer's words")
    folder = tmp_path_factory.mktemp("words")
    shutil.copytree(STATIC / "trace", folder / "trace")
    (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    asked = {name: numbers for name, (numbers, _) in BOTH.items()}
    (folder / "ask.mjs").write_text(
        'import * as words from "./trace/words.js";\n'
        f"const asked = {json.dumps(asked)};\n"
        "const said = Object.fromEntries(Object.entries(asked).map(([name, numbers]) => "
        "[name, numbers.map((one) => words[name](one))]));\n"
        f"said.plural = {json.dumps(NOUN)}.map(([count, noun]) => words.plural(count, noun));\n"
        "console.log(JSON.stringify(said));\n",
        encoding="utf-8",
    )
    ran = subprocess.run([node, "ask.mjs"], cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return dict(json.loads(ran.stdout))


@pytest.mark.parametrize("name", BOTH)
def test_javascript_says_what_python_says(said: dict[str, list[str]], name: str) -> None:
    """Counts, bytes and durations."""
    numbers, say = BOTH[name]
    assert said[name] == [say(number) for number in numbers]


def test_plurals(said: dict[str, list[str]]) -> None:
    """A count with what is counted."""
    assert said["plural"] == [words.plural(number, noun) for number, noun in NOUN]
