"""A model as a tree of its modules: what each is, holds and made. Nothing is run but what the user asks to run."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.nn.parameter import is_lazy

from tensormagic.collectors.geometry.parts import PLAIN
from tensormagic.collectors.objects.children import (
    attributes_of,
    gradient_there,
    held_by,
    inside,
    is_kind,
    is_readable,
    is_torch_own,
    items_of,
    registered,
    states_of,
    updated_by,
)
from tensormagic.collectors.objects.namespace import Walk
from tensormagic.collectors.quiet import number, quiet, told
from tensormagic.reports import UNTOUCHED, Gap, ModelReport, ModuleRow, TraceReport

MOST_ROWS = 400
_DETAILS = 60  # characters
_NESTED = 3  # containers around a tensor in what a forward returns

Shapes = tuple[tuple[int, ...], ...]


class ForwardShapes:
    """Notes the sizes of what modules return while it is entered; the results are theirs, untouched."""

    def __init__(self) -> None:
        self.root: nn.Module | None = None  # the module that was called first
        self._seen: dict[int, tuple[nn.Module, Shapes, int]] = {}

    def __enter__(self) -> ForwardShapes:
        """Begin."""
        self._handles = register_module_forward_pre_hook(self._called), register_module_forward_hook(self._returned)
        return self

    def __exit__(self, *_: object) -> None:
        """End: nothing stays on torch."""
        for handle in self._handles:
            handle.remove()

    def of(self, module: nn.Module) -> tuple[Shapes, int]:
        """Return what a module returned when it was called last, and how often it was called."""
        return self._seen.get(id(module), (module, (), 0))[1:]

    def _called(self, module: nn.Module, _args: Any) -> None:
        self.root = self.root or module

    def _returned(self, module: nn.Module, _args: Any, output: Any) -> None:
        calls = self.of(module)[1]
        self._seen[id(module)] = module, tuple(_shapes_in(output)), calls + 1


def _shapes_in(output: Any, depth: int = _NESTED) -> Iterator[tuple[int, ...]]:
    if is_kind(output, torch.Tensor):
        with torch._C.DisableTorchFunction():
            if is_readable(output):
                yield tuple(map(number, output.shape))
    elif depth:
        for _, item in items_of(output):
            yield from _shapes_in(item, depth - 1)


class ModelFacts(NamedTuple):
    """What is known of a model besides itself."""

    namespace: Mapping[str, Any]  # where optimizers may have a name
    forward: ForwardShapes | None = None  # what its modules returned; None where nothing was run
    trace: TraceReport | None = None  # the last traced run; None where it did not see this model


Held = tuple[dict[int, list[str]], dict[int, int]]
Owned = tuple[dict[int, list[str]], dict[int, int], dict[int, list[str]]]


def collect_model(net: nn.Module, name: str, seen: ModelFacts) -> ModelReport:
    """Return a model as a tree of its modules. Changes nothing, keeps nothing."""
    modules = list(inside(name, net))
    depths, deepest = [path.count(".") - name.count(".") for path, _ in modules], 1
    # As deep as one can go without showing too many; the children of the model in any case.
    while deepest < max(depths) and sum(depth <= deepest + 1 for depth in depths) <= MOST_ROWS:
        deepest += 1
    shown = [(*one, depth) for one, depth in zip(modules, depths, strict=True) if depth <= deepest]
    with quiet():
        held = _held(seen.namespace)
        owners = defaultdict[int, list[str]](list)  # paths of the modules that have a parameter of their own, by its id
        for path, module in modules:
            for own in registered(module, "_parameters").values():
                owners[id(own)].append(path)
        rows = tuple(_row(path, module, depth, seen, (*held, owners)) for path, module, depth in shown)
        parameters, buffers = _parts(net, "_parameters"), _parts(net, "_buffers")
        gradients = [one for parameter in parameters.values() if (one := gradient_there(parameter)) is not None]
        meta_bytes = sum(x.nbytes for x in (*parameters.values(), *buffers.values()) if _numel(x) and x.is_meta)
        every = parameters.values(), buffers.values(), gradients
        parameter_bytes, buffer_bytes, gradient_bytes = (sum(map(_nbytes, some)) for some in every)
    left_out = len(modules) - len(shown)
    gaps = [Gap("modules", f"{left_out} of {len(modules)} are deeper than {deepest} levels")] if left_out else []
    names, kept = held
    return ModelReport(
        model=name, rows=rows, modules=len(modules), parameter_bytes=parameter_bytes, buffer_bytes=buffer_bytes,
        gradient_bytes=gradient_bytes, state_bytes=sum(kept.get(key, 0) for key in parameters), meta_bytes=meta_bytes,
        optimizers=tuple(dict.fromkeys(each for key in parameters for each in names.get(key, ()))),
        shapes_from="" if not any(row.shapes for row in rows) else "forward" if seen.forward is not None else "trace",
        gaps=tuple(gaps),
    )  # fmt: skip


def _row(path: str, module: nn.Module, depth: int, seen: ModelFacts, held: Owned) -> ModuleRow:
    parameters, names = _parts(module, "_parameters"), held[0]
    outside = {key: [other for other in held[2][key] if not f"{other}.".startswith(f"{path}.")] for key in parameters}
    trainable = {key: one for key, one in parameters.items() if one.requires_grad}
    optimized = {key: one for key, one in trainable.items() if key in names}
    buffers = _parts(module, "_buffers")
    shapes, calls = seen.forward.of(module) if seen.forward is not None else (_traced_shapes(seen.trace, path), 0)
    # Code of other classes is not run; and an attribute that one of torch's prints may be gone.
    details = told(lambda: module.extra_repr()[:_DETAILS], "") if is_torch_own(type(module)) else ""
    return ModuleRow(
        path=path, type_name=type(module).__name__, details=details, depth=depth,
        training=attributes_of(module).get("training", True) is True, shapes=shapes, calls=calls,
        parameters=sum(map(_numel, parameters.values())), trainable=sum(map(_numel, trainable.values())),
        shared=sum(_numel(one) for key, one in parameters.items() if outside[key]),
        shared_with=tuple(dict.fromkeys(chain.from_iterable(outside.values()))),
        unmade=sum(is_lazy(one) for one in (*parameters.values(), *buffers.values())),
        optimized=sum(map(_numel, optimized.values())),
        optimizers=tuple(dict.fromkeys(name for key in optimized for name in names[key])),
        nbytes=sum(map(_nbytes, (*parameters.values(), *buffers.values()))),
        gradient=_gradient(parameters, seen.trace, path), update=_update(module, seen.trace, path),
    )  # fmt: skip


def _parts(module: nn.Module, registry: str) -> dict[int, torch.Tensor]:
    return {id(held): held for _, held in held_by(module, (registry,))}


def _numel(x: torch.Tensor) -> int:
    return x.numel() if is_readable(x) and not is_lazy(x) else 0


def _nbytes(x: torch.Tensor) -> int:
    return _numel(x) * x.element_size() if _numel(x) and not x.is_meta else 0


def _held(namespace: Mapping[str, Any]) -> Held:
    """Return, by ``id`` of a parameter, which optimizers that have a name hold it, and the bytes that they keep."""
    names, nbytes = defaultdict[int, list[str]](list), Counter[int]()
    found: dict[int, tuple[str, Any]] = {}
    for name, optimizer in Walk(namespace).named(torch.optim.Optimizer):
        found.setdefault(id(optimizer), (name, optimizer))
    for name, optimizer in found.values():
        for parameter in updated_by(optimizer):
            names[id(parameter)].append(name)
        for parameter, state in list(dict.items(states_of(optimizer))):
            kept = [value for _, value in items_of(state) if type(value) in PLAIN]
            nbytes[id(parameter)] += sum(map(_nbytes, kept))
    return names, nbytes


def _gradient(parameters: dict[int, torch.Tensor], trace: TraceReport | None, path: str) -> float | None:
    """Return the norm of all gradients of a module; of no shard, which would ask other processes."""
    gradients = [gradient_there(one) for one in parameters.values() if type(one) in PLAIN]
    there = [one for one in gradients if type(one) in PLAIN and one is not None and one.layout is torch.strided]
    squares = [float(torch.linalg.vector_norm(one.detach())) ** 2 for one in there if not one.is_meta]
    if squares:
        return math.sqrt(sum(squares))
    norms = [series.norms[-1] for series in (trace.parameters if trace is not None else ())
             if series.name.startswith(f"{path}.") and len(series.norms) and series.norms[-1] != UNTOUCHED]  # fmt: skip
    return math.sqrt(sum(norm**2 for norm in norms)) if norms else None


def _update(module: nn.Module, trace: TraceReport | None, path: str) -> float | None:
    own = {f"{path}.{key}" for key in registered(module, "_parameters")}
    moves = (series.updates for series in (trace.parameters if trace is not None else ()) if series.name in own)
    last = ([move for move in each if move != UNTOUCHED][-1:] for each in moves)
    return max(chain.from_iterable(last), default=None)


def _traced_shapes(trace: TraceReport | None, path: str) -> Shapes:
    for graph in trace.graphs if trace is not None else ():
        nodes = (node for node in reversed(graph.nodes) if f"{node.module}.".startswith(f"{path}."))
        made = next((node.shapes for node in nodes if node.kind == "op" and node.shapes), ())
        if made:
            return made
    return ()


def traced_in(trace: TraceReport | None, net: nn.Module, was_met: Callable[[Any], bool | None]) -> TraceReport | None:
    """Return the run where it met a parameter of this very model."""
    return trace if any(was_met(one) for one in _parts(net, "_parameters").values()) else None
