"""``python -m tensormagic examples``: the examples that come with the package, copied without loss."""

from __future__ import annotations

import argparse
import filecmp
import json
import shutil
from pathlib import Path

from tensormagic.api.showing import shipped
from tensormagic.errors import TensorMagicError

# The examples that come with the package: found in an installation and in a checkout, and copied without loss.


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
        raise TensorMagicError(
            f"cannot copy the examples to {folder}: {error.strerror}; name another folder"
        ) from error


def _copy(example: Path, target: Path) -> Path:
    if not target.exists():
        shutil.copyfile(example, target)
    elif not filecmp.cmp(example, target, shallow=False):
        print(f"kept {target}: you have changed it")
    return target


# ``python -m tensormagic examples``: what there is to read, and a copy of it.

HELP = "list the example notebooks; with a folder, copy them there"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument(
        "folder", nargs="?", type=Path, help="where to copy them; files that you changed there are kept"
    )


def run(given: argparse.Namespace) -> int:
    """List the examples, or copy them."""
    found = copied(given.folder) if given.folder is not None else examples()
    width = max(len(path.name) for path in found)
    for path in found:
        print(f"{path.name:<{width}}  {title(path)}")
    print(f"\nin {found[0].parent}")
    return 0
