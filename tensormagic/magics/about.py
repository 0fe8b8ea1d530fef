"""``%tensormagic``: what there is, which version, how it is set."""

from __future__ import annotations

import platform
from importlib import import_module, metadata
from typing import Any

from IPython.core.error import UsageError

# Every magic with a ``parser()``, in the order in which a person meets them.
MAGICS = ("tensor", "tensors", "aliases", "writes", "gradgraph", "tracegrad", "compare")
_PACKAGES = ("tensormagic", "torch", "ipython", "ipywidgets", "anywidget", "plotly", "jupyterlab")


def run(magics: Any, line: str) -> None:
    """Print help, versions and settings.

    Raises:
        UsageError: for any argument; there are none.
    """
    if line.strip():
        raise UsageError(f"%tensormagic takes no arguments, but was given {line.strip()!r}")
    print(_help())  # noqa: T201  (asked for)
    print("\nversions  " + ", ".join(_versions()))  # noqa: T201
    print(f"settings  %config TensorMagic.live = {magics.live!r}")  # noqa: T201
    print(f"          %config TensorMagic.ignore = {magics.ignore!r}")  # noqa: T201


def _help() -> str:
    parsers = [import_module(f"tensormagic.magics.{name}").parser() for name in MAGICS]
    rows = [(made.prog, str(made.description)) for made in parsers]
    return "\n".join(f"{name:<13} {text}\n{'':<13} %{name.lstrip('%')} --help lists its options" for name, text in rows)


def _versions() -> list[str]:
    return [f"Python {platform.python_version()}", *(f"{name} {_version(name)}" for name in _PACKAGES)]


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
