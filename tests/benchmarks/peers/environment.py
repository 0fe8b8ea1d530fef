"""An environment for the peers: what torch needs is borrowed from ours, so that only they are downloaded."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
_PURELIB = "import sysconfig; print(sysconfig.get_path('purelib'))"


def wanted() -> list[str]:
    """Return the requirements, one a peer."""
    lines = REQUIREMENTS.read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def make(folder: Path) -> Path:
    """Make the environment, or take the one that is there; return its Python."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    place = subprocess.run([str(python), "-c", _PURELIB], check=True, capture_output=True, text=True).stdout.strip()
    Path(place, "borrowed.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return python


def install(python: Path) -> dict[str, str]:
    """Install every peer; return what kept the others away, by name."""
    absent = {}
    for requirement in wanted():
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", requirement]
        ran = subprocess.run(pip, capture_output=True, text=True, check=False)
        if ran.returncode:
            absent[requirement.partition("==")[0]] = (ran.stderr.strip() or "pip failed").splitlines()[-1]
    return absent
