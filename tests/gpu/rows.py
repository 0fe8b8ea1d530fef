"""The table of the check: rows as they come, each ok, BAD, skipped, or info."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass

import torch

from tests.gpu.workloads import CUDA


@dataclass(frozen=True)
class Row:
    part: str
    verdict: str
    what: str
    value: str = ""
    note: str = ""

    def line(self):
        return f"{self.verdict:<7} {self.part:<8} {self.what:<62} {self.value:<28} {self.note}".rstrip()


ROWS: list[Row] = []
BEGAN = [time.monotonic()]


def begin():
    """Count seconds from here: between import and check there may be minutes of other tests."""
    BEGAN[0] = time.monotonic()
    ROWS.clear()


def elapsed():
    """Return how long the check has been running."""
    return time.monotonic() - BEGAN[0]


def row(part, verdict, what, value="", note=""):
    """Add a row, and print it."""
    ROWS.append(Row(part, verdict, what, str(value), str(note)))
    print(f"[{elapsed():4.0f} s] {ROWS[-1].line()}", flush=True)


def check(part, what, good, value="", note=""):
    """Add a row that is ok or BAD."""
    row(part, "ok" if good else "BAD", what, value, note)


def info(part, what, value="", note=""):
    """Add a row that is for reading."""
    row(part, "info", what, value, note)


def markdown():
    """Return the table as Markdown."""
    heads = ["| | part | what | value | note |", "|---|---|---|---|---|"]
    cells = ([each.verdict, each.part, each.what, each.value, each.note] for each in ROWS)
    return (
        "\n".join([*heads, *("| " + " | ".join(one.replace("|", "∕") for one in line) + " |" for line in cells)]) + "\n"
    )


def sync():
    """Wait for the device."""
    if CUDA:
        torch.cuda.synchronize()


def clean():
    """Let go of everything, and count peaks from here."""
    gc.collect()
    if CUDA:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def codes(report):
    """Return the codes of a report's findings."""
    return [finding.code for finding in report.findings]


def gaps(report):
    """Return the reasons of a report's gaps, shortened."""
    return "; ".join(gap.reason[:90] for gap in report.gaps)
