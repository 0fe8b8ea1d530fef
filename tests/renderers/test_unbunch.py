"""What unpacks tightly packed code in the page: it is bzip2, undone by a script of our own."""

from __future__ import annotations

import bz2
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tensormagic.renderers
from tensormagic.renderers import shelf
from tensormagic.renderers.basics import markup
from tensormagic.renderers.trace import trace_html
from tests.support.missing import missing

UNBUNCH = Path(tensormagic.renderers.__file__).parent / "static" / "unbunch.js"
RUN = """
const { readFileSync, writeFileSync } = require("node:fs");
for (let at = 0; at < Number(process.argv[1]); at += 1)
  writeFileSync(`${at}.txt`, unbunched(new Uint8Array(readFileSync(`${at}.bz2`))));
"""
_CHANCE = random.Random(0)
TEXTS = {
    "nothing": "",
    "one letter": "a",
    "one letter often": "a" * 3,
    "runs of every length": "".join("ab"[at % 2] * at for at in range(1, 700)),
    "every letter": "".join(map(chr, range(1, 0xD800, 7))) * 3,
    "no order": "".join(_CHANCE.choices("abcdefgh <>{}", k=40_000)),
    "several blocks": "".join(_CHANCE.choices("ab\u00e9\U0001f600", k=300_000)),
    "the viewer": trace_html.viewer_module(),
}


def test_it_undoes_what_bzip2_did(tmp_path: Path) -> None:
    """Texts of every kind come out as they went in: runs, all letters, no order, more than one block, our own code."""
    node = shutil.which("node") or missing("no node: scripts are tested by it")
    for at, (name, text) in enumerate(TEXTS.items()):
        level = 1 if name == "several blocks" else 9  # hundreds of thousands of bytes a block
        (tmp_path / f"{at}.bz2").write_bytes(bz2.compress(text.encode(), level))
    script = UNBUNCH.read_text(encoding="utf-8") + RUN
    subprocess.run([node, "-e", script, str(len(TEXTS))], cwd=tmp_path, check=True, timeout=60)
    for at, (name, text) in enumerate(TEXTS.items()):
        assert (tmp_path / f"{at}.txt").read_bytes().decode() == text, name


def test_code_is_packed_the_way_that_takes_less() -> None:
    """The viewer by bzip2, with what undoes it before it; a piece of a few KB by gzip alone."""
    (viewer,) = shelf.elements(trace_html.viewer_code()).values()
    first, rest = viewer.split(">", 1)[1].split("<")[0].split(" ")
    assert "unbunched" not in rest
    assert len(first) < 1_100
    assert len(first) + len(rest) < 50_500
    assert " " not in shelf.code("few", "const few = 1;", "few").split(">", 1)[1]


def test_without_bzip2_code_is_gzipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python that was built without it packs code as it packs everything else."""
    monkeypatch.setitem(sys.modules, "bz2", None)
    assert markup.bunched("const few = 1;" * 9) == markup.packed("const few = 1;" * 9)
