"""How many files and functions of the package one use of a magic runs: the way that a reader has to follow.

``python -m tools.house_walk`` prints it as JSON; a name given behind it picks one use. Each cell runs twice in a shell
of its own, and the second, warm run is counted: the main thread's calls, and no garbage collection between them.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import sys
import warnings
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[1]
SETUP = """
import torch
from torch import nn
x = torch.arange(12.).view(3, 4).t(); y = x[1:]
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
opt = torch.optim.SGD(net.parameters(), .1); b = torch.randn(4, 8)
"""
STEP = "opt.zero_grad(); loss = net(b).pow(2).mean(); loss.backward(); opt.step()"
REFUSED = "refused call"
USES = {
    "%tensor x": "%tensor x",
    "%rng": "%rng",
    "%%tracegrad": f"%%tracegrad\n{STEP}",
    "%%gpumem": f"%%gpumem\n{STEP}",
    REFUSED: "net(torch.randn(4, 9))",
}
PREPARED = {REFUSED: "%tensormagic explain on"}


class Walk:
    """While it is entered, notes which files and functions below ``root`` this thread runs."""

    def __init__(self, root: Path) -> None:
        self.files: set[str] = set()
        self.functions: set[tuple[str, str, int]] = set()
        self._root = f"{root.resolve()}{os.sep}"

    def __enter__(self) -> Walk:
        gc.collect()
        gc.disable()
        sys.setprofile(self._called)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)
        gc.enable()

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(self._root):
            return
        self.files.add(code.co_filename)
        if not code.co_name.startswith("<"):  # a comprehension is part of the function it is in
            self.functions.add((code.co_filename, code.co_name, code.co_firstlineno))


def walked(uses: dict[str, str], root: Path) -> dict[str, dict[str, int]]:
    """Run every cell of ``uses`` twice and return the files and functions below ``root`` that the second run takes.

    Raises:
        RuntimeError: A cell that should run fails, or the refused call is not refused.
    """
    from IPython.core.interactiveshell import InteractiveShell  # noqa: PLC0415 (takes a second, and --help needs none)
    from traitlets.config import Config  # noqa: PLC0415 (likewise)

    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))

    def run(code: str, *, refused: bool = False) -> None:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            result = shell.run_cell(code)
        if result.success is refused:
            raise RuntimeError(f"this cell {'ran' if refused else 'failed'}:\n{code}\n{printed.getvalue()}")

    run("%load_ext tensormagic")
    run(SETUP)
    taken = {}
    for name, code in uses.items():
        run(PREPARED.get(name, "pass"))
        run(code, refused=name == REFUSED)
        with Walk(root) as walk:
            run(code, refused=name == REFUSED)
        taken[name] = {"files": len(walk.files), "functions": len(walk.functions)}
    return taken


def main() -> None:
    """Print what each use takes, as JSON."""
    warnings.simplefilter("ignore")
    uses = {name: USES[name] for name in sys.argv[1:] or USES}
    print(json.dumps(walked(uses, ROOT / "tensormagic")))


if __name__ == "__main__":
    main()
