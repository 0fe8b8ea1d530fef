"""Hand-made runs with in-place writes: one with every kind of effect, and the awkward ones."""

from __future__ import annotations

from dataclasses import replace

from tensormagic.diagnoses import diagnose
from tensormagic.reports import Cell, ChangedName, Clash, Location, Write, WritesReport
from tests.reports.samples import writes_report

LINES = (
    "%%aliases",
    "x = torch.arange(12.0).view(3, 4)",
    "first_row, numbers = x[0], x.numpy()",
    "x[:, 1:] += x[:, :-1]",
    "first_row *= 2",
    "e = torch.zeros(3).expand(2, 3)",
    "e[0] = 1",
    "for step in range(5):",
    "    optimizer.step()",
)


def location(line: int) -> Location:
    return Location("<ipython-input-7>", line, LINES[line - 1].strip(), cell=7)


def changed(name: str, elements: int, of: int, marks: str = "", **facts) -> ChangedName:
    shape = facts.pop("shape", (of,))
    relation = facts.pop("relation", "base")
    return ChangedName(name, relation, "Tensor", shape, elements, of, marks=marks, **{"noticed": True, **facts})


def write(line: int, op: str, target: str, *besides: ChangedName, **facts) -> Write:
    more = {"shape": (3,), "count": 1, **facts}
    return Write(location(line), op, target, changed=besides, **more)


def finished(*writes: Write, **facts) -> WritesReport:
    """Return a report with the findings that its writes give."""
    known = {"state": "finished", "seconds": 0.012, "names_searched": 240, **facts}
    cell = Cell("<ipython-input-7>", 7, LINES)
    report = WritesReport(cell=cell, writes=writes, writes_seen=sum(write.count for write in writes), **known)
    return replace(report, findings=diagnose(report))


def effects() -> WritesReport:
    """Every kind of effect on one cell."""
    numbers = {"relation": "NumPy array", "noticed": False, "shape": (3, 4)}
    wrong = Clash("reads what it writes", "x", 6, 9, wrong=5, index=(0, 3), got="6", expected="5")
    best = tuple(changed(f"best['{at}.weight']", 12, 12, "9" * 12, relation="same storage") for at in range(8))
    history = changed("history", 12, 12, "9" * 12, relation="item of a list", items=4, writes=3)
    return finished(
        write(4, "add_", "x", changed("first_row", 3, 4, "0999", extent="within", first=(1,)),
              changed("numbers", 9, 12, "099909990999", first=(0, 1), **numbers), shape=(3, 3), clash=wrong),
        write(5, "mul_", "first_row", changed("x", 4, 12, "999900000000", extent="around", shape=(3, 4), first=(0, 0)),
              changed("numbers", 4, 12, "999900000000", first=(0, 0), **numbers), shape=(4,)),
        write(7, "fill_", "e", clash=Clash("repeats", "e", 6, 3)),
        write(9, "addcdiv_", "net.0.weight", *best, history, count=30, several=True),
        engine_writes=20,
    )  # fmt: skip


def large() -> WritesReport:
    """A long cell, two hundred writing lines of another file, and names by the dozen."""
    lines = tuple(f"line_{number} = {number}" for number in range(1, 301))
    names = tuple(changed(f"a_rather_long_name_{at}", 5000, 10_000, "5" * 48) for at in range(40))
    inside = tuple(
        Write(Location("model.py", at, f"self.buffer[{at}] = x", function="forward"), "copy_", "self.buffer", (4,), 9)
        for at in range(1, 201)
    )
    here = (
        Write(Location("<ipython-input-7>", 150, lines[149], 7), "mul_", "x", (4,), 1, changed=names),
        Write(Location("<ipython-input-7>", 250, lines[249], 7), "mul_", "y", (4,), 1),
    )
    report = WritesReport((), "finished", "", Cell("<ipython-input-7>", 7, lines), 1.0, here + inside, 1802)
    return replace(report, findings=diagnose(report))


ERROR = "RuntimeError: unsupported operation: some elements of the input tensor and the written-to tensor refer to"
REFUSED = Clash("reads what it writes", "x", 10, 11, refused=True)
SAMPLES = {
    "effects": effects(),
    # Writes that changed nothing else; no write at all; a cell that failed because torch refused.
    "quiet": finished(write(2, "mul_", "x"), write(9, "lerp_", "", count=1200, several=True)),
    "nothing": finished(),
    "refused": finished(write(4, "add_", "x", shape=(11,), clash=REFUSED), state="failed", error=ERROR),
    "large": large(),
    "hostile": writes_report(),
}
