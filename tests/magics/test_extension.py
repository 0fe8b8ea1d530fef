"""Loading, unloading and reloading, settings, and a torch that is missing or too old."""

from __future__ import annotations

import importlib.util
import inspect
import sys

import pytest
from IPython.core import magic
from IPython.core.error import UsageError

from tensormagic import api, reports
from tensormagic.collectors import requirements
from tensormagic.magics import extension, frames
from tests.support.shell import difference, private_shell, shell_state

MAGICS = {"line": ("aliases", "tensor", "tensormagic", "tensors", "tracegrad"), "cell": ("tracegrad",)}


def loaded(shell):
    found = shell.magics_manager.magics
    return all(name in found[kind] for kind, names in MAGICS.items() for name in names)


def test_load_unload_reload(bare_shell):
    """The magics come and go; after each unload the shell is as before."""
    before = shell_state(bare_shell)
    for _ in range(2):
        bare_shell.run_line_magic("load_ext", "tensormagic")
        assert loaded(bare_shell)
        bare_shell.run_line_magic("reload_ext", "tensormagic")
        assert loaded(bare_shell)
        bare_shell.run_line_magic("unload_ext", "tensormagic")
        assert not any(name in bare_shell.magics_manager.magics["line"] for name in MAGICS["line"])
        after = shell_state(bare_shell)
        assert [text for text in difference(before, after) if not text.startswith("namespace")] == []


def test_loading_twice_is_the_same_as_once(bare_shell):
    """A second load registers nothing a second time."""
    from tensormagic import load_ipython_extension, unload_ipython_extension

    load_ipython_extension(bare_shell)
    state = shell_state(bare_shell)
    load_ipython_extension(bare_shell)
    assert difference(state, shell_state(bare_shell)) == []
    unload_ipython_extension(bare_shell)
    unload_ipython_extension(bare_shell)
    assert not loaded(bare_shell)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("model(x)", NameError), ("  tensor([1, 2])", NameError), ("tensors", NameError), ("why + 1", NameError),
        ("tensor nowhere", UsageError), ("%model(nowhere)", UsageError),
    ],
)  # fmt: skip
@pytest.mark.parametrize("above", ["", "%%rng\n"])
def test_automagic_takes_no_line_that_is_python(shell, line, error, above):
    """A name that is not there yet is a `NameError`, although a magic has that name."""
    ran = shell.run_cell(above + line)
    assert type(ran.error_in_exec or ran.error_before_exec) is error


def test_two_shells_at_once(shell, tmp_path, capsys):
    """Unloading one leaves the other, and the way in which reports are shown there, alone."""
    with private_shell(tmp_path / "second") as second:
        second.extension_manager.load_extension("tensormagic")
        second.extension_manager.unload_extension("tensormagic")
        assert not loaded(second)
    assert loaded(shell)
    shell.run_cell("import torch, tensormagic\ntensormagic.show(tensormagic.inspect(torch.ones(2), 'one'))")
    assert [sorted(output["data"]) for output in shell.display_pub.outputs] == [
        ["text/html", "text/latex", "text/plain"]
    ]
    assert capsys.readouterr().out == ""


def test_without_the_extension_show_prints(capsys):
    """In a script a report is text."""
    import torch

    api.show(api.inspect(torch.ones(2), "one", namespace={}))
    assert capsys.readouterr().out.startswith("── one ──")


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (None, "tensormagic needs torch 2.10 or newer, but found none: pip install torch"),
        (
            "2.5.1+cu124",
            "tensormagic needs torch 2.10 or newer, but found torch 2.5.1+cu124: pip install --upgrade torch",
        ),
    ],
)
def test_torch_missing_or_too_old(bare_shell, monkeypatch, capsys, found, line):
    """One line with what was found and what is needed; no magic is there, and no traceback."""

    def version(package):
        assert package == "torch"
        if found is None:
            raise requirements.metadata.PackageNotFoundError(package)
        return found

    requirements.require_torch.cache_clear()
    monkeypatch.setattr(requirements.metadata, "version", version)
    bare_shell.run_line_magic("load_ext", "tensormagic")
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == (line + "\n", "")
    assert not loaded(bare_shell)
    bare_shell.run_line_magic("unload_ext", "tensormagic")


def test_the_settings_are_listed_and_checked(cell):
    """%config TensorMagic shows the choices; a wrong one is refused and changes nothing."""
    assert "TensorMagic.live=<Enum>" in cell("%config TensorMagic").out
    cell("%config TensorMagic.live = 'off'")
    cell("%config TensorMagic.live = 'bogus'")
    assert "%config TensorMagic.live = 'off'" in cell("%tensormagic").out


@pytest.mark.parametrize(
    ("version", "colab", "live"), [("7.7.1", False, "html"), ("7.7.1", True, "widget"), ("8.1.9", False, "widget")]
)
def test_a_cell_is_shown_live_by_what_works(bare_shell, monkeypatch, version, colab, live):
    """Pages of today show no widget of ipywidgets 7; Colab does."""
    monkeypatch.setattr("importlib.metadata.version", lambda _: version)
    monkeypatch.delenv("COLAB_RELEASE_TAG", raising=False)
    if colab:
        monkeypatch.setenv("COLAB_RELEASE_TAG", "release-colab")
    bare_shell.run_line_magic("load_ext", "tensormagic")
    assert bare_shell.run_line_magic("config", "TensorMagic.live") == live
    bare_shell.run_line_magic("unload_ext", "tensormagic")


def test_a_wrong_setting_does_not_keep_it_from_loading(bare_shell, capsys):
    """IPython keeps what it was given, and a later load meets it: one line says so, and the next setting counts."""
    bare_shell.config.TensorMagic.live = "bogus"
    try:
        bare_shell.run_line_magic("load_ext", "tensormagic")
        assert capsys.readouterr().out.startswith("the settings of tensormagic are left out: The 'live' trait")
        assert [type(one).__name__ for one in bare_shell.configurables].count("TensorMagic") == 1
        bare_shell.run_line_magic("config", "TensorMagic.live = 'off'")
        bare_shell.run_line_magic("reload_ext", "tensormagic")
        assert bare_shell.run_line_magic("config", "TensorMagic.live") == "off"
        bare_shell.run_line_magic("unload_ext", "tensormagic")
    finally:
        del bare_shell.config.TensorMagic


def test_every_report_is_shown_by_the_extension_while_it_is_loaded(shell):
    """The formatter is known by name alone, so that loading imports no report; afterwards it is gone."""
    formatter = shell.display_formatter.mimebundle_formatter
    kinds = {kind for kind in vars(reports).values() if isinstance(kind, type) and issubclass(kind, reports.Report)}
    assert {formatter.lookup_by_type(kind) for kind in kinds} == {frames.bundle}
    shell.run_line_magic("unload_ext", "tensormagic")
    with pytest.raises(KeyError):
        formatter.lookup_by_type(reports.TensorReport)


def test_about(cell):
    """%tensormagic tells the magics, how to get help, the versions and the settings."""
    out = cell("%tensormagic").out
    for words in (
        "%tensor ",
        "%%tracegrad ",
        "--help after any of them",
        "torch 2.",
        "Python 3.",
        "TensorMagic.live = 'widget'",
    ):
        assert words in out
    states = out.partition("versions")[2].splitlines()
    assert max(map(len, states)) <= 110, "a notebook would break it in the middle of a word"
    taken = "takes check, explain on|off, watch on|off, help, or a topic; there is no page on 'x y'"
    assert taken in str(cell("%tensormagic x y").error)
    assert "%tensormagic explain takes on, off, or nothing, but was given 'maybe'" in str(
        cell("%tensormagic explain maybe").error
    )


def test_a_missing_package_is_told_among_the_versions(cell, monkeypatch):
    """What is not installed is said, not left out."""
    from tensormagic.magics import about

    monkeypatch.setattr(about, "_PACKAGES", ("torch", "no-such-package"))
    assert "no-such-package not installed" in cell("%tensormagic").out


def test_loading_brings_neither_plotly_nor_widgets():
    """They come with their first use."""
    import subprocess

    code = (
        "import sys, tensormagic\nfrom tensormagic.magics import extension\n"
        "print([name for name in ('plotly', 'anywidget', 'ipywidgets') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_an_ipython_without_silenced_output(monkeypatch, bare_shell):
    """Before 8.10: the magics are there, and a semicolon silences them."""
    monkeypatch.delattr(magic, "output_can_be_silenced", raising=False)
    spec = importlib.util.spec_from_file_location("tensormagic_of_an_older_ipython", extension.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    bare_shell.register_magics(module.TensorMagic(bare_shell))
    assert "tensor" in bare_shell.magics_manager.magics["line"]
    values = [bare_shell.run_cell_magic("tracegrad", "--text", body) for body in ("7", "7;", "7;  # seven\n", "'7;'")]
    assert values == [7, None, None, "7;"]
    assert bare_shell.run_cell_magic("tracegrad", "--text", "!true (\n7;") == 7  # no Python: nothing says where it ends


@pytest.mark.parametrize("name", ["aliases", "gpumem", "rng", "tracegrad"])
def test_a_cell_magic_takes_a_cell_by_its_signature(name):
    """IPython 7 binds what it calls a magic with to the signature that `inspect` finds."""
    inspect.signature(getattr(extension.TensorMagic, name)).bind(None, "", "pass")
