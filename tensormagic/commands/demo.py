"""The examples that come with the package: listed and copied by ``examples``, opened in JupyterLab by ``demo``."""

from __future__ import annotations

import argparse
import filecmp
import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tensormagic.api.showing import shipped
from tensormagic.commands import Command
from tensormagic.errors import RequirementError, TensorMagicError

FOLDER = Path("tensormagic-examples")


def examples() -> list[Path]:
    """Return the examples in their order.

    Raises:
        TensorMagicError: where they are not there.
    """
    folders = shipped("examples")
    for folder in folders:
        found = sorted([*folder.glob("*.ipynb"), *folder.glob("*.py")])
        if found:
            return found
    raise TensorMagicError(f"the examples are in neither {' nor '.join(map(str, folders))}: install tensormagic again")


def title(example: Path) -> str:
    """Return what an example is about: the first heading of a notebook, the first line of a script's docstring."""
    text = example.read_text(encoding="utf-8")
    if example.suffix == ".ipynb":
        first = json.loads(text)["cells"][0]["source"]
        text = first if isinstance(first, str) else "".join(first)
    return text.lstrip('#" \n').split("\n", 1)[0].strip().rstrip('"')


def copied(folder: Path) -> list[Path]:
    """Copy the examples into a folder; one that is there already, changed or not, is left as it is.

    Returns:
        Where each of them lies.

    Raises:
        TensorMagicError: where the folder cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [_copy(example, folder / example.name) for example in examples()]
    except OSError as error:
        reason = f"{error.strerror}; name another folder"
        raise TensorMagicError(f"cannot copy the examples to {folder}: {reason}") from error


def _copy(example: Path, target: Path) -> Path:
    if not target.exists():
        shutil.copyfile(example, target)
    elif not filecmp.cmp(example, target, shallow=False):
        print(f"kept {target}: you have changed it")
    return target


def _examples_arguments(parser: argparse.ArgumentParser) -> None:
    help_ = "where to copy them; files that you changed there are kept"
    parser.add_argument("folder", nargs="?", type=Path, help=help_)


def _examples(given: argparse.Namespace) -> int:
    found = copied(given.folder) if given.folder is not None else examples()
    width = max(len(path.name) for path in found)
    for path in found:
        print(f"{path.name:<{width}}  {title(path)}")
    print(f"\nin {found[0].parent}")
    return 0


def _demo_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER, help=f"where to copy them; by default {FOLDER}")
    parser.add_argument("--headless", action="store_true", help="run it and write a static page instead")
    parser.add_argument("--notebook", type=Path, help="open this notebook instead of the first example")


def _demo(given: argparse.Namespace) -> int:
    """Open the demo; without a browser, run it and write its page into the folder.

    Raises:
        RequirementError: where JupyterLab, or what runs notebooks, is not installed.
        TensorMagicError: where there is no such notebook.
    """
    package = "nbconvert" if given.headless else "jupyterlab"
    if find_spec(package) is None:
        raise RequirementError(f'the demo needs {package}, which is not installed: pip install "tensormagic[lab]"')
    notebook = given.notebook or copied(given.folder)[0]
    if not notebook.is_file():
        raise TensorMagicError(f"there is no notebook {notebook}")
    if given.headless:
        from tensormagic.commands.headless import run_to_page

        return 1 if run_to_page(notebook, given.folder / f"{notebook.stem}.html") else 0
    return subprocess.call([sys.executable, "-m", "jupyterlab", str(notebook)])  # noqa: S603  (our own interpreter)


COMMANDS = {
    "demo": Command("copy the examples to a folder and open the first in JupyterLab", _demo_arguments, _demo),
    "examples": Command("list the example notebooks; with a folder, copy them there", _examples_arguments, _examples),
}
