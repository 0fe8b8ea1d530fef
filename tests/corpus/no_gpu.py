"""Lets a program that draws on a GPU run into torch's own refusal on a machine that has none.

Only the check of the generator's device is imitated (``check_generator`` in torch's ``ATen/core/Generator.h``): it
comes before anything is drawn. The words are torch's. On a machine with a GPU the real one speaks.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

import tensormagic as tm
from tensormagic.reports import Report

# Compiled as a file of torch's, as the check is: a traceback must show the user's line as the innermost of theirs.
_TORCH = Path(torch.__file__).with_name("check_generator.py")
_SOURCE = """
class Checked(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        given = kwargs or {}
        if given.get("generator") is not None and "device" in given:
            wanted, found = torch.device(given["device"]).type, given["generator"].device.type
            if wanted != found:
                raise RuntimeError(f"Expected a '{wanted}' device type for generator but found '{found}'")
        return func(*args, **given)
"""
_NAMES: dict[str, Any] = {"torch": torch, "TorchFunctionMode": TorchFunctionMode, "__name__": "torch.check_generator"}
exec(compile(_SOURCE, str(_TORCH), "exec"), _NAMES)


def generators_checked() -> AbstractContextManager[object]:
    """Return a context in which ``device="cuda"`` refuses the generator of another device as it does on a GPU."""
    return nullcontext() if torch.cuda.is_available() else _NAMES["Checked"]()


def explained(program: Callable[[], object]) -> Report:
    """Return the explanation of the error that ends a program which draws on ``"cuda"``."""
    told = tm.explain()
    try:
        with generators_checked(), told:
            program()
    except RuntimeError:
        return told.report
    raise AssertionError("nothing was refused")
