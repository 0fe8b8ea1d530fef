"""Examples after a run: each is run once, whichever tests look at it; the code of its folded answers runs as well."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import nbformat
import pytest

from tests.support import warm
from tests.support.kernel import ROOT, run_notebook

EXAMPLE_SECONDS = 300
_ANSWERS = re.compile(r"<details>(.*?)</details>", re.DOTALL)
_CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Executed:
    """An example after a run.

    Attributes:
        notebook: With its outputs.
        written: Files that the run left beside it.
    """

    notebook: nbformat.NotebookNode
    written: list[Path]


def with_answers(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return a notebook with a cell behind each text for the code of the answer that is folded away there."""
    notebook.cells = [each for cell in notebook.cells for each in (cell, *answers_in(cell))]
    return notebook


def answers_in(cell: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """Return what a reader would run who tries out the answers of a text; its cells have the tag ``answer``."""
    if cell.cell_type != "markdown":
        return []
    code = [block for answer in _ANSWERS.findall(cell.source) for block in _CODE.findall(answer)]
    return [
        nbformat.v4.new_code_cell(block.rstrip(), metadata={"tags": ["answer"]}, id=f"{cell.id}-answer-{number}")
        for number, block in enumerate(code, 1)
    ]


@pytest.fixture(autouse=True, scope="module")
def warm_kernels() -> Iterator[None]:
    """Kernels are forks."""
    with warm.kernels():
        yield


@pytest.fixture(scope="session")
def run_example(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Executed]:
    """Return a function that runs an example in a copy of its folder, the first time it is asked for."""

    @lru_cache
    def run(path: Path) -> Executed:
        place = tmp_path_factory.mktemp("examples")
        folder = place / "examples"
        shutil.copytree(ROOT / "examples", folder, ignore=shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints"))
        before = set(folder.iterdir())
        content = with_answers(nbformat.read(path, as_version=4))
        settings = place / "settings"
        settings.mkdir(exist_ok=True)  # a kernel that starts others warns where it is not there
        notebook = run_notebook(content, folder, seconds=EXAMPLE_SECONDS, settings=settings, widget_state=False)
        return Executed(notebook, sorted(set(folder.iterdir()) - before))

    return run
