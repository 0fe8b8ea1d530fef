"""Tab after %tensor: the user's tensors first, attributes, and options."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from IPython.core import completer
from IPython.core.completer import provisionalcompleter

from tensormagic.magics import about, completion


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
    cell("aaa = 1; aab = a * 2")
    line = "%tensor aa"
    event = SimpleNamespace(command="%tensor", line=line, symbol="aa", text_until_cursor=line)
    assert completion._complete(shell, event) == ["aab", "aaa"]


def test_attributes(shell, cell):
    """Behind a dot the attributes, of submodules too."""
    cell("pass")
    assert "net.weight" in complete(shell, "%tensor net.we")


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("%tensor deep.", ["deep.0", "deep.1"]),
        ("%tensor deep[0].", [".weight", ".bias"]),
        ("%tensor deep[-1].b", [".bias"]),
        ("%tensor held['a'][1].we", [".weight"]),
        ("%why deep[0].weight.gr", [".weight.grad"]),
        ("%tensor 1 deep[0].w", [".weight"]),
    ],
)
def test_what_holds_tensors_comes_first(shell, cell, line, offered):
    """Parameters, buffers and children lead, through indices too; no name begins with an underscore."""
    cell("import torch.nn as nn; deep = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)); held = {'a': (0, deep[0])}")
    symbol = re.split(r"[ \[\]'\"]", line)[-1]
    event = SimpleNamespace(line=line, symbol=symbol, command=line.split()[0], text_until_cursor=line)
    found = completion._complete(shell, event)
    assert found[: len(offered)] == offered
    assert [name for name in found if name.rpartition(".")[2].startswith("_")] == []


def test_underscores_come_where_they_are_asked_for(shell, cell):
    """Who types one wants one."""
    cell("pass")
    assert "net._parameters" in complete(shell, "%tensor net._par")


def test_no_code_of_the_person_runs_to_complete(shell, cell):
    """A property is not read behind an index."""
    cell("class P:\n    @property\n    def q(self): raise SystemExit\np = [P()]")
    line = shell.Completer.line_buffer = "%tensor p[0].q.a"  # as it is while IPython completes; 8.12 reads it
    event = SimpleNamespace(line=line, symbol=".q.a", command="%tensor", text_until_cursor=line)
    assert completion._complete(shell, event) == []


def test_options(shell, cell):
    """Behind two dashes the options."""
    assert set(complete(shell, "%tensor a --")) >= {"--text", "--figure", "--save", "--into", "--help"}


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("%tensor a --di", ["--dims"]),
        ("%gpumem --f", ["--figure", "--free"]),
        ("%why x --l", ["--loss"]),
        ("%rng --s", ["--save", "--slide"]),
        ("%tracegrad --in", ["--into"]),
        ("%%tracegrad --level ", ["grad", "ops"]),
        ("%%gpumem --live w", ["widget"]),
        ("%%aliases --t", ["--text"]),
    ],
)
def test_the_options_are_those_of_the_magic(shell, line, offered):
    """What its help lists, line magic or cell magic, and the words that an option takes."""
    assert complete(shell, line) == offered


def test_every_magic_completes_what_its_help_lists(shell):
    """None is left out, and no option."""
    for command, key in completion.commands().items():
        listed = {word for word in about.magic(key).parser().format_help().split() if re.fullmatch("--[a-z]+", word)}
        assert listed <= set(complete(shell, f"{command} --")), command


def test_a_variable_that_is_called_as_a_magic(shell, cell):
    """`rng = …` is Python: it is completed as any other line."""
    shell.Completer.use_jedi = False
    cell("rng = compare = 1; generator = 2")
    assert "getattr" in complete(shell, "rng = get")
    assert "generator" in complete(shell, "compare = gen")


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("%tensor a --di", ["--dims"]),
        ("%%tracegrad --level ", ["grad", "ops"]),
        ("x = 1\n%why net.wei", ["net.weight"]),
        ("%%rng --s", ["--save", "--slide"]),
        ("%tensor a --figure=", ["strides", "storage", "values"]),
        ("%tensor a --figure=st", ["strides", "storage"]),
        ("%tensormagic watch ", ["on", "off"]),
        ("%tensormagic exp", ["explain"]),
    ],
)
def test_as_a_kernel_asks(shell, cell, line, offered):
    """Jedi, which takes `--di` for minus minus of a name, adds nothing to what the magic takes."""
    cell("pass")
    shell.Completer.use_jedi = True
    with provisionalcompleter():
        assert [found.text for found in shell.Completer.completions(line, len(line))] == offered


def test_as_a_kernel_asks_an_older_ipython(shell, cell, monkeypatch):
    """Before 8.6 there are no matchers: jedi's are kept out all the same, and come back where nothing is offered."""
    shell.extension_manager.unload_extension("tensormagic")
    monkeypatch.delattr(completer, "context_matcher", raising=False)
    shell.extension_manager.load_extension("tensormagic")
    cell("pass")
    shell.Completer.use_jedi = True
    with provisionalcompleter():
        offered = [
            [found.text for found in shell.Completer.completions(line, len(line))]
            for line in ("%tensor a --di", "%%tracegrad --level ", "%why net.wei", "net.wei")
        ]
    assert offered == [["--dims"], ["grad", "ops"], ["net.weight"], ["weight"]]


@pytest.mark.skipif(not hasattr(completer, "context_matcher"), reason="IPython before 8.6 completes the whole word")
def test_behind_a_dot_names_come_in_order_without_what_precedes_it(shell, cell):
    """Parameters first; JupyterLab sorts by the alphabet what it matches against a text, so there is none."""
    cell("pass")
    with provisionalcompleter():
        found = list(shell.Completer.completions("%tensor net.", 12))
    assert [one.text for one in found[:2]] == ["weight", "bias"]
    assert {(one.start, one.end) for one in found} == {(12, 12)}


def test_unloading_takes_it_away(shell, cell):
    """Nothing of ours is asked any more."""

    def ours():
        asked = [*shell.Completer.custom_matchers, shell.Completer._jedi_matches]
        return [each for each in asked if each.__module__ == completion.__name__]

    assert len(ours()) == 1
    shell.extension_manager.unload_extension("tensormagic")
    assert ours() == []
    with provisionalcompleter():
        assert "--dims" not in [found.text for found in shell.Completer.completions("%tensor a --di", 14)]
    shell.extension_manager.load_extension("tensormagic")
