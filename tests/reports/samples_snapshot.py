"""A hand-made report of a memory snapshot: every field filled, sums that are right, names that are hostile."""

from __future__ import annotations

from array import array

from tensormagic import reports
from tests.reports.samples import HOSTILE, finding

LINE = reports.Location("/home/ada/train.py", 12, "h = layer(h)", None, "forward")
CALLER = reports.Location(HOSTILE, 99)


def snapshot_report() -> reports.SnapshotReport:
    """Return a device whose history ended in a refused allocation."""
    return reports.SnapshotReport(
        findings=(finding(),),
        source=HOSTILE,
        devices=(
            reports.SnapshotDevice(
                "cuda:0", reserved=2**21, allocated=2**20, requested=2**20 - 100, awaiting=512, largest_free=2**19,
                segments=2, blocks=3, events=9, actions={"alloc": 5, "oom": 1, "free_requested": 3}, peak=2**20 + 5,
                reserved_peak=2**21,
            ),
            reports.SnapshotDevice("cuda:1"),
        ),
        segments=(
            reports.Segment(
                "cuda:0", 2**46, 2**20, allocated=2**19, awaiting=512, blocks=7, stream=5, kind="large", pool=(0, 3),
                expandable=True, largest_free=2**18,
                ranges=(
                    reports.SnapshotRange("allocated", 2**19, 2**19, 1, 0),
                    reports.SnapshotRange("awaiting free", 512, 512),
                    reports.SnapshotRange("mixed", 2**18, 100, 4),
                    reports.SnapshotRange("free", 2**18 - 512),
                ),
            ),
        ),
        segments_left_out=(1, 2**20),
        live=(reports.SnapshotBlock("cuda:0", 2**19, 2**19 - 100, "allocated", 0, (CALLER, LINE), 5, HOSTILE),),
        live_left_out=(2, 2**19),
        timelines=(
            reports.Timeline(
                device="cuda:0", seconds=array("f", [0.0, 0.25, 0.5]), operation=(0, 4, 8),
                live=(500, 2**20 + 5, 2**20),
                before=(500, 500, 400), by_category=(("other", (0, 2**20 - 495, 2**20 - 400)),),
                by_line=((0, (0, 2**20 - 500, 2**20 - 410)), (-1, (0, 5, 10))), peak=1,
            ),
        ),
        reserved=((0, 2**21, 2**21),),
        peak_blocks=(reports.SnapshotBlock("cuda:0", 2**19, 2**19, "allocated", 0, (LINE,), 0, "gradient"),),
        peak_left_out=(3, 2**19 + 5),
        lines=(reports.LineMemory(LINE, allocated=2**21, freed=30, kept=2**19, at_peak=2**19, largest=2**19, calls=4),),
        lines_left_out=(7, 70),
        refused=(reports.RefusedAllocation("cuda:0", 2**33, 2**20, 2**20, 0.5, (CALLER, LINE)),),
        settings={"PYTORCH_CUDA_ALLOC_CONF": HOSTILE},
        gaps=(reports.Gap("history", "1 event of cuda:0 of an unknown kind"),),
    )  # fmt: skip
