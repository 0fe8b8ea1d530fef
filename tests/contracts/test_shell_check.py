"""The check that unloading leaves a shell as it was must itself be able to fail."""

from __future__ import annotations

import pytest
from IPython.core.magic import Magics, line_magic, magics_class

from tests.support.shell import difference, shell_state


@magics_class
class _Careless(Magics):
    @line_magic
    def careless(self, line):
        return line


def _careless_formatter(shell):
    shell.display_formatter.formatters["text/html"].for_type(complex, lambda value: "<b>complex</b>")


def _careless_bundle(shell):
    shell.display_formatter.mimebundle_formatter.for_type(complex, lambda *_: {})


def _careless_event(shell):
    shell.events.register("post_run_cell", lambda result: None)


def _careless_completer(shell):
    shell.set_hook("complete_command", lambda *_: [], str_key="%careless")


CASES = {
    "magic": (lambda shell: shell.register_magics(_Careless), "line magics: careless was left behind"),
    "html formatter": (_careless_formatter, "formatter text/html: <class 'complex'> was left behind"),
    "bundle formatter": (_careless_bundle, "mimebundle formatter: <class 'complex'> was left behind"),
    "event": (_careless_event, "events: post_run_cell was changed"),
    "completer": (_careless_completer, "hooks: complete_command for %careless was left behind"),
    "transformer": (
        lambda shell: shell.ast_transformers.append(object()),
        "transformers: ast was changed",
    ),
    "name": (lambda shell: shell.push({"careless": 1}), "namespace: careless was left behind"),
    "custom exception": (
        lambda shell: shell.set_custom_exc((ValueError,), lambda *_: None),
        "custom exceptions: 0 was left behind",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_everything_left_in_a_shell_is_named(bare_shell, case):
    """Each kind of thing an extension can leave in a shell is told in one sentence."""
    leave, sentence = CASES[case]
    before = shell_state(bare_shell)
    assert difference(before, shell_state(bare_shell)) == []
    leave(bare_shell)
    assert sentence in difference(before, shell_state(bare_shell))


def test_a_left_configurable_is_named(bare_shell):
    """A Magics instance that stays in ``shell.configurables`` is told by its class name."""
    before = shell_state(bare_shell)
    bare_shell.register_magics(_Careless)
    left = difference(before, shell_state(bare_shell))
    assert any(sentence.startswith("configurables: _Careless") for sentence in left)


def test_what_ipython_imports_late_is_not_counted(bare_shell):
    """Using a magic that IPython had not imported yet is no change that anyone made."""
    before = shell_state(bare_shell)
    bare_shell.run_cell("%config\n%timeit -n1 -r1 pass")
    del before["namespace"]
    assert difference(before, shell_state(bare_shell)) == []


def test_a_replaced_magic_is_named(bare_shell):
    """Taking the place of a magic of IPython's own is told."""
    before = shell_state(bare_shell)
    bare_shell.register_magic_function(lambda line: line, "line", "who")
    assert "line magics: who was changed" in difference(before, shell_state(bare_shell))


def test_a_shell_runs_cells_and_keeps_what_is_displayed(bare_shell):
    """The private shell gives the last value, the error, and every display's bundle."""
    assert bare_shell.run_cell("1 + 1").result == 2
    assert isinstance(bare_shell.run_cell("1 / 0").error_in_exec, ZeroDivisionError)
    bare_shell.run_cell("from IPython.display import HTML, display; display(HTML('<b>x</b>'))")
    assert [shown["data"]["text/html"] for shown in bare_shell.display_pub.outputs] == ["<b>x</b>"]


def test_loading_and_unloading_leaves_the_shell_as_it_was(shell):
    """While loaded ``%tensor`` exists; that nothing stays after unloading is what the fixture asserts."""
    assert "tensor" in shell.magics_manager.magics["line"]


def test_loading_again_after_unloading_works(shell):
    """Reloading is unload and load: the magics are there again, once."""
    shell.extension_manager.reload_extension("tensormagic")
    assert "tensor" in shell.magics_manager.magics["line"]
    names = [type(item).__name__ for item in shell.configurables]
    assert len([name for name in names if name.startswith("TensorMagic")]) <= 1
