"""``python -m tensormagic examples``: what there is to read, and a copy of it."""

from __future__ import annotations

import argparse
from pathlib import Path

from tensormagic.commands.shipped import copied, examples, title

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
