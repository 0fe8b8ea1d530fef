"""Runs a file that forks in a process that has run nothing yet: a fork of any other could wait for ever."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import runpy
from pathlib import Path

SECONDS = 200
# What every one of them would take a second to import.
IMPORTED = (
    "torch._dynamo",
    "torch.distributed.algorithms.join",
    "torch.nn.parallel",
    "tensormagic.api.running",
    "tensormagic.collectors.runs.sampled_trace",
    "tensormagic.comparisons.ranks",
    "tensormagic.diagnoses",
    "tests.support.apart",
)


def run_apart(path: Path) -> str:
    """Run a Python file in its folder, in a fork of a process that has imported torch; return what it prints.

    Raises:
        AssertionError: where it fails, or takes over `SECONDS`; with what it printed.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(IMPORTED))
    process = context.Process(target=_run, args=(str(path),))
    process.start()
    process.join(SECONDS)
    if process.is_alive():
        process.kill()
    printed = path.with_suffix(".out").read_text(encoding="utf-8")
    assert process.exitcode == 0, printed
    return printed


def _run(path: str) -> None:
    os.chdir(Path(path).parent)
    with (
        Path(path).with_suffix(".out").open("w", encoding="utf-8") as out,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(out),
    ):
        runpy.run_path(path)
