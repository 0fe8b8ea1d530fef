"""A private IPython shell for tests, and the check that an extension leaves a shell as it found it."""

from __future__ import annotations

import atexit
import contextlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from comm.base_comm import CommManager
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

Listing = Mapping[str, Any]
# Stands for the kernel of a shell. ipywidgets before 8.0.3, as it is imported, tells one of itself.
KERNEL = SimpleNamespace(comm_manager=CommManager())


@contextlib.contextmanager
def private_shell(folder: Path) -> Iterator[InteractiveShell]:
    """Yield a fresh shell that is *the* shell (``get_ipython()``) meanwhile, and writes nothing outside ``folder``.

    What is displayed is kept in ``shell.display_pub.outputs``: one dictionary (``data``, ``metadata``,
    ``transient``, ``update``) a display.
    """
    kept = sys.modules["__main__"], sys.displayhook, sys.excepthook, list(sys.path)
    previous = InteractiveShell._instance
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(config=_config(), ipython_dir=str(folder))
    shell.display_pub = CapturingDisplayPublisher(parent=shell)
    try:
        yield shell
    finally:
        shell.restore_sys_module_state()
        atexit.unregister(shell.atexit_operations)  # it would hold each shell to the end, and search for cycles then
        shell.user_ns.clear()
        InteractiveShell.clear_instance()
        InteractiveShell._instance = previous
        sys.modules["__main__"], sys.displayhook, sys.excepthook, sys.path[:] = kept


def _config() -> Config:
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    config.InteractiveShell.xmode = "Context"
    return config


def shell_state(shell: InteractiveShell) -> dict[str, Listing]:
    """Return everything an extension can register with a shell, section by section, as name → identity."""
    return {
        **{f"{kind} magics": _origins(magics) for kind, magics in shell.magics_manager.magics.items()},
        **{f"formatter {kind}": _printers(formatter) for kind, formatter in shell.display_formatter.formatters.items()},
        "mimebundle formatter": _printers(shell.display_formatter.mimebundle_formatter),
        "display formatter": {"ipython_display": _printers(shell.display_formatter.ipython_display_formatter)},
        "configurables": {f"{type(item).__name__} {id(item)}": id(item) for item in _foreign(shell.configurables)},
        "magics registry": {type(item).__name__: id(item) for item in _foreign(shell.magics_manager.registry.values())},
        "events": {name: [id(hook) for hook in hooks] for name, hooks in shell.events.callbacks.items()},
        "hooks": _hooks(shell),
        "transformers": _transformers(shell),
        "checkers": {f"{type(one).__name__} {id(one)}": id(one) for one in shell.prefilter_manager.checkers},
        "custom exceptions": dict(enumerate(map(repr, shell.custom_exceptions))),
        "namespace": {name: id(value) for name, value in shell.user_ns.items()},
        # Apart from those that IPython's own history adds with every cell: _, __, _1, _i, _ii, _i1, ...
        "hidden names": {name: True for name in shell.user_ns_hidden if not re.fullmatch(r"_+|_\d+|_i+\d*", name)},
    }


def difference(before: Mapping[str, Listing], after: Mapping[str, Listing]) -> list[str]:
    """Return one sentence for everything that was added, removed or replaced."""
    sentences = []
    for section, old in before.items():
        new = after[section]
        sentences += [f"{section}: {name} was left behind" for name in new.keys() - old.keys()]
        sentences += [f"{section}: {name} is gone" for name in old.keys() - new.keys()]
        sentences += [f"{section}: {name} was changed" for name in old.keys() & new.keys() if old[name] != new[name]]
    return sorted(sentences)


def _origins(magics: Mapping[str, Any]) -> Listing:
    return {name: _origin(magic) for name, magic in magics.items()}


def _origin(magic: Any) -> str:
    """Return ``module:class``; IPython's own are imported late, and the stand-in counts as the real thing."""
    if type(magic).__name__ == "LazyMagic":
        return magic.spec
    owner = type(getattr(magic, "__self__", magic))
    if owner.__name__ == "function":
        owner = magic
    return f"{owner.__module__}:{owner.__qualname__.split('.')[0]}"


def _foreign(items: Iterable[Any]) -> list[Any]:
    """Return those that are not IPython's own, which come and go with late imports."""
    return [item for item in items if not type(item).__module__.startswith("IPython.")]


def _printers(formatter: Any) -> Listing:
    tables = (formatter.type_printers, formatter.deferred_printers, formatter.singleton_printers)
    return {str(key): id(value) for table in tables for key, value in table.items()}


def _hooks(shell: InteractiveShell) -> Listing:
    by_command = {
        f"{name} for {key}": [id(function) for _, function in chain]
        for name, dispatcher in shell.strdispatchers.items()
        for key, chain in dispatcher.strs.items()
    }
    return by_command | {name: repr(getattr(chain, "chain", chain)) for name, chain in vars(shell.hooks).items()}


def _transformers(shell: InteractiveShell) -> Listing:
    manager = shell.input_transformer_manager
    return {
        "cleanup": list(map(id, manager.cleanup_transforms)),
        "line": list(map(id, manager.line_transforms)),
        "token": list(map(id, manager.token_transformers)),
        "post": list(map(id, shell.input_transformers_post)),
        "ast": list(map(id, shell.ast_transformers)),
        "matchers": list(map(repr, shell.Completer.custom_matchers)),
    }
