"""Tab after %tensor: the person's tensors first, attributes, and options."""

from __future__ import annotations

import pytest


def complete(shell, line):
    _, matches = shell.complete(line.split(" ")[-1], line, len(line))
    return matches


@pytest.mark.parametrize("jedi", [True, False])
def test_names(shell, cell, jedi):
    """Tensors come before other names; hidden and underscored names do not come at all."""
    shell.Completer.use_jedi = jedi
    cell("first = 1; attention = a * 2; _hidden = a")
    found = complete(shell, "%tensor a")
    assert {"a", "attention"} <= set(found)
    assert [name for name in found if name.startswith("_") or name in {"In", "Out", "get_ipython"}] == []


def test_tensors_first(cell, shell):
    """Among names with the same beginning those that are tensors lead."""
    from tensormagic.magics.completion import _is_tensor, _names

    cell("aaa = 1")
    names = _names(shell, _is_tensor)
    assert names.index("x") < names.index("aaa")


def test_attributes(shell, cell):
    """Behind a dot the attributes, of submodules too."""
    cell("pass")
    assert "net.weight" in complete(shell, "%tensor net.we")


def test_options(shell, cell):
    """Behind two dashes the options."""
    assert set(complete(shell, "%tensor a --")) >= {"--text", "--figure", "--save", "--into", "--help"}
