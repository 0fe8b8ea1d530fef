"""``python -m tensormagic demo``: the examples in a folder of one's own, open in JupyterLab."""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tensormagic.commands.shipped import copied
from tensormagic.errors import RequirementError, TensorMagicError

HELP = "copy the examples to a folder and open the first in JupyterLab"
FOLDER = Path("tensormagic-examples")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER, help=f"where to copy them; by default {FOLDER}")
    parser.add_argument("--headless", action="store_true", help="run it and write a static page instead")
    parser.add_argument("--notebook", type=Path, help="open this notebook instead of the first example")


def run(given: argparse.Namespace) -> int:
    """Open the demo; without a browser, run it and write its page into the folder.

    Raises:
        RequirementError: where JupyterLab, or what runs notebooks, is not installed.
        TensorMagicError: where there is no such notebook.
    """
    _require("nbconvert" if given.headless else "jupyterlab")
    notebook = given.notebook or copied(given.folder)[0]
    if not notebook.is_file():
        raise TensorMagicError(f"there is no notebook {notebook}")
    if given.headless:
        from tensormagic.commands.pages import run_to_page

        return 1 if run_to_page(notebook, given.folder / f"{notebook.stem}.html") else 0
    return subprocess.call([sys.executable, "-m", "jupyterlab", str(notebook)])  # noqa: S603  (our own interpreter)


def _require(package: str) -> None:
    if find_spec(package) is None:
        raise RequirementError(f'the demo needs {package}, which is not installed: pip install "tensormagic[lab]"')
