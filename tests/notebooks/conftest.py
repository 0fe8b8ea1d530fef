"""Examples after a run: each is run once, whichever tests look at it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import nbformat
import pytest

from tests.support.kernel import ROOT, run_notebook

EXAMPLE_SECONDS = 300


@dataclass(frozen=True)
class Executed:
    """An example after a run.

    Attributes:
        notebook: With its outputs.
        written: Files that the run left beside it.
    """

    notebook: nbformat.NotebookNode
    written: list[Path]


@pytest.fixture(scope="session")
def run_example(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Executed]:
    """Return a function that runs an example in a copy of its folder, the first time it is asked for."""

    @lru_cache
    def run(path: Path) -> Executed:
        place = tmp_path_factory.mktemp("examples")
        folder = place / "examples"
        shutil.copytree(ROOT / "examples", folder, ignore=shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints"))
        before = set(folder.iterdir())
        content = nbformat.read(path, as_version=4)
        settings = place / "settings"
        notebook = run_notebook(content, folder, seconds=EXAMPLE_SECONDS, settings=settings, widget_state=False)
        return Executed(notebook, sorted(set(folder.iterdir()) - before))

    return run
