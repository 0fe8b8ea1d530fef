"""Says what was left behind in torch: modes, hooks, switches, threads, patched functions.

The tool promises that the run is the user's: whatever it puts onto torch is gone when it is done. `snapshot` is
taken before a test and again after it; `leftovers` names every difference that means a broken promise.
"""

from __future__ import annotations

import gc
import operator
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch._dynamo  # replaces torch.manual_seed when it is first imported: before the first look, not between two
import torch._dynamo.mutation_guard
import torch.fx.traceback
from torch.nn.modules import module as torch_module
from torch.optim import optimizer

torch._dynamo.mutation_guard.install_generation_tagging_init()  # Dynamo's own patch of nn.Module, at the first compile

THREAD_PREFIX = "tensormagic-"

# Functions are compared in these; on the classes a new attribute is a patch too, on the modules (which fill
# themselves lazily) only a changed or missing one is.
_CLASSES = (torch.Tensor, torch.nn.Parameter, torch.nn.Module, torch.autograd.Function, torch.optim.Optimizer,
            torch._C.ScriptModule, torch._C.ScriptFunction, torch._C.ScriptMethod, torch._C.Graph)  # fmt: skip
_MODULES = (torch, torch.autograd, torch.autograd.graph, torch.autograd.function, torch.nn.functional,
            torch.utils.checkpoint, torch.cuda, torch.functional, torch.overrides, torch._tensor,
            torch.autograd.forward_ad, torch.fx.traceback,
            torch._dynamo.eval_frame, torch.jit._trace, torch.jit._recursive, torch.export)  # fmt: skip
_GLOBAL_HOOKS = tuple(name for name in vars(torch_module) if name.startswith("_global_") and name.endswith("_hooks"))


@dataclass(frozen=True)
class Snapshot:
    """How torch stood at one moment: its switches by name, and the objects under the names that people patch."""

    switches: Mapping[str, Any]
    functions: Mapping[Any, Mapping[str, Any]]
    threads: frozenset[str]


def snapshot() -> Snapshot:
    """Return how torch stands now (about 0.1 ms)."""
    functions = {owner: dict(vars(owner)) for owner in (*_CLASSES, *_MODULES)}
    for held in functions.values():
        held.pop("__slotnames__", None)  # what `copyreg` keeps in a class that is copied for the first time
        held.pop("__annotations_cache__", None)  # and Python 3.14 in one that is asked for its annotations
    return Snapshot(_switches(), functions, frozenset(_own_threads()))


def leftovers(before: Snapshot, after: Snapshot) -> list[str]:
    """Return one sentence for everything that stands otherwise than before; empty where nothing was left."""
    changed = [
        f"{name}: {before.switches[name]} before, {value} after"
        for name, value in after.switches.items()
        if value != before.switches[name]
    ]
    threads = [f"thread still alive: {name}" for name in sorted(after.threads - before.threads)]
    return changed + threads + _patched(before, after)


def _switches() -> dict[str, Any]:
    saved_tensor_hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    switches: dict[str, Any] = {
        "torch function modes on the stack": torch._C._len_torch_function_stack(),
        "torch dispatch modes on the stack": torch._C._len_torch_dispatch_stack(),
        "saved-tensor hooks active": saved_tensor_hooks is not None,
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "anomaly mode": (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        "default dtype": torch.get_default_dtype(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "multithreaded backward": torch.autograd.is_multithreading_enabled(),
        "search for garbage": gc.isenabled(),
        "tables of optimizer hooks": (
            type(optimizer._global_optimizer_pre_hooks).__name__,
            type(optimizer._global_optimizer_post_hooks).__name__,
        ),
    }
    return switches | {f"torch.nn.modules.module.{name}": len(getattr(torch_module, name)) for name in _GLOBAL_HOOKS}


def _own_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(THREAD_PREFIX)]


def _patched(before: Snapshot, after: Snapshot) -> list[str]:
    sentences = []
    for owner, old in before.functions.items():
        new = after.functions[owner]
        if len(old) == len(new) and all(map(operator.is_, old.values(), new.values())):
            continue
        changed = (name for name, value in old.items() if new.get(name) is not value and _is_function(value))
        sentences += [f"{_label(owner, name)} was replaced" for name in changed]
        if isinstance(owner, type):
            sentences += [f"{_label(owner, name)} was added" for name in new.keys() - old.keys()]
    return sentences


def _is_function(value: Any) -> bool:
    return callable(value) or isinstance(value, property | classmethod | staticmethod)


def _label(owner: Any, name: str) -> str:
    prefix = f"{owner.__module__}." if isinstance(owner, type) else ""
    return f"{prefix}{owner.__name__}.{name}"
