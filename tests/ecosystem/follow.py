"""Runs one library's program untraced and under every follower, in a process of the suite's environment.

``python -m tests.ecosystem.follow NAME`` prints one line of JSON: what was wrong, by follower.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import tensormagic as tm
from tests.ecosystem.libraries import LIBRARIES, Library
from tests.support.leftovers import leftovers, snapshot

FOLLOWERS: dict[str, Callable[[], Any]] = {
    "trace": tm.trace,
    "level ops": lambda: tm.trace(level="ops"),
    "forward": lambda: tm.trace(forward=True, values=True),
    "budget": lambda: tm.trace(budget=0.2),
    "memory": tm.track_memory,
    "writes": tm.watch_writes,
    "draws": tm.track_rng,
    "all": lambda: tm.trace(memory=True, writes=True, draws=True),
}


class Idle(TorchDispatchMode):
    """Does nothing."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Make the call."""
        return func(*args, **(kwargs or {}))


ABOVE_A_NOTE = ("warning", "error")


def main() -> None:
    """Run the program that is named."""
    torch.set_num_threads(1)
    _stand_in_for_vision()
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tests.ecosystem import models, science, training  # noqa: F401  (imported for the programs in them)

        found = faults(LIBRARIES[sys.argv[1]])
    print(json.dumps(found))


def _stand_in_for_vision() -> None:
    """Declare the operators that torchvision asks for when it is imported, which no program calls.

    What is compiled in it belongs to another build of torch than the one for processors, and cannot be loaded.
    """
    boxes = "(Tensor boxes, Tensor scores, float threshold) -> Tensor"
    for name, takes in {"nms": boxes, "qnms": boxes}.items():
        with contextlib.suppress(RuntimeError):  # where it is there
            torch.library.define(f"torchvision::{name}", takes)


def faults(library: Library) -> dict[str, list[str]]:
    """Return what was wrong under each follower, and what none of them can answer for ("untraced")."""
    try:
        _outcome(library)  # what is imported and compiled once
        plain, again = _outcome(library), _outcome(library)
    except Exception:
        return {"untraced": [traceback.format_exc(limit=-8)]}
    if plain != again:
        return {"untraced": ["two runs without the tool differ from each other"]}
    right = [plain, _outcome(library, Idle())] if library.as_under_a_mode else [plain]
    return {name: _followed(library, follower, right) for name, follower in FOLLOWERS.items()}


def _outcome(library: Library, follower: Any = None) -> tuple[Any, ...]:
    """Run the program; returns all that can be seen of it."""
    torch.manual_seed(7)
    random.seed(7)
    np.random.seed(7)  # noqa: NPY002  (what the libraries draw from)
    with follower or contextlib.nullcontext():
        made = library.run()
    drawn = bytes(torch.get_rng_state()), random.random(), np.random.rand()  # noqa: NPY002
    return (*map(_bits, tree_leaves(made)), *drawn)


def _bits(value: Any) -> Any:
    """Return something that is equal just where every bit is."""
    if not isinstance(value, torch.Tensor):
        return value
    plain = value.detach().contiguous()
    return tuple(value.shape), str(value.dtype), value.requires_grad, plain.view(-1).view(torch.uint8).numpy().tobytes()


def _followed(library: Library, follower: Callable[[], Any], right: list[tuple[Any, ...]]) -> list[str]:
    """Return what was wrong in a run under a follower, of which each outcome in ``right`` may be that."""
    before, run, wrong = snapshot(), follower(), []
    try:
        seen = _outcome(library, run)
    except Exception:
        return [traceback.format_exc(limit=-8), *leftovers(before, snapshot())]
    if seen not in right:
        differing = sum(a != b for a, b in zip(seen, right[0], strict=True))
        wrong.append(f"the results differ in {differing} of {len(seen)}")
    wrong += leftovers(before, snapshot())
    try:
        return wrong + _said(library, run.report)
    except Exception:
        return [*wrong, traceback.format_exc(limit=-8)]


def _said(library: Library, report: Any) -> list[str]:
    """Draw and save a report; returns findings and gaps that are not expected of the library."""
    report._repr_mimebundle_()
    str(report)
    with tempfile.TemporaryDirectory() as folder:
        for form in ("json", "html"):
            report.save(Path(folder, f"report.{form}"))
        tm.load(Path(folder, "report.json"))
    told = [each for each in report.findings if each.severity in ABOVE_A_NOTE and each.code not in library.finds]
    gaps = [gap.reason for gap in report.gaps if not any(words in gap.reason for words in library.gaps)]
    return [f"{each.code} {each.severity}: {each.message}" for each in told] + [f"gap: {reason}" for reason in gaps]


if __name__ == "__main__":
    main()
