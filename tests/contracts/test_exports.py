"""What the package promises by name: ``__all__`` is sorted, complete and true."""

from __future__ import annotations

import ast
import importlib
import inspect
import types

import pytest

import tensormagic
from tests.support.kernel import ROOT

PUBLIC = ("tensormagic", "tensormagic.api", "tensormagic.reports", "tensormagic.errors")
# The public interface of the design, as far as it exists; what is added later is added here.
INTERFACE = {
    "aliases", "inspect", "load_ipython_extension", "memory", "overlay", "show", "tensors", "trace",
    "unload_ipython_extension", "watch_writes",
}  # fmt: skip


def public_names(module):
    """Return every name without underscore that the module defines, or imported from its own package."""
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not isinstance(value, types.ModuleType)
        and (getattr(value, "__module__", None) or "").startswith("tensormagic")
    }


@pytest.mark.parametrize("name", ["tensormagic", "tensormagic.api", "tensormagic.reports"])
def test_exports_are_sorted_and_exist(name):
    """``__all__`` names each thing once, in ruff's order (constants, classes, functions), and all of it is there."""
    module = importlib.import_module(name)
    exported = list(module.__all__)
    assert exported == sorted(exported, key=_rank)
    assert len(set(exported)) == len(exported)
    assert [export for export in exported if not hasattr(module, export)] == []


@pytest.mark.parametrize("name", ["tensormagic", "tensormagic.api"])
def test_what_is_imported_late_is_there_from_the_start(name):
    """``dir()`` lists it, type checkers see it where it is, and what is not there is an AttributeError."""
    module = importlib.import_module(name)
    assert set(module.__all__) <= set(dir(module))
    typed = {alias.name: node.module for node in _typed_imports(module) for alias in node.names}
    assert {late: getattr(module, late) for late in typed} == {
        late: getattr(importlib.import_module(where), late) for late, where in typed.items()
    }
    defined = {node.name for node in ast.parse(inspect.getsource(module)).body if isinstance(node, ast.FunctionDef)}
    raised = {late for late in module.__all__ if late.endswith("Error")}
    assert set(typed) == set(module.__all__) - raised - defined
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'nothing'"):
        _ = module.nothing


def _typed_imports(module):
    """Return the imports under ``if TYPE_CHECKING``."""
    conditions = [node for node in ast.parse(inspect.getsource(module)).body if isinstance(node, ast.If)]
    return [node for condition in conditions for node in condition.body]


def _rank(name):
    kind = 0 if name.isupper() else 1 if name[0].isupper() else 2
    return kind, name


@pytest.mark.parametrize("name", ["tensormagic", "tensormagic.reports"])
def test_every_public_name_is_exported(name):
    """Nothing of ours that has no underscore is left out of ``__all__``."""
    module = importlib.import_module(name)
    assert sorted(public_names(module) - set(module.__all__)) == []


def test_the_interface_of_the_design_is_there():
    """The functions the magics are built on can be called from the package itself."""
    assert set(tensormagic.__all__) >= INTERFACE
    assert [name for name in sorted(INTERFACE) if not callable(getattr(tensormagic, name))] == []


def test_every_report_and_error_can_be_reached_from_the_top():
    """Who loads a saved report, or catches an error, needs no second import path."""
    errors = importlib.import_module("tensormagic.errors")
    raised = {name for name, value in vars(errors).items() if inspect.isclass(value)}
    told = {"AliasReport", "TensorReport", "TensorTable", "TraceReport", "WritesReport", "Finding"}
    assert raised | told <= set(tensormagic.__all__)


@pytest.mark.parametrize("name", PUBLIC)
def test_everything_public_has_a_docstring(name):
    """Classes and functions that can be reached by name say what they are."""
    module = importlib.import_module(name)
    silent = [public for public in public_names(module) if not inspect.getdoc(getattr(module, public))]
    assert silent == []


def test_the_version_is_the_packages():
    """``tensormagic.__version__`` is what pyproject.toml says."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{tensormagic.__version__}"' in text.splitlines()


def test_tab_offers_what_is_public_and_nothing_else():
    """No ``Any`` or ``import_module`` between ``tm.aliases`` and ``tm.trace``."""
    assert [name for name in dir(tensormagic) if not name.startswith("__")] == sorted(
        name for name in tensormagic.__all__ if not name.startswith("__")
    )
