"""``make peers``: install the peers, measure, and write the page; ``--page`` writes the page of the last run anew."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path

from tests.benchmarks.peers import environment, tables
from tests.support.kernel import ROOT

FOLDER = ROOT / "build" / "peers"


def main() -> None:
    """Do as the arguments say."""
    parser = argparse.ArgumentParser(description="Measures the other tools, and writes docs/comparison.md.")
    parser.add_argument("--page", action="store_true", help="only write the page, from what was measured last")
    parser.add_argument("--environment", type=Path, default=FOLDER, help="where the peers are installed")
    given = parser.parse_args()
    if not given.page:
        measure(given.environment)
    tables.write()


def measure(folder: Path) -> None:
    """Install, measure in a process of that environment, and keep what came out."""
    python = environment.make(folder)
    kept_away = environment.install(python)
    command = [str(python), "-m", "tests.benchmarks.peers.measure"]
    settings = {**os.environ, "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory() as place:  # some leave pictures where they run
        ran = subprocess.run(command, cwd=place, env=settings, check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(ran.stdout.splitlines()[-1])
    found["absent"] |= kept_away
    text = json.dumps(found, indent=1, ensure_ascii=False)
    tables.MEASURED.write_text(f"{text}\n", encoding="utf-8")
    for name, why in found["absent"].items():
        print(f"left out: {name}: {why}")


if __name__ == "__main__":
    main()
