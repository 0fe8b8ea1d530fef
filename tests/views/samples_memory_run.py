"""Hand-made reports of runs: a training loop that leaks, two thousand moments, out of memory, nothing, hostile."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field, replace

from tensormagic import reports
from tests.reports.samples_memory import memory_run_report
from tests.views.samples_memory import gpt, storage

KIB, MIB, GIB = 2**10, 2**20, 2**30
FILE = "<ipython-input-7>"
SOURCE = (
    "%%gpumem",
    "losses = []",
    "for batch, target in loader:",
    "    optimizer.zero_grad()",
    "    out = net(batch)",
    "    loss = criterion(out, target)",
    "    loss.backward()",
    "    optimizer.step()",
    "    losses.append(loss)",
    "",
    "print(len(losses))",
)


def place(line: int, text: str = "", filename: str = FILE) -> reports.Location:
    return reports.Location(filename, line, text or SOURCE[line - 1].strip(), 7 if filename == FILE else None)


@dataclass
class Recording:
    """Writes a timeline as a recorder would: allocations and frees, one operation each."""

    before: int
    stacks: dict[tuple[reports.Category, int], int] = field(default_factory=dict)
    moments: list[tuple[int, dict[tuple[reports.Category, int], int]]] = field(default_factory=list)
    operation: int = 0

    def change(self, category: reports.Category, line: int, nbytes: int) -> None:
        self.operation += 1
        self.stacks[category, line] = self.stacks.get((category, line), 0) + nbytes
        self.moments.append((self.operation, dict(self.stacks)))

    def timeline(self, device: str = "cpu") -> reports.Timeline:
        live = [self.before + sum(stacks.values()) for _, stacks in self.moments]
        lines = sorted({line for _, line in self.stacks})
        return reports.Timeline(
            device=device,
            seconds=array("f", [at * 0.002 for at in range(len(live))]),
            operation=tuple(operation for operation, _ in self.moments),
            live=tuple(live),
            before=(self.before,) * len(live),
            by_category=tuple((name, self._sums(lambda key, name=name: key[0] == name)) for name in reports.CATEGORIES),
            by_line=tuple((line, self._sums(lambda key, line=line: key[1] == line)) for line in lines),
            peak=max(range(len(live)), key=live.__getitem__),
        )

    def _sums(self, wanted) -> tuple[int, ...]:
        return tuple(sum(value for key, value in stacks.items() if wanted(key)) for _, stacks in self.moments)


def recorded(iterations: int) -> Recording:
    """A training loop of a small network with Adam, whose losses keep a little of each graph."""
    made, layers = Recording(before=18 * MIB), 6
    for iteration in range(iterations):
        for layer in range(layers):
            made.change("saved for backward", 0, (3 + layer % 3) * MIB)
            made.change("other", 0, MIB)
        made.change("saved for backward", 1, 2 * MIB)
        for layer in reversed(range(layers)):
            made.change("gradient", 2, (2 + layer % 2) * MIB)
            made.change("saved for backward", 0, -(3 + layer % 3) * MIB)
            made.change("other", 0, -MIB)
        for layer in range(layers):
            if not iteration:
                made.change("optimizer state", 3, 2 * (2 + layer % 2) * MIB)
        made.change("saved for backward", 1, -2 * MIB + 300 * KIB)
        for layer in range(layers):
            made.change("gradient", 2, -(2 + layer % 2) * MIB)
    return made


LINES = (
    reports.LineMemory(place(5), allocated=1200 * MIB, backward=90 * MIB, freed=12 * MIB, at_peak=4 * MIB,
                       largest=5 * MIB, calls=480, executions=40, op="aten.addmm.default"),
    reports.LineMemory(place(6), allocated=80 * MIB, freed=MIB, kept=12 * MIB, at_peak=12 * MIB, largest=2 * MIB,
                       calls=120, executions=40, op="aten._log_softmax.default"),
    reports.LineMemory(place(7), allocated=640 * MIB, freed=1000 * MIB, at_peak=15 * MIB, largest=3 * MIB, calls=480,
                       executions=40, op="aten.mm.default"),
    reports.LineMemory(place(8), allocated=30 * MIB, kept=30 * MIB, at_peak=30 * MIB, largest=6 * MIB, calls=12,
                       executions=40, op="aten.zeros_like.default"),
    reports.LineMemory(place(41, "return F.relu(self.fc(x))", "/home/ada/net.py"), allocated=300 * MIB, freed=20 * MIB,
                       largest=4 * MIB, calls=240, executions=240, op="aten.relu.default"),
)  # fmt: skip


def block(
    name: str, nbytes: int, category: reports.Category, line: int, op: str, *, freed_at: int | None = None
) -> reports.AllocatedBlock:
    return reports.AllocatedBlock(
        storage(name, nbytes, category, device="cpu"), op, line, 12 * line + 4, freed_at, "forward"
    )


BLOCKS = (
    *(block(f"opt.state[net.{at}.weight]['{key}']", (6 - at) * MIB, "optimizer state", 3, "aten.zeros_like.default")
      for at in range(4) for key in ("exp_avg", "exp_avg_sq")),
    *(block(f"net.{at}.weight.grad", (3 - at % 2) * MIB, "gradient", 2, "aten.mm.default", freed_at=900)
      for at in range(5)),
    block("", 4 * MIB, "saved for backward", 0, "aten.relu.default", freed_at=700),
    *(block(f"losses[{at}]", 300 * KIB, "saved for backward", 1, "aten._log_softmax.default") for at in range(12)),
    block("out", 2 * MIB, "other", -1, "aten.addmm.default"),
)  # fmt: skip


def training(iterations: int = 12) -> reports.MemoryRunReport:
    """A training loop with a leak of losses."""
    made = recorded(iterations)
    leak = reports.Leak(place(6), "cpu", 300 * KIB, iterations, iterations * 300 * KIB, "losses", place(9), graph=True)
    message = f"`losses` keeps the graphs of {iterations} iterations: {300 * iterations} KiB more after each."
    return reports.MemoryRunReport(
        findings=(reports.Finding("TM503", "warning", message, place(9), {"iterations": iterations},
                          "Store numbers: `losses.append(loss.item())`."),),
        cell=reports.Cell(FILE, 7, SOURCE), state="finished", seconds=0.84, operations=made.operation,
        timelines=(made.timeline(),), lines=LINES, peak_blocks=BLOCKS, peak_left_out=(31, 2 * MIB),
        kept=BLOCKS[:8], kept_left_out=(2, 64), leaks=(leak,), at_end=tuple(one.storage for one in BLOCKS[:10]),
    )  # fmt: skip


def died() -> reports.MemoryRunReport:
    """A run that died of the memory that it asked for."""
    failed = reports.OutOfMemory(
        "cuda:0", 8 * GIB, "aten.mm.default", place(5), "CUDA out of memory. Tried to allocate 8.00 GiB.", 310 * MIB
    )
    return replace(
        training(3), state="failed", error="OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB.",
        out_of_memory=failed, at_end=gpt().storages[:90], leaks=(), findings=(), freeable=gpt().freeable[:4],
        allocator=(
            reports.AllocatorRun("cuda:0", 412, peak=90 * MIB, reserved=120 * MIB, seen_peak=82 * MIB, lines=(
                reports.AllocatorLine(place(5), 40 * MIB, 32 * MIB, 30, 8 * MIB),
                reports.AllocatorLine(None, 2 * MIB, MIB, 4, MIB),
                reports.AllocatorLine(place(7), 8 * MIB, 8 * MIB, 12, MIB),
            ), unnamed=((None, 2, MIB),), complete=False),
        ),
    )  # fmt: skip


FORWARD = ("    def forward(self, x):", '        """One layer."""', "        return F.relu(self.fc(x))")
LONG = recorded(60).timeline("cuda:0")
SAMPLES = {
    "training": training(),
    # Two thousand moments of a run of twenty thousand operations, on two devices.
    "long": replace(training(), operations=20_000, timelines=(
        replace(LONG, operation=tuple(at * 10 for at in LONG.operation)), training().timelines[0],
    )),
    "died": died(),
    # A run whose model was gone through line by line.
    "functions": replace(training(4), title="two layers", functions=(
        reports.FunctionMemory("net.forward", "/home/ada/net.py", 39, FORWARD, (4,)),
        reports.FunctionMemory("idle", "/home/ada/net.py", 90),
    )),
    # A cell without a tensor.
    "empty": reports.MemoryRunReport(
        cell=reports.Cell(FILE, 7, ("%%gpumem", "x = 1")), state="finished", seconds=0.001,
        gaps=(reports.Gap("lines", "no operation of torch ran"),),
    ),
    "hostile": memory_run_report(),
}  # fmt: skip
