"""``python -m tensormagic doctor``: what is told of a machine, by made-up ones."""

from __future__ import annotations

from importlib import metadata

import pytest

from tensormagic.collectors.requirements import NEWEST_TORCH
from tensormagic.commands import doctor, main
from tensormagic.commands.doctor import Needed
from tests.support.kernel import ROOT
from tools.matrix import ROWS


def test_this_machine_is_well(capsys):
    """The main things are tried out, and work; the exit status says so."""
    assert main(["doctor"]) == 0
    told = capsys.readouterr().out
    assert "a backward traced" in told
    assert told.endswith("everything works\n")


@pytest.mark.parametrize(
    ("line", "parsed"),
    [
        ("torch>=2.6", Needed("torch", "2.6")),
        ("ipython", Needed("ipython")),
        ('jupyterlab>=4.2; extra == "lab"', Needed("jupyterlab", "4.2", "lab")),
        ("jupyterlab>=4.2 ; extra == 'lab'", Needed("jupyterlab", "4.2", "lab")),
        ('executing>=1.2; python_version < "3.11"', None),
        ('tensormagic[lab]; extra == "docs"', None),
    ],
)
def test_requirements_are_read(line, parsed):
    """Name, oldest version and extra; what is for other Pythons is left out."""
    assert doctor.parsed(line) == parsed


@pytest.mark.parametrize(
    ("version", "oldest", "older"), [("2.5.1+cu124", "2.6", True), ("2.13.0", "2.6", False), ("10.0", "9.9", False)]
)
def test_versions_are_compared_by_their_numbers(version, oldest, older):
    """2.13 is newer than 2.6."""
    assert doctor.is_older(version, oldest) is older


def test_a_missing_and_an_old_package(monkeypatch, capsys):
    """Each says what was found, what is needed, and the command that mends it; the status is 1."""
    monkeypatch.setattr(doctor, "needed", lambda: [Needed("torch", "2.6"), Needed("anywidget", "0.9")])

    def version(name):
        if name == "anywidget":
            raise metadata.PackageNotFoundError(name)
        return "2.5.1"

    monkeypatch.setattr(doctor.metadata, "version", version)
    checks = {check.name: check for check in doctor.packages()}
    assert checks["torch"].described == "2.5.1 (needs 2.6 or newer)"
    assert checks["torch"].fix == 'pip install --upgrade "torch>=2.6"'
    assert (checks["anywidget"].status, checks["anywidget"].fix) == ("missing", 'pip install "anywidget"')


@pytest.mark.parametrize(("found", "status"), [("2.15.1+cpu", "ok"), ("2.16.0", "note"), ("3.0.0a0+git1", "note")])
def test_a_torch_that_nobody_has_tried(monkeypatch, found, status):
    """It may work: the note says which one does."""
    monkeypatch.setattr(doctor, "needed", lambda: [Needed("torch", "2.10")])
    monkeypatch.setattr(doctor.metadata, "version", lambda _: found)
    check = {check.name: check for check in doctor.packages()}["torch"]
    assert (check.status, "newer than any that was tried" in check.described) == (status, status == "note")
    assert check.fix == ('pip install "torch==2.15.*"' if status == "note" else "")


def test_the_newest_torch_is_a_row_of_the_matrix():
    """README and the matrix name the same one."""
    newest = ".".join(map(str, NEWEST_TORCH))
    assert f"torch-{newest}" in {row.name for row in ROWS}
    assert f"to {newest}" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_a_missing_extra_is_a_note(monkeypatch):
    """The notebook's packages are not needed for scripts."""
    monkeypatch.setattr(doctor, "needed", lambda: [Needed("no-such-package", "4.2", "lab")])
    (_, check) = doctor.packages()
    assert (check.status, check.fix) == ("note", 'pip install "tensormagic[lab]"')


def test_a_torch_that_cannot_be_imported(monkeypatch):
    """Its own error is told."""
    monkeypatch.setattr(doctor, "torch_facts", lambda: (_ for _ in ()).throw(OSError("libtorch.so is broken")))
    (check,) = doctor.torch_checks()
    assert check.described == "cannot be imported: OSError: libtorch.so is broken"


def test_widgets_that_the_server_lacks(tmp_path, monkeypatch):
    """Where the extension is not there, what it is for and what to do; where it is, its place."""
    for variable, _, _ in doctor._HOSTS:
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "anywidget").mkdir()
    (tmp_path / "anywidget" / "package.json").write_text("{}")
    there, missing = doctor.notebook_checks(lambda: [str(tmp_path)])
    assert (there.status, there.described) == ("ok", f"in {tmp_path}")
    assert missing.described.startswith("not found; it shows widgets in JupyterLab")


def test_a_host_that_makes_itself_known(monkeypatch):
    """Its own set-up is told."""
    monkeypatch.setenv("COLAB_RELEASE_TAG", "release-colab")
    told = {check.name: check.described for check in doctor.notebook_checks(list)}
    assert told["Google Colab"].startswith("live panels work")


def test_widgets_of_a_version_that_no_page_shows(monkeypatch):
    """It is told what is shown in their place, and what to do."""
    monkeypatch.delenv("COLAB_RELEASE_TAG", raising=False)
    monkeypatch.setattr("importlib.metadata.version", lambda _: "7.7.1")
    (told,) = [check for check in doctor.notebook_checks(list) if check.name == "ipywidgets"]
    assert (told.status, told.fix) == ("note", "pip install --upgrade ipywidgets")


def test_what_fails_when_tried_out(monkeypatch, capsys):
    """The error is told, and the status is 1."""
    monkeypatch.setattr(doctor, "_trace", lambda: 1 / 0)
    assert main(["doctor"]) == 1
    assert "ZeroDivisionError: division by zero" in capsys.readouterr().out
