"""An environment for other people's packages: torch is borrowed from ours, so that only they are downloaded."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
_PURELIB = "import sysconfig; print(sysconfig.get_path('purelib'))"


def wanted(requirements: Path = REQUIREMENTS) -> list[str]:
    """Return the requirements, one a package."""
    lines = requirements.read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def make(folder: Path) -> Path:
    """Make the environment, or take the one that is there; return its Python."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    place = subprocess.run([str(python), "-c", _PURELIB], check=True, capture_output=True, text=True).stdout.strip()
    Path(place, "borrowed.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return python


def install(python: Path, requirements: Path = REQUIREMENTS, *, constraints: Path | None = None) -> dict[str, str]:
    """Install every package; return what kept the others away, by name."""
    absent, options = {}, ["--quiet"] if constraints is None else ["--quiet", "-c", str(constraints)]
    for requirement in wanted(requirements):
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", *options, requirement]
        ran = subprocess.run(pip, capture_output=True, text=True, check=False)
        if ran.returncode:
            absent[requirement.partition("==")[0]] = (ran.stderr.strip() or "pip failed").splitlines()[-1]
    return absent
