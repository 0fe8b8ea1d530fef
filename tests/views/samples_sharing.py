"""Hand-made reports of shared memory and of many tensors: one for each thing that their renderers have to get right."""

from __future__ import annotations

from dataclasses import replace

from tensormagic import reports
from tests.reports.samples import alias_report, tensor_table
from tests.views.samples_tensor import SAMPLES as TENSORS

FINDING = reports.Finding(
    "TM201", "note", "`x` shares memory with a.", evidence={"a": 8}, remedy="x = x.clone()", subject="x"
)


def member(name: str, *, relation: str = "view", **more: object) -> reports.AliasMember:
    """Return a member of a memory of 96 bytes in 24 cells: by default a view of a that reads a third of it."""
    given = {
        "names": (name,), "names_found": 1, "kind": "Tensor", "dtype": "float32", "shape": (4, 2), "start": 4,
        "stop": 68, "elements": 8, "relation": relation, "base": "" if relation == "owner" else "a", "version": 1,
        "counter": 1, "coverage": (0.0,) + (1.0,) * 4 + (0.0,) * 8 + (1.0,) * 4 + (0.0,) * 7,
    }  # fmt: skip
    return reports.AliasMember(**{**given, **more})  # type: ignore[arg-type]


def whole(name: str, relation: str, **more: object) -> reports.AliasMember:
    """Return a member that reads all of it."""
    full = {"shape": (4, 6), "start": 0, "stop": 96, "elements": 24, "coverage": (1.0,) * 24}
    return member(name, relation=relation, **{**full, **more})


def group(number: int, *members: reports.AliasMember, **more: object) -> reports.AliasGroup:
    """Return a memory of 96 bytes."""
    given = {"number": number, "device": "cpu", "nbytes": 96, "storages": 1, "cell_bytes": 4, "found": len(members)}
    return reports.AliasGroup(**{**given, "members": members, **more})  # type: ignore[arg-type]


SLICES = group(
    1,
    whole("a", "owner", requires_grad=True),
    member("x", names=("x", "y"), names_found=2, operations=("t", "slice"), requires_grad=True),
    whole("n", "array", kind="ndarray", version=None, counter=None),
    whole("q", "data", counter=2, version=0),
    member("e", overlap="yes", shape=(3, 8), elements=24, coverage=(0.5, None) + (0.0,) * 22),
    pairs=tuple(reports.AliasPair(*pair) for pair in (
        ("a", "x", "yes", 8, 8), ("a", "n", "yes", 24, 24), ("a", "q", "yes", 24, 24), ("a", "e", "maybe", None, None),
        ("x", "n", "yes", 8, 8), ("x", "q", "yes", 8, 8), ("x", "e", "no", 0, 0), ("n", "q", "yes", 24, 24),
        ("n", "e", "yes", 2, 3), ("q", "e", "yes", 1, 1),
    )),
)  # fmt: skip
TIED = group(2, member("net.0.weight", relation="owner", names=("net.0.weight", "net.1.weight"), names_found=2))
MANY = group(
    1,
    *(member(f"rows[{at}]") for at in range(32)),
    found=5000,
    pairs=tuple(reports.AliasPair(f"rows[{at}]", f"rows[{at + 1}]", "yes", 1, 1) for at in range(31)),
    pairs_complete=False,
)

ALIASES = {
    "slices": reports.AliasReport(
        groups=(SLICES, TIED), groups_found=2, alone=3, alone_bytes=4096, tensors=8, arrays=1, looked=19
    ),
    "nothing": reports.AliasReport(alone=2, alone_bytes=24, tensors=2, looked=2),
    "asked": reports.AliasReport(groups=(SLICES,), groups_found=1, tensors=8, arrays=1, looked=19,
                                 asked=("x", "net.0.weight")),
    "many": reports.AliasReport(
        groups=(MANY, *(replace(SLICES, number=number) for number in range(2, 41))), groups_found=5000, tensors=9999,
        looked=20_000, gaps=(reports.Gap("aliases", "only 20000 of the names were searched"),),
    ),
    "finding": reports.AliasReport(findings=(FINDING,), groups=(SLICES,), groups_found=1, tensors=4, looked=4),
    "hostile": alias_report(),
}  # fmt: skip


def row(name: str, nbytes: int = 24, number: int = 0, **more: object) -> reports.TensorRow:
    """Return a row: a float32 tensor on the CPU that shares with no other."""
    given = {"kind": "Tensor", "dtype": "float32", "shape": (2, 3), "device": "cpu", "layout": "strided"}
    return reports.TensorRow(**{**given, "gradient": "", "name": name, "nbytes": nbytes, "group": number, **more})  # type: ignore[arg-type]


ROWS = (
    row("a", 96, 1, shape=(4, 6)),
    row("x", 32, 1, shape=(4, 2), names=3),
    row("n", 96, 1, shape=(4, 6), kind="ndarray"),
    row("net.fc.weight", 60_000_000, kind="Parameter", shape=(5000, 3000), gradient="leaf, grad", device="cuda:0"),
    row("loss", 4, shape=(), gradient="NllLossBackward0"),
    row("adjacency", 68, shape=(3, 3), layout="sparse_csr"),
)
TOTALS = (reports.MemoryTotal("cpu", 5, 3, 168), reports.MemoryTotal("cuda:0", 1, 1, 60_000_000))

TABLES = {
    "few": reports.TensorTable(rows=ROWS, totals=TOTALS, groups=1, looked=7),
    "collection": reports.TensorTable(
        title="batch", rows=ROWS[:2], totals=TOTALS[:1], groups=1, looked=3,
        panels=(TENSORS["transpose_slice"], TENSORS["scalar"]),
    ),
    "none": reports.TensorTable(looked=3),
    "many": reports.TensorTable(
        rows=tuple(row(f"ts[{at}]", at * 4, shape=(at,)) for at in range(2000)),
        totals=(reports.MemoryTotal("cpu", 2000, 2000, 7_996_000),), looked=2001,
    ),
    "finding": reports.TensorTable(findings=(FINDING,), rows=ROWS[:1], totals=TOTALS[:1], looked=1),
    "hostile": tensor_table(),
}  # fmt: skip
