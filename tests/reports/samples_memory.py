"""Hand-made reports of memory: every field filled, sums that are right, names that are hostile."""

from __future__ import annotations

from array import array

from tensormagic import reports
from tests.reports.samples import HOSTILE, finding

LINE = reports.Location("cell.py", 7, "losses.append(loss)", 3, "train")


def memory_report() -> reports.MemoryReport:
    """Return a GPU with a parameter and a small rest, and what letting go of two names would free."""
    return reports.MemoryReport(
        findings=(finding(),),
        devices=(device(),),
        storages=(storage(),),
        left_out=(reports.LiveStorage("", 24, "cuda:0", "other", tensors=2),),
        freeable=(
            reports.FreeableMemory(
                "net",
                "name",
                4096,
                1,
                8192,
                shared_with=(HOSTILE,),
                device_bytes={"cuda:0": 4096},
                code="del net",
                parts=(reports.FreeableMemory(HOSTILE, "item", 2048, 1, 2048, (), {"cuda:0": 2048}, HOSTILE),),
            ),
        ),
        retained=(reports.RetainedMemory((HOSTILE, "_5"), "history", (4,), "float32", "cuda:0", 16, LINE),),
        views=(reports.StorageKeepingView(HOSTILE, 4, 2**24),),
        graphs=(reports.StoredGraph(HOSTILE, "items", 4, 4, 40, 8, 2**20, True, False, True, LINE),),
        looked=17,
        title=HOSTILE,
        gaps=(reports.Gap("names", "only 17 objects were searched"),),
    )


def device() -> reports.DeviceMemory:
    """Return a device of which everything is known."""
    return reports.DeviceMemory(
        device="cuda:0", name=HOSTILE, live=4120, storages=3, tensors=4, allocated=5120, reserved=2**21, peak=6144,
        largest_free=2**20, free=2**30, total=2**34, process=2**28, context=2**27,
        others=(reports.ProcessUse(4321, HOSTILE, None), reports.ProcessUse(17, "python", 2**30)),
    )  # fmt: skip


def storage() -> reports.LiveStorage:
    """Return a weight's storage."""
    return reports.LiveStorage(
        name="net.fc.weight", nbytes=4096, device="cuda:0", category="parameter", dtype="float32", shape=(32, 32),
        tensors=2, holders=(reports.Holder("net.fc.weight", "module", "tensor", 0, LINE),), found=3, module="net.fc",
        location=LINE, backward=True, shared=True,
    )  # fmt: skip


def block() -> reports.AllocatedBlock:
    """Return what a line left alive."""
    return reports.AllocatedBlock(storage(), "aten.mm.default", 0, 3, 9, "forward")


def memory_run_report() -> reports.MemoryRunReport:
    """Return a run that leaked, and died of it."""
    return reports.MemoryRunReport(
        findings=(finding(),),
        cell=reports.Cell("cell.py", 3, ("%%gpumem", HOSTILE)),
        state="failed",
        error="OutOfMemoryError: CUDA out of memory",
        title=HOSTILE,
        seconds=1.5,
        operations=40,
        before=(device(),),
        after=(device(),),
        timelines=(
            reports.Timeline(
                device="cuda:0", seconds=array("f", [0.0, 0.5, 1.0]), operation=(0, 3, 9), live=(100, 4196, 80),
                before=(100, 100, 80), by_category=(("parameter", (0, 4096, 0)),), by_line=((0, (0, 4096, 0)),), peak=1,
                samples=9000,
            ),
        ),
        lines=(
            reports.LineMemory(
                LINE, allocated=4096, backward=96, freed=20, kept=4096, at_peak=4096, peak=4196, largest=4096, calls=2,
                executions=1, op="aten.mm.default",
            ),
        ),
        peak_blocks=(block(),),
        peak_left_out=(3, 96),
        kept=(block(),),
        kept_left_out=(1, 2),
        leaks=(reports.Leak(LINE, "cuda:0", 4096, 40, 163840, HOSTILE, LINE, graph=True, form="sum",
                            training=True, scalars=True, ended=True),),
        out_of_memory=reports.OutOfMemory("cuda:0", 2**33, "aten.mm.default", LINE, HOSTILE, 2**20, 2**34, 5, 6, 7),
        at_end=(storage(),),
        freeable=(reports.FreeableMemory("losses", "name", 4096, 1, 4096),),
        allocator=(
            reports.AllocatorRun(
                "cuda:0", 12, 8192, 2**21, 4196, (reports.AllocatorLine(LINE, 8192, 4096, 3, 4096),),
                ((None, 2, 96), (LINE, 1, 8)), complete=False,
            ),
        ),
        functions=(reports.FunctionMemory("net.forward", "net.py", 7, ("def forward(self, x):", HOSTILE), (0,), 3),),
        gaps=(reports.Gap("lines", "a thread had none"),),
    )  # fmt: skip
