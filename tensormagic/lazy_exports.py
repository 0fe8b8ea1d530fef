"""Names that a package has from the start, and imports when they are first asked for (PEP 562).

What a user does not use costs them nothing: neither ``import tensormagic`` nor ``%load_ext tensormagic`` imports what
only a report, a diagnosis or a drawing needs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from importlib import import_module
from typing import Any


def names(
    package: str, public: Collection[str], module_of: Callable[[str], str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and the ``__dir__`` of a package, given its name and everything public in it.

    ``module_of`` gives the module in which a name is found.
    """

    def look_up(name: str) -> Any:
        if name not in public:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(module_of(name)), name)
        setattr(sys.modules[package], name, value)
        return value

    def listed() -> list[str]:
        module = sys.modules[package]  # what Tab offers: none of the package's own imports
        of_python = (name for name in vars(module) if name.startswith("__"))
        return sorted({*of_python, *public, *getattr(module, "__all__", ())})

    return look_up, listed
