"""Hand-made reports of random generators: as they are, over a run, and two runs compared."""

from __future__ import annotations

from dataclasses import replace

from tensormagic import reports
from tensormagic.reports.rng import Draw, DrawSum, GeneratorState, RngComparison, RngReport, RngRunReport
from tests.reports.samples import HOSTILE, finding

TORCH = GeneratorState("torch, CPU", "torch", "MT19937", "cpu", "3", "chosen", 81, 32, 0, True, "5f5be10ad21d")
NUMPY = GeneratorState("numpy.random", "numpy", "MT19937", "cpu", "7", "chosen", 200, 32, 0, False, "2a96d96d7046")
WIDE = GeneratorState(
    "rng", "numpy", "PCG64", "cpu", "219340154235254689082670942001186933338", "entropy", 3, 64, 0, False,
    "178206028664", ("loader.dataset.rng", "augment.rng", "other.rng"),
)  # fmt: skip
CUDA = GeneratorState(
    "torch, cuda:0", "torch", "Philox", "cuda:0", "67280421310721", "default", 0, digest="00ff00ff00ff"
)
LOST = GeneratorState("random", "python", "MT19937", digest="76aa1e0d74ff")
FAR = replace(TORCH, drawn=None, least=99_840_000, pending=False)
CELL = reports.Cell(
    "cell.py", 4, ("%%rng", "for step in range(3):", "    x = torch.randn(3, 4)", "    i = np.random.randint(9)",
                   "    net(x).sum().backward()", "torch.manual_seed(0)"),
)  # fmt: skip
DRAW = Draw(0, "drew", "aten.randn", 0, 0, 12, "aa")
PLACES = tuple(reports.Location("cell.py", at, CELL.lines[at - 1].strip(), 4) for at in (3, 5, 6))


def standing() -> RngReport:
    """Return every sort of seed there is."""
    return RngReport(
        generators=(TORCH, NUMPY, WIDE, CUDA, LOST, FAR), gaps=(reports.Gap("odd", "TypeError: no state"),)
    )


def run() -> RngRunReport:
    """Return a run that draws from two generators and seeds one."""
    sums = (
        DrawSum(0, "drew", "aten.randn", 0, 0, 3, 36, 0),
        DrawSum(1, "drew", "", 1, 0, 3, 4, 1),
        DrawSum(0, "drew", "aten.bernoulli_", 1, 1, 3, 36, 2),
        DrawSum(0, "set", "", 2, 2, 1, None, 9),
    )
    draws = (DRAW, Draw(1, "drew", "", 1, 0, 1, "bb"))
    return RngRunReport(
        cell=CELL, state="finished", seconds=0.5, before=(TORCH, NUMPY),
        after=(replace(TORCH, seed="0", drawn=0), replace(NUMPY, drawn=204)), locations=PLACES, sums=sums, draws=draws,
        count=10,
    )  # fmt: skip


def full_standing() -> RngReport:
    """Return a report with every field filled."""
    every = replace(WIDE, name=HOSTILE, least=17, pending=True, device="cuda:0")
    return replace(standing(), generators=(every,), findings=(finding(),))


def full_run() -> RngRunReport:
    """Return a run with every field filled."""
    place = reports.Location(HOSTILE, 3, HOSTILE, None, HOSTILE)
    return replace(
        run(), state="failed", error=f"RuntimeError: {HOSTILE}", before=(full_standing().generators[0], NUMPY),
        locations=(place,) * 3, findings=(finding(),), gaps=(reports.Gap("draws", HOSTILE),),
    )  # fmt: skip


# Two runs that began elsewhere, and two of which one drew more.
PARTED = RngComparison(
    names=("monday", "tuesday"), difference="start", same=0, generator="torch, CPU", sides=(DRAW, DRAW),
    places=(PLACES[0], PLACES[0]), starts=(replace(TORCH, drawn=0), replace(TORCH, drawn=16, seed="4")),
)  # fmt: skip
ENDED = RngComparison(
    names=("a", HOSTILE), difference="end", same=17, generator="torch, CPU", sides=(DRAW, None),
    places=(PLACES[0], None), complete=False,
)  # fmt: skip


def full_comparison() -> RngComparison:
    """Return a comparison with every field filled."""
    return replace(PARTED, findings=(finding(),), difference="state", same=4)


# A cell that calls a function of another file, which draws.
ELSEWHERE = replace(
    run(), locations=(reports.Location("data.py", 7, "x = torch.randn(3, 4)", None, "batch"), *PLACES[1:])
)
SAMPLES = {
    "standing": standing(), "run": run(), "elsewhere": ELSEWHERE, "parted": PARTED, "ended": ENDED,
    "same": RngComparison(names=("a", "b"), same=17), "hostile": full_run(),
}  # fmt: skip
