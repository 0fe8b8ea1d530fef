"""Finding a browser: what is taken before what, and what is said where nothing can be had."""

from __future__ import annotations

import pytest

from tests.support.missing import missing
from tools import system


def program(path, *, works=True):
    """Write a program that succeeds or fails, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nexit {0 if works else 1}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """A machine on which nothing is found but what the test puts there; returns its folder and environment."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}")
    return tmp_path, {"HOME": str(tmp_path)}


def test_nothing_is_found_on_a_bare_machine(alone):
    """Without any browser there is none, rather than a name that does not start."""
    _, environment = alone
    assert system.find_chromium(environment) is None
    assert system.find_dot() is None


def test_the_given_one_is_taken_before_all_others(alone):
    """``TM_CHROMIUM`` wins over a browser on the path."""
    folder, environment = alone
    program(folder / "bin" / "chromium")
    given = program(folder / "elsewhere" / "my-chromium")
    assert system.find_chromium({**environment, "TM_CHROMIUM": given}) == given


def test_a_given_one_that_does_not_start_is_not_replaced_in_silence(alone):
    """Who names a browser gets that one or none."""
    folder, environment = alone
    program(folder / "bin" / "chromium")
    assert system.find_chromium({**environment, "TM_CHROMIUM": str(folder / "nothing")}) is None


def test_a_stub_that_does_not_start_is_passed_over(alone):
    """Ubuntu's chromium-browser without its snap exits with an error: the next one is taken."""
    folder, environment = alone
    program(folder / "bin" / "chromium-browser", works=False)
    chrome = program(folder / "bin" / "google-chrome")
    assert system.find_chromium(environment) == chrome


def test_playwrights_own_is_found_newest_first(alone):
    """The browser that Playwright downloaded is found where it puts it."""
    folder, environment = alone
    program(folder / ".cache/ms-playwright/chromium-1100/chrome-linux/chrome")
    newest = program(folder / ".cache/ms-playwright/chromium-1200/chrome-linux/chrome")
    assert system.find_chromium(environment) == newest


def test_playwrights_folder_can_be_elsewhere(alone):
    """``PLAYWRIGHT_BROWSERS_PATH`` is honoured."""
    folder, environment = alone
    browser = program(folder / "browsers/chromium-1200/chrome-linux64/chrome")
    assert system.find_chromium({**environment, "PLAYWRIGHT_BROWSERS_PATH": str(folder / "browsers")}) == browser


def test_without_apt_the_reason_is_told(alone):
    """Where nothing can be installed, why not."""
    assert system.apt_install(["graphviz"]) == "this machine has no apt-get"


def test_without_rights_the_reason_is_told(alone, monkeypatch):
    """Neither root nor passwordless sudo: apt-get is not even started."""
    folder, _ = alone
    program(folder / "bin" / "apt-get", works=False)
    monkeypatch.setattr(system.os, "geteuid", lambda: 1000)
    assert system.apt_install(["graphviz"]) == "neither root nor passwordless sudo"


def test_a_failing_apt_is_told(alone, monkeypatch, capfd):
    """As root with an apt-get that fails, the packages are named."""
    folder, _ = alone
    program(folder / "bin" / "apt-get", works=False)
    monkeypatch.setattr(system.os, "geteuid", lambda: 0)
    assert system.apt_install(["chromium", "fonts-dejavu-core"]) == (
        "apt-get could not install chromium fonts-dejavu-core"
    )


@pytest.mark.parametrize(("text", "answer"), [("ID=debian\n", True), ("ID=ubuntu\nID_LIKE=debian\n", False)])
def test_ubuntu_is_not_debian(tmp_path, text, answer):
    """Debian's chromium package is asked for on Debian alone."""
    (tmp_path / "os-release").write_text(text)
    assert system.is_debian(tmp_path / "os-release") is answer


def test_what_is_missing_skips_with_its_reason(monkeypatch):
    """On a user's machine a test that needs what is not there is skipped."""
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no Chromium"):
        missing("no Chromium")


def test_what_is_missing_fails_in_continuous_integration(monkeypatch):
    """Under ``CI=true`` the same is a failure."""
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no Chromium; under CI=true what is missing is a failure"):
        missing("no Chromium")
