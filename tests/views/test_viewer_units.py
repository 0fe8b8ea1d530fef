"""The parts of the trace viewer that need no page, tested by node where there is one."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import tensormagic.views
from tensormagic.views.page.document import Limits, trace_document
from tests.support.missing import missing
from tests.views import samples_viewer

STATIC = Path(tensormagic.views.__file__).parent / "static" / "trace"
TESTS = sorted(Path(__file__).parents[1].joinpath("viewer").glob("*.test.mjs"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the modules of the viewer, their tests, and a document with boxes in boxes in boxes."""
    folder = tmp_path_factory.mktemp("viewer")
    for name in ("export", "memory", "trace"):
        shutil.copytree(STATIC.parent / name, folder / name)
    (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    document = trace_document(samples_viewer.large_run(3000, passes=1), limits=Limits(boxes=12))
    (folder / "document.json").write_text(json.dumps(document), encoding="utf-8")
    for test in TESTS:
        shutil.copy(test, folder)
    return folder


@pytest.mark.parametrize("name", [test.name for test in TESTS])
def test_viewer_module(folder: Path, name: str) -> None:
    """Every test of that file passes in node."""
    node = shutil.which("node") or missing("no node: the viewer's units are tested by it")
    done = subprocess.run([node, "--test", name], cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout
    assert "# pass 0" not in done.stdout


def test_modules_put_together_hold_no_name_twice() -> None:
    """One module is made of all files: a top-level name of one would hide another's."""
    names = []
    for file in STATIC.glob("*.js"):
        lines = file.read_text(encoding="utf-8").splitlines()
        heads = [line.removeprefix("export ").split("(")[0].split() for line in lines if line[:1].isalpha()]
        names += [head[1] for head in heads if head[0] in {"function", "class", "const", "let"} and len(head) > 1]
    assert "GraphView" in names
    assert len(names) == len(set(names)), sorted({name for name in names if names.count(name) > 1})
