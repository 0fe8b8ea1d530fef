"""What having tensormagic costs before it is used: importing and loading. Run by ``make bench``."""

from __future__ import annotations

import statistics
import subprocess
import sys

import pytest

pytestmark = pytest.mark.benchmark

ROUNDS = 7
IMPORT = "import torch, time; t = time.perf_counter(); import tensormagic; print(time.perf_counter() - t)"
LOAD = (
    "import torch, time; from IPython.core.interactiveshell import InteractiveShell; "
    "shell = InteractiveShell.instance(); t = time.perf_counter(); "
    "shell.extension_manager.load_extension('tensormagic'); print(time.perf_counter() - t)"
)


def _seconds(code):
    found = [
        float(
            subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()[-1]
        )
        for _ in range(ROUNDS)
    ]
    return statistics.median(found)


def test_import():
    """``import tensormagic`` adds under 50 ms to ``import torch``."""
    seconds = _seconds(IMPORT)
    print(f"\n    import tensormagic: {1000 * seconds:.0f} ms")
    assert seconds < 0.050


def test_load_extension():
    """``%load_ext tensormagic`` takes under 100 ms."""
    seconds = _seconds(LOAD)
    print(f"\n    %load_ext tensormagic: {1000 * seconds:.0f} ms")
    assert seconds < 0.100
