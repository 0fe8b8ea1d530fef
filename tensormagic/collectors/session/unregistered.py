"""Parameters and modules that are not registered, and weights that are tied."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import combinations, groupby, islice
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from tensormagic.collectors.geometry.parts import storage_of
from tensormagic.collectors.graphs.live_nodes import walk_nodes
from tensormagic.collectors.objects.children import (
    MODULE_OWN,
    PARAMETERS_AND_BUFFERS,
    attributes_of,
    graph_of,
    has_history,
    held_by,
    inside,
    is_torch_own,
    registered,
    updated_by,
)
from tensormagic.collectors.objects.identity import Marks
from tensormagic.collectors.objects.namespace import Walk, is_kind
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.session.session_walk import assigned, tied
from tensormagic.collectors.where.source import CellNumber, no_cell
from tensormagic.reports import (
    FlagWithoutEffect,
    Location,
    ModulesReport,
    RepeatedModule,
    UnregisteredModules,
    UnregisteredTensor,
    UntiedPair,
)
from tensormagic.reports.failure import NothingToTrain
from tensormagic.reports.watch import TieEvidence

# Weights that are tied, or were: one Parameter under two names, which a copy, a load or a new Parameter parts. Certain
# evidence is that they were one when the module was first seen, or that they are two Parameters over one memory. An
# embedding and an output layer of the same values are a hint: of these an evenly spaced sample is compared, since after
# one step of training no two of them are the same.

SAMPLE = 4096  # elements compared
MOST_MODULES = 10_000  # outermost ones whose ties are remembered
SMALLEST = 32  # elements; fewer may be equal by chance or by their initialization
MOST_TIED = 8
_PAIRS = 64


class TiedWeights:
    """The ties that modules had when they were first seen. Holds modules weakly, and names."""

    def __init__(self) -> None:
        self._known = Marks(MOST_MODULES)  # the names of each that has several

    def remember(self, root: nn.Module) -> None:
        """Take down which parameters of a module have two names, the first time it is seen."""
        if self._known.of(root) is None:
            names = defaultdict[int, list[str]](list)
            for name, parameter in held_by(root):
                names[id(parameter)].append(name)
            self._known.put(root, [sorted(several) for several in names.values() if len(several) > 1])

    def broken(self, name: str, root: nn.Module, cell_number: CellNumber = no_cell) -> tuple[UntiedPair, ...]:
        """Return the pairs of a module's parameters that are no longer one, or that should be, by what is seen now."""
        found: dict[frozenset[str], UntiedPair] = {}
        with quiet():
            now = dict(held_by(root))
            for evidence, compared, first, second in _candidates(root, now, self._known.of(root) or []):
                if len(found) < MOST_TIED and (both := frozenset((first, second))) not in found:
                    where, names = tied(type(root), first, second, cell_number), (f"{name}.{first}", f"{name}.{second}")
                    found[both] = UntiedPair(*names, name, evidence, compared, now[first].numel(), where)
        return tuple(found.values())


def _candidates(
    root: nn.Module, now: dict[str, nn.Parameter], before: list[list[str]]
) -> Iterator[tuple[TieEvidence, int, str, str]]:
    for names in before:
        for first, second in combinations([name for name in names if name in now], 2):
            if now[first] is not now[second]:
                yield "was one", 0, first, second
    # Two Parameters that both ask for a gradient and read the same elements of one storage.
    places: dict[Any, dict[int, str]] = {}
    for name, x in sorted(now.items(), reverse=True):
        if type(x) is nn.Parameter and not x.is_meta and x.requires_grad and x.numel() and (storage := storage_of(x)):
            places.setdefault((storage, x.storage_offset(), x.shape, x.stride()), {})[id(x)] = name
    for different in places.values():
        for first, second in combinations(sorted(different.values()), 2):
            yield "one memory", 0, first, second
    for first, second, compared in _equal(root):
        yield "equal values", compared, first, second


def _equal(root: nn.Module) -> Iterator[tuple[str, str, int]]:
    """Yield embeddings and linear layers whose weights are equal in every element compared, and not all the same."""
    weights: dict[type, list[tuple[str, nn.Parameter]]] = {nn.Embedding: [], nn.Linear: []}
    for path, module in inside("", root):
        for kind in (kind for kind in weights if is_kind(module, kind)):
            weight = registered(module, "_parameters").get("weight")
            if type(weight) is nn.Parameter and weight.requires_grad and not weight.is_meta:
                weights[kind].append((f"{path}.weight"[1:], weight))
    large = (one for one in weights[nn.Embedding] if one[1].numel() >= SMALLEST)
    pairs = ((one, two) for one in large for two in weights[nn.Linear] if one[1] is not two[1])
    alike = (pair for pair in pairs if len({(x.shape, x.dtype, x.device) for _, x in pair}) == 1)
    for (first, table), (second, layer) in islice(alike, _PAIRS):
        step = -(-table.numel() // SAMPLE)
        one, two = (x.detach().reshape(-1)[::step] for x in (table, layer))
        if torch.equal(one, two) and bool((one != one[0]).any()):
            yield first, second, one.numel()


# What modules hold that their registries do not know: loose tensors, and modules in plain lists and dictionaries. Only
# modules of classes outside torch are looked at, and of these only the plain attributes.

Root = tuple[str, nn.Module]  # the name of an outermost module, and the module
Optimized = Callable[[], Iterable[int]]

MOST = 32  # of each kind
_ITEMS = 256  # of one container that are looked at
_DEEP = 3  # containers in containers
_LEAVES = 64  # nodes that are walked from a tensor that is not a leaf
_CONTAINERS = (list, tuple, dict)


class Place(NamedTuple):
    """A plain attribute of a module that lies in an outermost one."""

    root: Root
    path: str  # of the module
    module: nn.Module
    attribute: str
    value: Any


def modules_report(
    roots: Sequence[Root],
    namespace: Mapping[str, Any],
    ties: TiedWeights | None,
    optimized: Optimized = tuple,
    cell_number: CellNumber = no_cell,
) -> ModulesReport:
    """Return what the modules hold beside their registries, and which ties are broken.

    What is bound to a name of its own is no fault of a module. ``optimized`` gives, by ``id``, what optimizers update
    besides what the names reach. Without ``ties`` no value is read.
    """
    tensors: list[UnregisteredTensor] = []
    modules: list[UnregisteredModules] = []
    with quiet():
        known = _Known(roots, namespace, optimized)
        walked = [(root, list(inside(*root))) for root in roots]
        for place in islice((place for root, within in walked for place in _places(root, within)), MOST * 4):
            lines = assigned(type(place.module), place.attribute, cell_number)
            if is_kind(place.value, torch.Tensor):
                tensors.append(_unregistered_tensor(place, known, lines[-1] if lines else None))
            elif (hidden := _hidden(place, known, lines[0] if lines else None)) is not None:
                modules.append(hidden)
        repeated = [one for root, within in walked for one in _repeated(root, within, cell_number)]
        flags = [one for _, within in walked for one in _flags(within, known)]
    return ModulesReport(
        tuple(tensors[:MOST]), tuple(modules[:MOST]), repeated=tuple(repeated[:MOST]), flags=tuple(flags[:MOST]),
        untied=tuple(pair for name, root in roots if ties for pair in ties.broken(name, root, cell_number)),
    )  # fmt: skip


def nothing_to_train(
    name: str, module: nn.Module, namespace: Mapping[str, Any], cell_number: CellNumber
) -> NothingToTrain:
    """Return why an optimizer that was to train a module got no parameter."""
    found = modules_report([(name, module)], namespace, TiedWeights(), cell_number=cell_number)
    with quiet():
        asking = [one.requires_grad for _, one in held_by(module)]
    hidden = () if any(asking) else found.unregistered_modules
    return NothingToTrain(name, type(module).__name__, len(asking), asking.count(False), hidden)


def _places(root: Root, within: list[Root]) -> Iterator[Place]:
    """Yield the plain attributes of all modules inside one that are tensors, or containers with modules in them."""
    for path, module in within:
        attributes = {} if is_torch_own(type(module)) else attributes_of(module)
        for attribute in sorted(attributes.keys() - MODULE_OWN):
            value = attributes[attribute]
            holds_any = type(value) in _CONTAINERS and value and next(_members(value), None) is not None
            if holds_any or is_kind(value, torch.Tensor):
                yield Place(root, path, module, attribute, value)


def _repeated(root: Root, within: list[Root], cell_number: CellNumber) -> Iterator[RepeatedModule]:
    """Yield the containers of torch's in which one module with parameters stands several times side by side."""
    owner = root
    for path, module in within:
        if not is_torch_own(type(module)):
            owner = (path, module)
        if not is_kind(module, nn.Sequential, nn.ModuleList):
            continue
        runs = [list(run) for _, run in groupby(registered(module, "_modules").values(), key=id)]
        longest = max(runs, key=len, default=[])
        one = longest[0] if len(longest) > 1 else None
        asking = sum(is_kind(held, nn.Parameter) and held.requires_grad for _, held in held_by(one)) if one else 0
        if asking:
            where = next(iter(assigned(type(owner[1]), path.removeprefix(f"{owner[0]}."), cell_number)), None)
            names = type(module).__name__, type(one).__name__
            yield RepeatedModule(path, *names, len(longest), asking, where)


# Names under which people switch gradients off that nothing reads; and the right one, on a module.
_MISSPELT = re.compile(r"requ?i?re?s?d?_?grad(s|ient|ients)?|requires_?gard|reqiures_grad|grad_required|trainable")


def _flags(within: list[Root], known: _Known) -> Iterator[FlagWithoutEffect]:
    """Yield attributes that were to freeze something and are read by nobody, where it is not frozen."""
    for path, module in within:
        own = [key for key in _misspelt(module) if key == "requires_grad" or is_torch_own(type(module))]
        flags = [(path, key, [held for _, held in held_by(module)]) for key in own]
        for at, parameter in registered(module, "_parameters").items():
            flags += [(f"{path}.{at}", key, [parameter]) for key in _misspelt(parameter) if key != "requires_grad"]
        for of, key, held in flags:
            asking = {id(one) for one in held if is_kind(one, nn.Parameter) and one.requires_grad}
            if asking:
                trained = len(asking & known.optimized)
                yield FlagWithoutEffect(f"{of}.{key}", of, key, of == path, len(asking), trained)


def _misspelt(item: Any) -> list[str]:
    own = attributes_of(item).items()
    return [key for key, value in own if value is False and _MISSPELT.fullmatch(key)]


def _members(value: Any, depth: int = _DEEP) -> Iterator[Any]:
    for item in islice(value.values() if type(value) is dict else value, _ITEMS):
        if is_kind(item, nn.Module, nn.Parameter):
            yield item
        elif depth and type(item) in _CONTAINERS:
            yield from _members(item, depth - 1)


class _Known:
    """What is registered, optimized, bound to a plain name (``named``), known to have been updated (``stepped``)."""

    def __init__(self, roots: Sequence[Root], namespace: Mapping[str, Any], optimized: Optimized) -> None:
        self._roots, self._namespace, self.stepped = roots, namespace, set(optimized())
        self.named = {id(value) for name, value in list(namespace.items()) if not name.startswith("_")}

    @cached_property
    def optimized(self) -> set[int]:
        """What the optimizers that could be found update; looked for when it is first asked for."""
        found = Walk(self._namespace).named(torch.optim.Optimizer)
        return {id(parameter) for _, optimizer in found for parameter in updated_by(optimizer)} | self.stepped

    def registered(self, hidden: Iterable[nn.Module] = ()) -> set[int]:
        """Return the parameters and buffers of all outermost modules that lie not in a hiding place themselves."""
        hiding = {id(module) for module in hidden} - self.named
        roots = (root for _, root in self._roots if id(root) not in hiding)
        return {id(held) for root in roots for _, held in held_by(root, PARAMETERS_AND_BUFFERS)}


def _unregistered_tensor(place: Place, known: _Known, where: Location | None) -> UnregisteredTensor:
    x, (owner, root) = place.value, place.root
    behind = {id(x)}
    if has_history(x):  # the leaves that it was computed from; none where the way to them is long
        nodes = list(walk_nodes([node] if (node := graph_of(x)) is not None else [], _LEAVES))
        leaves = [node.variable for node in nodes if hasattr(node, "variable")]
        behind = {id(leaf) for leaf in leaves} if len(nodes) < _LEAVES else set()
    called = getattr(getattr(type(place.module).forward, "__code__", None), "co_names", ())  # also by `forward`
    method = "" if where is None else "forward" if where.function in called else where.function
    own = {id(held) for _, held in held_by(root)}
    devices = {str(held.device) for _, held in held_by(root, PARAMETERS_AND_BUFFERS)}
    return UnregisteredTensor(
        name=f"{place.path}.{place.attribute}", owner=owner, module=place.path, shape=tuple(x.shape),
        dtype=str(x.dtype).removeprefix("torch."), device=str(x.device), requires_grad=x.requires_grad,
        grad_fn="" if (node := graph_of(x)) is None else node.name(),
        kept_elsewhere=id(x) in known.named or (bool(behind) and behind <= known.registered() | known.named),
        optimized=bool(behind) and behind <= known.optimized, siblings=len(own & known.optimized), registered=len(own),
        module_device=devices.pop() if len(devices) == 1 else "",
        method=method, location=where,
    )  # fmt: skip


def _hidden(place: Place, known: _Known, where: Location | None) -> UnregisteredModules | None:
    """Return what a container hides from its module; None where all of it is known elsewhere, or asks for nothing."""
    members = list(_members(place.value))
    modules = [member for member in members if is_kind(member, nn.Module)]
    lying = [member for member in members if is_kind(member, nn.Parameter)]
    every = {id(held): held for module in modules for _, held in held_by(module)}
    every |= {id(parameter): parameter for parameter in lying}
    registered = known.registered(modules)
    missing = {key: held for key, held in every.items() if held.requires_grad and key not in registered}
    if not missing:
        return None
    own = [held for _, held in held_by(place.root[1])]
    return UnregisteredModules(
        name=f"{place.path}.{place.attribute}", owner=place.root[0], container=type(place.value).__name__,
        modules=len(modules), parameters=len(missing),
        numel=sum(held.numel() for held in missing.values() if not is_lazy(held)),
        registered=len({id(held) for held in own}), optimized=len(missing.keys() & known.optimized),
        with_gradient=sum(held.grad is not None for held in missing.values()),
        trained=any(held.grad is not None or id(held) in known.stepped for held in own), location=where,
    )  # fmt: skip
