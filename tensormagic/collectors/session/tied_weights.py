"""Weights that are tied, or were: one Parameter under two names, which a copy, a load or a new Parameter parts.

Nothing complains when a tie breaks; the two drift apart. Certain evidence is that they were one when the module was
first seen, or that they are two Parameters over one memory. An embedding and an output layer of the same values are a
hint: of these an evenly spaced sample is compared, since after one step of training no two of them are the same.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from itertools import combinations, islice
from typing import Any

import torch
from torch import nn

from tensormagic.collectors.objects.holdings import registered
from tensormagic.collectors.objects.namespace import inside, is_kind
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.session.assignments import CellNumber, no_cell, tied
from tensormagic.reports import UntiedPair
from tensormagic.reports.watch import TieEvidence

SAMPLE = 4096  # elements compared
SMALLEST = 32  # elements; fewer may be equal by chance or by their initialization
MOST = 8
_PAIRS = 64


class TiedWeights:
    """The ties that modules had when they were first seen. Holds modules weakly, and names."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[nn.Module], list[tuple[str, ...]]]] = {}

    def remember(self, root: nn.Module) -> None:
        """Take down which parameters of a module have two names, the first time it is seen."""
        known = self._known.get(id(root))
        if known is None or known[0]() is not root:
            self._known = {key: pair for key, pair in self._known.items() if pair[0]() is not None}
            self._known[id(root)] = (weakref.ref(root), _tied_weight_names(parameters_of(root)))

    def broken(self, name: str, root: nn.Module, cell_number: CellNumber = no_cell) -> tuple[UntiedPair, ...]:
        """Return the pairs of a module's parameters that are no longer one, or that should be, by what is seen now."""
        known = self._known.get(id(root))
        before = known[1] if known is not None and known[0]() is root else []
        with quiet():
            pairs = _pairs(root, before)
            return tuple(_pair(name, root, pair, cell_number) for pair in islice(pairs, MOST))


_Pair = tuple[str, str, TieEvidence, int]
_Named = list[tuple[str, nn.Parameter]]


def parameters_of(root: nn.Module) -> _Named:
    """Return the parameters of a module by name, those with two names under both."""
    return [
        (f"{path}.{key}"[1:], held)
        for path, module in inside("", root)
        if (held_here := registered(module, "_parameters"))
        for key, held in list(held_here.items())
        if held is not None
    ]


def _tied_weight_names(named: _Named) -> list[tuple[str, ...]]:
    names: dict[int, list[str]] = {}
    for name, parameter in named:
        names.setdefault(id(parameter), []).append(name)
    return [tuple(sorted(several)) for several in names.values() if len(several) > 1]


def _pairs(root: nn.Module, before: list[tuple[str, ...]]) -> Iterator[_Pair]:
    described: set[tuple[str, str]] = set()
    for evidence, compared, first, second in _candidates(root, before):
        if (first, second) not in described:
            described.add((first, second))
            yield first, second, evidence, compared


def _candidates(root: nn.Module, before: list[tuple[str, ...]]) -> Iterator[tuple[TieEvidence, int, str, str]]:
    named = parameters_of(root)
    now = dict(named) if before else {}
    for names in before:
        for first, second in combinations([name for name in names if name in now], 2):
            if now[first] is not now[second]:
                yield "was one", 0, first, second
    for first, second in _over_one_memory(named):
        yield "one memory", 0, first, second
    for first, second, compared in _equal(root):
        yield "equal values", compared, first, second


def _over_one_memory(named: _Named) -> Iterator[tuple[str, str]]:
    """Yield the names of two Parameters that both ask for a gradient and read the same elements of one storage."""
    storages: dict[int, _Named] = {}
    for name, parameter in named:
        if (storage := _storage(parameter)) is not None:
            storages.setdefault(storage, []).append((name, parameter))
    for several in storages.values():
        if len(several) > 1:
            yield from _same_elements(several)


def _same_elements(several: _Named) -> Iterator[tuple[str, str]]:
    places: dict[Any, dict[int, str]] = {}
    for name, parameter in sorted(several, key=lambda pair: pair[0], reverse=True):
        if parameter.requires_grad and parameter.numel():
            place = (parameter.storage_offset(), parameter.shape, parameter.stride())
            places.setdefault(place, {})[id(parameter)] = name
    for different in places.values():
        yield from combinations(sorted(different.values()), 2)


def _storage(parameter: nn.Parameter) -> int | None:
    try:
        plain = type(parameter) is nn.Parameter and not parameter.is_meta
        return int(parameter.untyped_storage()._cdata) if plain else None
    except Exception:  # it has no storage, or none that can be asked for
        return None


def _equal(root: nn.Module) -> Iterator[tuple[str, str, int]]:
    """Yield embeddings and linear layers whose weights are equal in every element that is compared."""
    tables, layers = _weights(root)
    pairs = ((one, two) for one in tables for two in layers if _comparable(one[1], two[1]))
    for one, two in islice(pairs, _PAIRS):
        if (compared := _same_values(one[1], two[1])) is not None:
            yield one[0], two[0], compared


def _weights(root: nn.Module) -> tuple[_Named, _Named]:
    """Return the weights of embeddings, and those of linear layers, that ask for a gradient."""
    found: tuple[_Named, _Named] = ([], [])
    kinds: dict[type, int | None] = {}
    for path, module in inside("", root):
        kind = type(module)
        which = kinds[kind] if kind in kinds else kinds.setdefault(kind, _which(module))
        weight = None if which is None else registered(module, "_parameters").get("weight")
        if which is not None and weight is not None and weight.requires_grad:
            found[which].append((f"{path}.weight"[1:], weight))
    return found


def _which(module: nn.Module) -> int | None:
    return 0 if is_kind(module, nn.Embedding) else 1 if is_kind(module, nn.Linear) else None


def _comparable(one: nn.Parameter, two: nn.Parameter) -> bool:
    if one is two or type(one) is not nn.Parameter or type(two) is not nn.Parameter:
        return False
    alike = one.shape == two.shape and one.dtype == two.dtype and one.device == two.device
    return alike and one.numel() >= SMALLEST and not one.is_meta


def _same_values(one: nn.Parameter, two: nn.Parameter) -> int | None:
    """Return how many elements were compared where all are equal and not all the same; None where they differ."""
    step = -(-one.numel() // SAMPLE)
    first, second = (x.detach().reshape(-1)[::step] for x in (one, two))
    equal = torch.equal(first, second) and bool((first != first[0]).any())
    return first.numel() if equal else None


def _pair(name: str, root: nn.Module, pair: _Pair, cell_number: CellNumber) -> UntiedPair:
    first, second, evidence, compared = pair
    where = tied(type(root), first, second, cell_number)
    numel = dict(parameters_of(root))[first].numel()
    return UntiedPair(f"{name}.{first}", f"{name}.{second}", name, evidence, compared, numel, where)
