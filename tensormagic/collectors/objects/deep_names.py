"""Names of tensors deep inside objects, and of parameters that lie in shards."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import nn

from tensormagic.collectors.objects.namespace import Walk, is_kind, nearest, telling
from tensormagic.collectors.where.source import running_functions

# Names of leaves that no plain name of the person's reaches: ``model.w``, ``layers[0]``, a variable of a function.
#
# A weight that is a plain attribute of a module or of an object is in no registry, and one that a function made has
# no name in the notebook. What is looked through is bounded: the whole namespace a few times in a run, the names
# under which something was found before in every walk, for a leaf may be made anew in every step.

LOOKS = 5_000  # names, items and attributes of the person's
LOOKS_IN_FUNCTION = 500
ITEMS = 256  # of one container
WHOLE_LOOKS = 16  # through everything, in a run; one in vain counts as four
_IN_VAIN = 3

Roots = Callable[[], Iterable[tuple[str, nn.Module]]]
Scope = tuple[str, Mapping[str, Any]]  # the function, empty outside of one, and its names
Found = dict[int, tuple[weakref.ref[Any], str, bool]]  # by `id`: the leaf, its name, whether that is a function's


class DeepNames:
    """Looks for the names of leaves, in modules, in the namespace, and in the functions that are running.

    Args:
        namespace: The person's names.
        roots: Gives the outermost modules that are known, with their names.
    """

    def __init__(self, namespace: Mapping[str, Any], roots: Roots) -> None:
        self._namespace, self._roots = namespace, roots
        self._frame: FrameType | None = None
        self._left = WHOLE_LOOKS
        self._fruitful: set[str] = set()
        self._function_of: dict[str, str] = {}
        self._found: Found | None = None
        self._looked_whole = False

    @contextmanager
    def seen_from(self, frame: FrameType | None) -> Iterator[None]:
        """Know meanwhile which functions are running; the frame is not kept."""
        self._frame, before = frame, self._frame
        try:
            yield
        finally:
            self._frame = before
            self.forget()

    def forget(self) -> None:
        """Look anew at the next question."""
        self._found, self._looked_whole = None, False

    def of(self, tensor: torch.Tensor) -> tuple[str, bool]:
        """Return the name of a leaf, or an empty one, and whether it is a function's."""
        hit = self._reached(tensor, whole=False)
        if hit is None and self._left > 0 and not self._looked_whole:
            hit = self._reached(tensor, whole=True)
            self._left -= _IN_VAIN if hit is None else 0
        if hit is None:
            return "", False
        self._fruitful.add(hit[0].rpartition(".<locals>.")[2].partition(".")[0].partition("[")[0])
        return hit

    def _reached(self, tensor: torch.Tensor, *, whole: bool) -> tuple[str, bool] | None:
        """Return what `of` does, None where the leaf is not found; look where that was not done since `forget`."""
        if self._found is None or whole:
            self._looked_whole, self._left = whole, self._left - whole
            with torch._C.DisableTorchFunction():  # a mode of the person's is not to see what is asked here
                self._found = self._look(whole=whole)
        reference, name, is_local = self._found.get(id(tensor), (None, "", False))
        return (name, is_local) if reference is not None and reference() is tensor else None

    def _look(self, *, whole: bool) -> Found:
        """Return the names of the leaves that can be reached, by ``id``; what was found first counts."""
        names: Found = {}
        for function, space in self._scopes():
            reached: dict[int, tuple[weakref.ref[Any], list[str]]] = {}
            worth = self._worth(function, space, whole=whole)
            walk = Walk(worth, LOOKS_IN_FUNCTION if function else LOOKS, ITEMS, gradients=False)
            for path, leaf in walk.named(torch.Tensor):
                if leaf.requires_grad and leaf.is_leaf and id(leaf) not in names:
                    reached.setdefault(id(leaf), (weakref.ref(leaf), []))[1].append(path)
            for key, (reference, paths) in reached.items():
                names[key] = reference, self._described(function, nearest(telling(paths))[0]), bool(function)
        return names

    def _scopes(self) -> Iterator[Scope]:
        yield "", dict(self._roots())
        yield "", self._namespace
        yield from running_functions(self._frame, self._namespace)

    def _worth(self, function: str, space: Mapping[str, Any], *, whole: bool) -> Mapping[str, Any]:
        """Return the names to look through: all, or those that led to something, and in a function what is a tensor."""
        if not whole and not function:
            return {name: space[name] for name in self._fruitful if name in space}
        hidden = "_" if not function else "__"
        named = {name: value for name, value in list(space.items()) if not name.startswith(hidden)}
        if whole:
            return named
        return {name: value for name, value in named.items() if name in self._fruitful or is_kind(value, torch.Tensor)}

    def _described(self, function: str, path: str) -> str:
        """Return a name as it stands, unless another function's variable, or one of the person's own, is called so."""
        own = bool(function) and is_kind(self._namespace.get(path), torch.Tensor)
        known = self._function_of.setdefault(path, "" if own else function)
        return path if known == function else f"{function}.<locals>.{path}"


# Which objects are one parameter, where torch shards it over processes.
#
# FSDP keeps two of each: the shard, which the optimizer holds, and the whole, which is put together for a forward,
# stands in the module meanwhile, and is what a graph leads to. FSDP1 does so for many parameters at once, in one flat
# row.

_MOST_NAMED = 3  # of the parameters that lie in a flat one


class Sharded(NamedTuple):
    """A parameter that is several objects.

    Attributes:
        parameter: The one by which it is known: FSDP2's shard, FSDP1's flat parameter.
        others: What stands for it elsewhere, as far as that is there yet.
        path: What to call it; empty where the module's own path of it does.
        shape: Its whole shape.
    """

    parameter: torch.Tensor
    others: tuple[torch.Tensor, ...]
    path: str
    shape: tuple[int, ...]


def sharded_in(module: nn.Module) -> list[Sharded]:
    """Return the parameters in a module that FSDP made several objects of; what it does not let know is left out."""
    newer, older = (sys.modules.get(f"torch.distributed.fsdp.{name}") for name in _MODULES)
    if newer is None and older is None:
        return []
    found: list[Sharded] = []
    with suppress(AttributeError):  # private: another torch may have other names
        for path, child in module.named_modules():
            if newer is not None and isinstance(child, newer.FSDPModule):
                found += _of_fsdp2(child)
            elif older is not None and isinstance(child, older.FullyShardedDataParallel):
                found += _of_fsdp1(child, path)
    return found


_MODULES = ("_fully_shard", "fully_sharded_data_parallel")


def _of_fsdp2(module: Any) -> Iterator[Sharded]:
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None)
    for group in [state._fsdp_param_group] if groups is None else groups:
        for each in group.fsdp_params if group is not None else ():
            whole = vars(each).get("_unsharded_param")  # there from the first forward on
            shard = each.sharded_param
            yield Sharded(shard, () if whole is None else (whole,), "", tuple(shard.shape))


def _of_fsdp1(module: Any, path: str) -> Iterator[Sharded]:
    if (handle := module._handle) is not None:
        flat = handle.flat_param
        name = f"{path}{'.' if path else ''}_flat_param[{_listed(flat._fqns)}]"
        yield Sharded(flat, tuple(flat._params or ()), name, tuple(flat._unpadded_unsharded_size))


def _listed(names: tuple[str, ...]) -> str:
    if len(names) <= _MOST_NAMED:
        return ", ".join(names)
    return f"{names[0]} … {names[-1]}, {len(names)} parameters"
