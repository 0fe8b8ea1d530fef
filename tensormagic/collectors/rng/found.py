"""Finds the generators in reach: the default ones, and those that the person's names lead to."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from tensormagic.collectors.aliasing.holders import roots
from tensormagic.collectors.objects.reach import Place, Reach
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.rng.generators import identity, state_of
from tensormagic.reports import Gap
from tensormagic.reports.rng import GeneratorState, RngReport

MOST_LOOKED = 40_000
TYPES = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
Named = dict[int, tuple[Any, list[str]]]


def collect_rng(namespace: Mapping[str, Any]) -> RngReport:
    """Return every generator in reach. Advances none, seeds none, and starts no device.

    Args:
        namespace: The person's names.
    """
    with quiet():
        found, cut = generators(namespace)
        every = [_told(generator, names) for generator, names in found.values()]
        gaps = [Gap("names", cut)] if cut else []
        return RngReport(
            generators=tuple(one for one in every if isinstance(one, GeneratorState)),
            gaps=(*gaps, *(one for one in every if isinstance(one, Gap))),
        )


def _told(generator: Any, names: list[str]) -> GeneratorState | Gap:
    try:
        return state_of(generator, names[0], tuple(names[1:]))
    except Exception as error:  # a subclass of a person's own may refuse
        return Gap(names[0], f"{type(error).__name__}: {error}")


def generators(namespace: Mapping[str, Any]) -> tuple[Named, str]:
    """Return the generators by identity, with their names; and why not all names were gone through, or nothing."""
    found: Named = {identity(generator): (generator, [name]) for name, generator in defaults()}
    cut = ""
    for path, generator in _in_names(namespace):
        if generator is None:
            cut = path
        else:
            _, names = found.setdefault(identity(generator), (generator, []))
            if path not in names:
                names.append(path)
    return found, cut


def defaults() -> Iterator[tuple[str, Any]]:
    """Yield the generators that calls without a generator draw from: torch's of each device, NumPy's and Python's."""
    yield "torch, CPU", torch.default_generator
    for kind in ("cuda", "xpu"):
        module = getattr(torch, kind, None)
        if module is not None and module.is_initialized():
            yield from ((f"torch, {kind}:{at}", each) for at, each in enumerate(module.default_generators))
    if torch.backends.mps.is_available():
        yield "torch, mps", torch.mps._get_default_mps_generator()
    yield "numpy.random", np.random.mtrand._rand
    yield "random", random._inst


def _in_names(namespace: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield every generator that names lead to; a reason with None where the search was cut short."""
    reach, seen, looked = Reach({}), {}, 0
    pending: deque[tuple[Place, Any]] = deque(roots(namespace))
    while pending:
        place, item = pending.popleft()
        looked += 1
        if looked > MOST_LOOKED:
            yield f"only {MOST_LOOKED} objects were looked through", None
            return
        if isinstance(item, TYPES):
            yield place.path, item
        elif id(item) not in seen and not isinstance(item, torch.Tensor | np.ndarray):
            seen[id(item)] = item
            pending.extend(_held(reach, place, item))


def _held(reach: Reach, place: Place, item: Any) -> list[tuple[Place, Any]]:
    if type(item).__module__.startswith("tensormagic."):
        return []
    try:
        return list(reach.held(item, place))
    except Exception:  # an odd object, or one that another thread is changing
        return []
