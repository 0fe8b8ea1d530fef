"""``%tensormagic``: what there is, which version, how it is set."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

from IPython.core.error import UsageError

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


def _help() -> str:
    from tensormagic.magics import tensor, tracegrad  # noqa: PLC0415  (only for help)

    rows = [(made.prog, str(made.description)) for made in (tensor.parser(), tracegrad.parser())]
    return "\n".join(f"{name:<13} {text}\n{'':<13} {name} --help lists its options" for name, text in rows)


def _versions() -> list[str]:
    found = [f"Python {platform.python_version()}"]
    for package in _PACKAGES:
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            found.append(f"{package} not installed")
    return found
