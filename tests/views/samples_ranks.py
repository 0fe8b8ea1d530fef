"""Hand-made runs of several ranks: one in which all goes wrong, a healthy one, and an awkward one."""

from __future__ import annotations

import math
from array import array
from dataclasses import replace

from tensormagic.diagnoses import diagnose
from tensormagic.reports import UNTOUCHED, Arrivals, Difference, Gap, Placed, RankReport, RankRow
from tests.reports.samples import ranks_report

NAMES = ("net.0.weight", "net.0.bias", "net.2.weight", "net.2.bias")


def row(rank: int, **facts) -> RankRow:
    """Return a rank of four, which hold the same parameters."""
    known = {
        "host": "node1", "pid": 4711 + rank, "state": "finished", "kinds": ("DDP",), "replicas": (0, 1, 2, 3),
        "passes": 8, "steps": 8, "loss": 0.5 + rank / 10, "peak": 2**30 + rank * 2**20, "line": "train.py, line 30",
        "seconds": 12.5,
    }  # fmt: skip
    return RankRow(rank=rank, **{**known, **facts})


def healthy() -> RankReport:
    """Four ranks: their own gradients before the reduction, and the same after it."""
    brought = array("f", [each * (1 + rank / 8) for rank in range(4) for each in (1.0, 0.5, 0.25, 0.1)])
    used = array("f", [1.1, 0.55, 0.27, 0.11] * 4)
    return RankReport(
        title="runs/a", world_size=4, ranks=(row(0, report="runs/a/rank00000.report.json"), *map(row, range(1, 4))),
        names=NAMES, compared_pass=8, compared_step=8, pass_norms=brought, step_norms=used,
    )  # fmt: skip


def arrivals(ranks: int = 4, *, hole: bool = True) -> Arrivals:
    """Twelve collectives, to which the third rank comes late, and to the last of which it does not come at all."""
    seconds = array(
        "f", [0.1 * at + 0.01 * (rank % 8) + (0.04 if rank == 2 else 0) for rank in range(ranks) for at in range(12)]
    )
    if hole:
        seconds[2 * 12 + 11] = math.nan
    return Arrivals(
        group="0", ranks=tuple(range(ranks)), numbers=tuple(range(100, 112)), operations=("all_reduce",) * 12,
        lines=("train.py, line 30",) * 12, seconds=seconds,
    )  # fmt: skip


def placed(name: str, shape: tuple[int, ...], *how: str) -> Placed:
    """Return a parameter on a mesh of two by two ranks."""
    return Placed(
        name=name, shape=shape, placements=how, mesh_names=("dp", "tp"), mesh_sizes=(2, 2), mesh_ranks=(0, 1, 2, 3)
    )


def large() -> RankReport:
    """A mesh of 64 by 16 ranks, one of which has gradients unlike those of the others."""
    full = {rank: f"runs/large/rank{rank:05d}.report.json" for rank in (0, 777)}
    ranks = tuple(
        row(rank, replicas=(), kinds=("FSDP2", "DTensor"), host=f"node{rank // 8}", report=full.get(rank, ""))
        for rank in range(1024)
    )
    names = tuple(f"net.{at}.weight" for at in range(300))
    norms = array("f", [1.0 + at / 300 for _ in range(1024) for at in range(300)])
    norms[777 * 300 + 5] = 40.0
    mesh = Placed(
        name="net.0.weight", shape=(8192, 28672), placements=("_S(0)", "S(0)"), mesh_names=("dp", "tp"),
        mesh_sizes=(64, 16), mesh_ranks=tuple(range(1024)),
    )  # fmt: skip
    return RankReport(
        title="runs/large", world_size=1024, ranks=ranks, names=names, compared_pass=9, pass_norms=norms,
        spread=(mesh, replace(mesh, name="net.1.weight", shape=(8192, 8192), placements=("S(0)", "S(1)"))),
        arrivals=arrivals(1024, hole=False),
    )  # fmt: skip


def broken() -> RankReport:
    """Everything that can be found."""
    report = healthy()
    brought = array("f", report.pass_norms)
    brought[4], brought[9], brought[10] = math.nan, math.inf, UNTOUCHED
    differences = (
        Difference(what="rates", step=5, ranks=(2,), values=((0, 0.1), (1, 0.1), (2, 0.05))),
        Difference(what="parameters", step=2, ranks=(2,), names=NAMES[:1], count=1, of=4),
        Difference(
            what="gradients", step=3, ranks=(1, 2), names=NAMES, count=4, of=4, values=((0, 1.0), (1, 2.0), (2, 2.5)),
            reduced="none",
        ),
    )  # fmt: skip
    ranks = (
        report.ranks[0],
        row(1, state="failed", error="RuntimeError: connection closed", passes=6),
        row(2, state="running"),
    )
    broken = replace(
        report, ranks=ranks, pass_norms=brought[:12], step_norms=report.step_norms[:12], differences=differences,
        bad_pass=4, bad_ranks=(1,), bad_line="train.py, line 30", arrivals=arrivals(3),
        spread=(placed("net.0.weight", (128, 64), "_S(0)", "S(0)"), placed("net.0.bias", (128,), "S(0)", "R")),
        gaps=(Gap("ranks", "rank 2: line 40 cannot be read"),),
    )  # fmt: skip
    return replace(broken, findings=diagnose(broken))


# One rank of two, which has done nothing yet.
EMPTY = RankReport(title="runs/b", world_size=2, ranks=(RankRow(rank=0, host="node1", pid=1),))
SAMPLES = {made.__name__: made() for made in (healthy, broken, large)} | {"empty": EMPTY, "hostile": ranks_report()}
