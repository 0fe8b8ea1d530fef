"""``make ecosystem``: install the libraries, run each one's program under every follower, and write the page's table.

``python -m tests.ecosystem NAME …`` runs those that are named, and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.benchmarks.peers import environment
from tests.benchmarks.peers.tables import table
from tests.ecosystem import models, science, training  # noqa: F401  (imported for the programs in them)
from tests.ecosystem.libraries import LIBRARIES, REQUIREMENTS
from tests.support.kernel import ROOT

FOLDER = ROOT / "build" / "ecosystem"
PAGE = ROOT / "docs" / "libraries.md"
SECONDS = 900  # for one library
HEAD = ("library", "version", "what runs", "outcome")
_TABLE = re.compile(r"^\| library \|.*\n(?:\|.*\n)+", re.MULTILINE)
Faults = Mapping[str, list[str]]


def main() -> int:
    """Do as the arguments say; the exit code says whether all is as it must be."""
    parser = argparse.ArgumentParser(description="Runs other people's training loops under every follower.")
    parser.add_argument("libraries", nargs="*", metavar="NAME", help=f"of {', '.join(LIBRARIES)}")
    parser.add_argument("--environment", type=Path, default=FOLDER, help="where the libraries are installed")
    given = parser.parse_args()
    if unknown := set(given.libraries) - LIBRARIES.keys():
        parser.error(f"no such library: {', '.join(sorted(unknown))}")
    python = environment.make(given.environment)
    absent = environment.install(python, REQUIREMENTS, constraints=ROOT / "constraints.txt")
    found = {
        name: {"not to be had": [absent[name]]} if name in absent else _run(python, name)
        for name in given.libraries or LIBRARIES
    }
    if not given.libraries:
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")
    return int(any(name not in absent and any(faults.values()) for name, faults in found.items()))


def _run(python: Path, name: str) -> Faults:
    """Run one library's program in a process of its own; print and return what was wrong, by follower."""
    command = [str(python), "-m", "tests.ecosystem.follow", name]
    settings = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    try:
        ran = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        faults = {"untraced": [f"it took more than {SECONDS} seconds"]}
    else:
        said = ran.stdout.splitlines()
        faults = json.loads(said[-1]) if ran.returncode == 0 else {"untraced": [ran.stderr.strip()[-1000:]]}
    print(f"{name}: {'as it must be' if not any(faults.values()) else ''}")
    for follower, sentences in faults.items():
        for sentence in sentences:
            print(f"    {follower}: {sentence}")
    sys.stdout.flush()
    return faults


def rows(found: Mapping[str, Faults]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each library."""
    versions = dict(line.split("==") for line in environment.wanted(REQUIREMENTS))
    for name in sorted(found):
        yield name, versions[name], LIBRARIES[name].does, _outcome(name, found[name])


def _outcome(name: str, faults: Faults) -> str:
    if "not to be had" in faults:
        return "not to be had"
    wrong = [follower for follower, sentences in faults.items() if sentences]
    if wrong:
        return f"FAILS: {', '.join(wrong)}"
    same = "identical" if not LIBRARIES[name].as_under_a_mode else "identical, but see below"
    return f"{same}; {', '.join(LIBRARIES[name].finds)}" if LIBRARIES[name].finds else same


def with_table(text: str, found: Mapping[str, Faults]) -> str:
    """Return the page's text with the table of a run."""
    text, count = _TABLE.subn(lambda _: table(HEAD, rows(found)), text)
    assert count == 1, "one table of libraries"
    return text


if __name__ == "__main__":
    sys.exit(main())
