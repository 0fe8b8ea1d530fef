"""Finds, or where this machine allows it installs, what the tests need beside Python packages.

That is Chromium (the browser tests) and Graphviz's ``dot`` (the benchmarks draw the same graphs with it). Where one
cannot be had this says why and goes on: the tests that need it then skip with the same reason, or fail under
``CI=true``. Uses the standard library alone, since it may run before anything is installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PLAYWRIGHT_PATTERNS = (
    "chromium-*/chrome-linux*/chrome",
    "chromium-*/chrome-mac*/*.app/Contents/MacOS/*",
    "chromium_headless_shell-*/*/*headless*shell",
)
DEBIAN_CHROMIUM = ("chromium", "fonts-dejavu-core")
APT_SECONDS = 900


def runs(program: str) -> bool:
    """Return whether ``program --version`` succeeds (Ubuntu's chromium-browser is a stub that may not)."""
    try:
        return _quietly([program, "--version"], seconds=60) == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def find_chromium(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the path of a Chromium that starts; ``TM_CHROMIUM`` is taken before any other."""
    given = environment.get("TM_CHROMIUM")
    candidates = [given] if given else _chromium_candidates(environment)
    return next((path for path in candidates if runs(path)), None)


def find_dot() -> str | None:
    """Return the path of Graphviz's ``dot``."""
    return shutil.which("dot")


def _chromium_candidates(environment: Mapping[str, str]) -> Iterator[str]:
    yield from (path for path in map(shutil.which, CHROMIUM_NAMES) if path)
    home = Path(environment.get("HOME", "~")).expanduser()
    standard = [home / ".cache/ms-playwright", home / "Library/Caches/ms-playwright"]
    given = environment.get("PLAYWRIGHT_BROWSERS_PATH")
    for folder in [Path(given)] if given else standard:
        for pattern in PLAYWRIGHT_PATTERNS:
            yield from (str(path) for path in sorted(folder.glob(pattern), reverse=True))


def as_administrator() -> list[str] | None:
    """Return what to put before a command to run it as root: nothing for root itself, None where it cannot be."""
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") and _quietly(["sudo", "-n", "true"], seconds=10) == 0:
        return ["sudo", "-n"]
    return None


def apt_install(packages: Sequence[str]) -> str:
    """Install Debian packages; return why it could not be done, or nothing where it was."""
    prefix = as_administrator()
    if shutil.which("apt-get") is None:
        return "this machine has no apt-get"
    if prefix is None:
        return "neither root nor passwordless sudo"
    apt = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y"]
    _visibly([*apt, "update"], seconds=APT_SECONDS)
    failed = _visibly([*apt, "install", "--no-install-recommends", *packages], seconds=APT_SECONDS)
    return f"apt-get could not install {' '.join(packages)}" if failed else ""


def playwright_install() -> str:
    """Let Playwright download its own Chromium; return why it could not, or nothing where it did."""
    system_packages = ["--with-deps"] if as_administrator() is not None and shutil.which("apt-get") else []
    command = [sys.executable, "-m", "playwright", "install", *system_packages, "chromium"]
    return "Playwright could not install its Chromium" if _visibly(command, seconds=APT_SECONDS) else ""


def obtain_chromium() -> str:
    """Install a Chromium: Debian's, or Playwright's own; return why none could be had.

    Ubuntu's package is a stub for a snap, which containers cannot run: there Playwright's comes first.
    """
    reason = apt_install(DEBIAN_CHROMIUM) if is_debian() else "the Debian package is for Debian alone"
    if find_chromium():
        return ""
    return "; ".join(filter(None, (reason, playwright_install())))


def is_debian(release: Path = Path("/etc/os-release")) -> bool:
    """Return whether this is Debian itself (not Ubuntu)."""
    return release.is_file() and "ID=debian" in release.read_text(encoding="utf-8").splitlines()


def main() -> int:
    """Find or install both, and say what came of it; never fails, since the tests say what is missing."""
    reason = "" if find_chromium() else obtain_chromium()
    print(f"chromium: {find_chromium() or f'none ({reason})'}", flush=True)
    reason = "" if find_dot() else apt_install(["graphviz"])
    print(f"graphviz: {find_dot() or f'none ({reason})'}", flush=True)
    return 0


def _quietly(command: Sequence[str], *, seconds: float) -> int:
    silence = subprocess.DEVNULL
    return subprocess.run(
        command, stdin=silence, stdout=silence, stderr=silence, timeout=seconds, check=False
    ).returncode


def _visibly(command: Sequence[str], *, seconds: float) -> int:
    print("+", *command, flush=True)
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, timeout=seconds, check=False).returncode
    except (OSError, subprocess.TimeoutExpired) as error:
        print(error, flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
