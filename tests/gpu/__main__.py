"""What only a GPU can show, in one table: ``make gpu``; under eight minutes on one device.

    python -m tests.gpu                        everything; without CUDA, small, and what is skipped is named
    python -m tests.gpu --parts ratio,memory

No part changes a setting of the device. The table is written to ``build/gpu.md`` and, for programs, ``build/gpu.json``.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
import traceback
from pathlib import Path

import torch

from tests.gpu import alone, parts
from tests.gpu.rows import ROWS, Row, begin, check, elapsed, info, markdown, row
from tests.gpu.workloads import CUDA

HERE = Path(__file__).resolve().parents[2]
ALONE = {"graphs": alone.graphs, "oom": alone.oom, "nccl": alone.nccl}
PARTS = {
    "device": parts.device, "correct": parts.correct, "nan": parts.nan, "inspect": parts.inspect,
    "memory": parts.memory, "syncs": parts.syncs, "streams": parts.streams, "half": parts.half,
    "compile": parts.compiled, **ALONE, "ratio": parts.ratio,
}  # fmt: skip
NEED_CUDA = {"memory", "syncs", "streams", "compile", *ALONE}
_MARK = "ROWS "


def _in_own_process(name):
    """Run a part in a process of its own, and take its rows over."""
    command = [sys.executable, "-m", "tests.gpu", "--alone", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=80, cwd=HERE, check=False)
    except subprocess.TimeoutExpired:
        check(name, "ends within 80 s", False)
        return
    lines = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    for found in json.loads(lines[-1].removeprefix(_MARK)) if lines else ():
        ROWS.append(Row(**found))
        print(ROWS[-1].line(), flush=True)
    if done.returncode or not lines:
        check(name, "ends well", False, done.returncode, done.stderr.strip().rpartition("\n")[2][:150])


def _run(name):
    if name in NEED_CUDA and not CUDA:
        row(name, "skipped", "needs a CUDA device")
    elif elapsed() > parts.LIMIT:
        info(name, "left out: time")
    elif name in ALONE:
        _in_own_process(name)
    else:
        try:
            PARTS[name]()
        except Exception:
            check(name, "the check itself", False, "failed", traceback.format_exc().strip().replace("\n", " ∕ ")[-300:])


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__.partition("\n")[0])
    parser.add_argument("--parts", default=",".join(PARTS), help="only these, by name: " + ", ".join(PARTS))
    parser.add_argument("--alone", choices=sorted(ALONE), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.alone:
        try:
            ALONE[asked.alone]()
        finally:
            print(_MARK + json.dumps([dataclasses.asdict(each) for each in ROWS]), flush=True)
        return 0
    names = asked.parts.split(",")
    if unknown := [name for name in names if name not in PARTS]:
        parser.error(f"there is no part {unknown[0]!r}: " + ", ".join(PARTS))
    begin()
    for name in names:
        _run(name)
    bad, skipped = ([each for each in ROWS if each.verdict == verdict] for verdict in ("BAD", "skipped"))
    folder = HERE / "build"
    folder.mkdir(exist_ok=True)
    (folder / "gpu.md").write_text(markdown(), encoding="utf-8")
    (folder / "gpu.json").write_text(
        json.dumps([dataclasses.asdict(each) for each in ROWS], indent=1), encoding="utf-8"
    )
    where = torch.cuda.get_device_name() if CUDA else "a CPU"
    print(f"\n{len(ROWS)} rows, {len(bad)} BAD, in {elapsed():.0f} s on {where}: build/gpu.md")
    if skipped:
        print("skipped without a CUDA device: " + ", ".join(each.part for each in skipped))
    for each in bad:
        print(each.line())
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
