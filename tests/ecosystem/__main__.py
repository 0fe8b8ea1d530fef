"""``make ecosystem``: install the libraries, run each one's program under every follower, then the launchers of ranks.

It writes the page's tables. ``python -m tests.ecosystem NAME …`` runs those that are named, and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

from tests.benchmarks.peers import environment
from tests.benchmarks.peers.tables import table
from tests.ecosystem import models, science, training  # noqa: F401  (imported for the programs in them)
from tests.ecosystem.launchers import LAUNCHERS, faults as faults_of_ranks
from tests.ecosystem.libraries import LIBRARIES, REQUIREMENTS
from tests.support.kernel import ROOT

FOLDER = ROOT / "build" / "ecosystem"
PAGE = ROOT / "docs" / "libraries.md"
SECONDS = 900  # for one library
HEAD = ("library", "version", "what runs", "outcome")
HEAD_OF_LAUNCHERS = ("two ranks started by", "version", "outcome")
_ABSENT = "not to be had"
Faults = Mapping[str, list[str]]


def main() -> int:
    """Do as the arguments say; the exit code says whether all is as it must be."""
    parser = argparse.ArgumentParser(description="Runs other people's training loops under every follower.")
    parser.add_argument("libraries", nargs="*", metavar="NAME", help=f"of {', '.join((*LIBRARIES, *LAUNCHERS))}")
    parser.add_argument("--environment", type=Path, default=FOLDER, help="where the libraries are installed")
    given = parser.parse_args()
    if unknown := set(given.libraries) - LIBRARIES.keys() - LAUNCHERS.keys():
        parser.error(f"no such library or launcher: {', '.join(sorted(unknown))}")
    python = environment.make(given.environment)
    failed = environment.install(python, REQUIREMENTS, constraints=ROOT / "constraints.txt")
    absent = {name.partition("[")[0]: reason for name, reason in failed.items()}
    found = {name: _tried(python, name, absent) for name in given.libraries or (*LIBRARIES, *LAUNCHERS)}
    if not given.libraries:
        PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")
    return int(any(_ABSENT not in faults and any(faults.values()) for faults in found.values()))


def _tried(python: Path, name: str, absent: Mapping[str, str]) -> Faults:
    """Run a library's program, or start ranks by a launcher; print and return what was wrong, by follower."""
    needed = LAUNCHERS[name].needs if name in LAUNCHERS else (name,)
    if without := [absent[each] for each in needed if each in absent]:
        return {_ABSENT: without}
    if name in LAUNCHERS:
        with tempfile.TemporaryDirectory() as folder:
            faults = {"ranks": faults_of_ranks(python, name, Path(folder))}
    else:
        faults = _run(python, name)
    print(f"{name}: {'as it must be' if not any(faults.values()) else ''}")
    for follower, sentences in faults.items():
        for sentence in sentences:
            print(f"    {follower}: {sentence}")
    sys.stdout.flush()
    return faults


def _run(python: Path, name: str) -> Faults:
    """Run one library's program in a process of its own; return what was wrong, by follower."""
    command = [str(python), "-m", "tests.ecosystem.follow", name]
    settings = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    try:
        ran = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {"untraced": [f"it took more than {SECONDS} seconds"]}
    said: Faults = {"untraced": [ran.stderr.strip()[-1000:]]}
    return said if ran.returncode else json.loads(ran.stdout.splitlines()[-1])


def versions() -> dict[str, str]:
    """Return what is installed, at which versions."""
    pinned = (line.split("==") for line in environment.wanted(REQUIREMENTS))
    return {name.partition("[")[0]: version for name, version in pinned}


def rows(found: Mapping[str, Faults]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each library."""
    for name in sorted(found.keys() & LIBRARIES.keys()):
        yield name, versions()[name], LIBRARIES[name].does, _outcome(name, found[name])


def rows_of_launchers(found: Mapping[str, Faults]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each launcher."""
    there = {"torch": torch.__version__.partition("+")[0], **versions()}
    for name, launcher in LAUNCHERS.items():
        if name in found:
            needed = ", ".join(f"{each} {there[each]}" for each in launcher.needs or ("torch",))
            yield launcher.does, needed, _outcome(name, found[name])


def _outcome(name: str, faults: Faults) -> str:
    if _ABSENT in faults:
        return _ABSENT
    wrong = [follower for follower, sentences in faults.items() if sentences]
    if wrong:
        return f"FAILS: {', '.join(wrong)}"
    if name in LAUNCHERS:
        return "identical"
    same = "identical" if not LIBRARIES[name].as_under_a_mode else "identical, but see below"
    return f"{same}; {', '.join(LIBRARIES[name].finds)}" if LIBRARIES[name].finds else same


def with_tables(text: str, found: Mapping[str, Faults]) -> str:
    """Return the page's text with the tables of a run."""
    for head, lines in ((HEAD, rows(found)), (HEAD_OF_LAUNCHERS, rows_of_launchers(found))):
        new = table(head, lines)
        text, count = re.subn(rf"^\| {head[0]} \|.*\n(?:\|.*\n)+", lambda _, new=new: new, text, flags=re.MULTILINE)
        assert count == 1, "one table of each kind"
    return text


if __name__ == "__main__":
    sys.exit(main())
