"""Where the files are that come with the package beside its code: examples, and the pages of the documentation.

In a checkout they lie in its root. An installation puts them under ``share/tensormagic``, of which there are several:
the environment's, the person's own (``pip install --user``), and the one beside the package (``--target``).
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]


def shipped(kind: str) -> list[Path]:
    """Return the folders in which files of that kind can lie, ``"examples"`` or ``"docs"``, most likely first."""
    return [folder / kind for folder in _places()]


def _places() -> Iterator[Path]:
    if (_ROOT / "pyproject.toml").is_file():  # a folder ``examples`` in site-packages is somebody else's
        yield _ROOT
    yield Path(sysconfig.get_path("data")) / "share" / "tensormagic"
    yield Path(sysconfig.get_path("data", sysconfig.get_preferred_scheme("user"))) / "share" / "tensormagic"
    yield _ROOT / "share" / "tensormagic"
