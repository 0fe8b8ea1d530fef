"""What deleting each name, output or error would free, and what clearing the session's own references would."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from types import ModuleType
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from tensormagic.collectors.devices import read_devices
from tensormagic.collectors.memory.flow import Flow, bits, set_of
from tensormagic.collectors.memory.references import References
from tensormagic.collectors.memory.roots import Parts, Root, is_foreign, items_of, join_foreign, session_roots, shell_of
from tensormagic.collectors.objects.referents import SESSION_KINDS, Budget
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.session.session_walk import THOROUGH, memory_of
from tensormagic.reports import DeviceGain, FreeableMemory, FreeHistoryReport, Gap

MOST = 256
MOST_TOGETHER = 4  # names that are offered to go together, or named as those that share
ELSEWHERE = "something that no variable reaches"
_MOST_SETS = 64
CYCLES = (
    "memory in a reference cycle that Python cannot see is not listed: it stays, whatever you delete. A"
    " gradient made with create_graph=True is in one (.grad = None breaks it), and so is a tensor that has what was"
    " computed from it as an attribute"
)


@dataclass(frozen=True, slots=True)
class Freeable:
    """What would be freed."""

    freeable: tuple[FreeableMemory, ...]  # the most first; what leads to no memory at all is left out
    gaps: tuple[Gap, ...]  # what could not be looked at, and why


def collect_freeable(
    namespace: Mapping[str, Any],
    *,
    besides: Sequence[Mapping[str, Any]] = (),
    budget: Budget = THOROUGH,
    most: int = MOST,
    items: Collection[str] = (),
) -> Freeable:
    """Return what would be freed once each name, output or error of a session is let go of, by itself.

    Exact as far as Python and torch count references; where not, less is reported, not more. What lies in a cycle
    of references is freed when Python's garbage collector runs next.

    ``namespace`` is the names themselves (``globals()``), not a copy: another dictionary with the same values holds
    them too, but for ``besides``, dictionaries of ours, which do not count. ``items`` lie in containers and are listed
    although they do not stand out: ``"losses[17]"``.
    """
    looked = look(namespace, besides=besides, budget=budget, items=items)
    every = [replace(freeable_of(at, looked), parts=looked.parts.get(at, ())) for at in bits(looked.deletable)]
    largest = (members for members, _ in looked.flow.several[:_MOST_SETS])
    every += [one for members in largest if (one := _together(members, looked)) is not None]
    every = sorted((one for one in every if one.reaches), key=_most_first)
    freeing = sum(one.nbytes > 0 for one in every[most:])
    more = f"{freeing} more names would free memory, each less than these; they are not listed" if freeing else ""
    gaps = tuple(Gap("freeable memory", why) for why in (looked.cut, looked.unweighed, looked.cycles, more) if why)
    return Freeable(tuple(every[:most]), gaps)


def _most_first(one: FreeableMemory) -> tuple[int, int]:
    return -one.nbytes, -one.reaches


@dataclass(frozen=True, slots=True)
class Look:
    """A walk that has ended, in plain numbers: of what it met nothing is held."""

    roots: list[Root]  # all that refers to something
    deletable: int  # which of them can be let go of
    flow: Flow  # what each of them frees; one more root than there are: what is held from elsewhere
    cut: str  # why not everything was looked through; empty where it was
    parts: Parts  # what taking something out of a container frees, where that was asked for
    unweighed: str  # why not all containers were weighed; empty where all were
    cycles: str  # what is said where something holds itself; empty where nothing does


def look(
    namespace: Mapping[str, Any],
    *,
    besides: Sequence[Mapping[str, Any]] = (),
    budget: Budget = THOROUGH,
    items: Collection[str] | None = None,
) -> Look:
    """Walk from all that a session names, and return who frees what.

    Where ``items`` are given, it asks of what lies in containers, too: of what stands out, and of these.
    """
    with quiet():
        roots = session_roots(namespace)
        if any(root.kind == "traceback" for root in roots):
            gc.collect()  # what IPython made of an error to show it lies in cycles, and holds all of its frames
        found, starts = _begun(namespace, roots, budget, besides)
        found.walk()
        unnamed = found.take_unnamed_referrers()
        found.walk()
        weights = _weights(found)
        cycles = found.caught()
        starts.append([*unnamed, *found.held_elsewhere(), *cycles])
        flow = Flow(found.edges, starts, weights)
        parts, unweighed = ({}, "") if items is None else items_of(found, roots, flow, items)
        named = any(flow.sets[at] != 1 << len(roots) for at in cycles)  # what nobody leads to is nobody's to delete
        deletable = set_of(at for at, root in enumerate(roots) if root.kind is not None)
        return Look(roots, deletable, flow, found.cut, parts, unweighed, CYCLES if named else "")


def _begun(
    namespace: Mapping[str, Any], roots: Sequence[Root], budget: Budget, besides: Sequence[Mapping[str, Any]] = ()
) -> tuple[References, list[list[int]]]:
    """Return a walk that begins at roots, and the numbers of the objects in each.

    Closed to it are the dictionaries that stay, whatever is deleted: their values are roots, or libraries'. Of the
    modules only real ones are asked: another object may make its dictionary anew whenever it is asked for it, and
    leave an address that is used again.
    """
    last = getattr(shell_of(namespace), "last_execution_result", None)  # until this cell ends; what it holds is a root
    modules = (vars(module) for module in list(sys.modules.values()) if isinstance(module, ModuleType))
    closed = frozenset({id(namespace), id(namespace.get("_oh")), id(last), id(sys.modules), *map(id, modules)})
    found = References(str(namespace.get("__name__", "__main__")), closed, budget)
    for value in (value for mapping in besides for value in mapping.values()):
        found.root(value)
    return found, [[at for value in root.values() if (at := found.root(value)) >= 0] for root in roots]


def _weights(found: References) -> dict[int, tuple[int, str]]:
    numbers = found.storages()
    owners = join_foreign(found, numbers)
    weights: dict[int, tuple[int, str]] = {}
    for number in numbers:
        storage, at = found.objects[number], owners.get(number, number)
        nbytes = memory_of(storage)
        if nbytes > weights.get(at, (0, ""))[0]:
            weights[at] = nbytes, str(storage.device)
    return weights


def freeable_of(at: int, looked: Look) -> FreeableMemory:
    """Return what one root frees. An output that a name is bound to as well is not to be deleted by IPython's means."""
    root = looked.roots[at]
    return _freeable(1 << at, root.code if looked.flow.alone(at) or root.kind == "name" else "", looked)


def _freeable(members: int, code: str, looked: Look) -> FreeableMemory:
    """Return what a set of roots frees, and what else would have to go, at most a few: first what nobody can let go."""
    roots, freed = looked.roots, looked.flow.freed(members)
    shared, needed = looked.flow.shared(members)
    others = needed & ~members
    elsewhere = [ELSEWHERE] if others & ~looked.deletable else []
    names = [roots[at].label for at in islice(bits(others & looked.deletable), MOST_TOGETHER)]
    chosen = [roots[at] for at in bits(members)]
    return FreeableMemory(
        name=", ".join(root.label for root in chosen), kind=chosen[0].kind or "name", nbytes=freed.nbytes,
        storages=freed.storages, reaches=freed.nbytes + shared, shared_with=(*elsewhere, *names)[:MOST_TOGETHER],
        device_bytes=freed.devices, code=code,
    )  # fmt: skip


def _together(members: int, looked: Look) -> FreeableMemory | None:
    if members.bit_count() > MOST_TOGETHER or members & ~looked.deletable:
        return None
    found = list(bits(members))
    if 2 * looked.flow.freed(members).nbytes < 3 * sum(looked.flow.alone(at) for at in found):
        return None
    chosen = [looked.roots[at] for at in found]
    names = [root.label for root in chosen if root.kind == "name"]
    lines = [f"del {', '.join(names)}"] if names else []  # first: IPython deletes an output under all its names
    lines += dict.fromkeys(root.code for root in chosen if root.kind != "name")
    return _freeable(members, "\n".join(lines), looked)


# What only outputs and the last error keep, and letting go of it: never of anything that a name leads to, which stays
# alive whatever the history does, and so stays in the history, too.


def free_session(namespace: Mapping[str, Any], *, drop: bool) -> FreeHistoryReport:
    """Return what only outputs and the last error keep; let go of it where asked to, and measure what that brought."""
    gc.collect()  # what lies in cycles that nobody leads to is free already, and keeps nothing of these
    looked = look(namespace)
    roots, flow = looked.roots, looked.flow
    session = set_of(at for at, root in enumerate(roots) if root.kind in SESSION_KINDS)
    chosen = sorted({at for needed in flow.sums if needed & ~session == 0 for at in bits(needed)})
    dropped = drop and bool(chosen)
    freed, storages, gains = _drop([roots[at] for at in chosen], namespace) if dropped else (0, 0, ())
    return FreeHistoryReport(
        entries=tuple(sorted((freeable_of(at, looked) for at in chosen), key=_most_first)),
        nbytes=flow.freed(set_of(chosen)).nbytes, dropped=dropped, freed=freed, storages=storages, gains=gains,
        gaps=(Gap("freeable memory", looked.cut),) if looked.cut else (),
    )  # fmt: skip


def _drop(roots: Sequence[Root], namespace: Mapping[str, Any]) -> tuple[int, int, tuple[DeviceGain, ...]]:
    """Let go of roots; returns the bytes and the number of the storages that are gone, and what the devices say."""
    with quiet():  # not of NumPy's memory
        found, _ = _begun(namespace, roots, THOROUGH)
        found.walk()
        storages = (found.objects[at] for at in found.storages())
        weak: Callable[[torch.UntypedStorage], StorageWeakRef] = StorageWeakRef
        watched = [(weak(one), memory_of(one)) for one in storages if not is_foreign(one)]
        del found, storages
    before = read_devices()[0]
    for root in roots:
        root.drop()
    gc.collect()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()
    if torch.backends.mps.is_available():
        torch.mps.empty_cache()
    if torch.xpu.is_initialized():  # type: ignore[no-untyped-call]
        torch.xpu.empty_cache()
    gone = [nbytes for weak, nbytes in watched if weak.expired()]  # type: ignore[no-untyped-call]
    now = {device.device: device for device in read_devices()[0]}
    gains = []
    for was, then in ((was, now[was.device]) for was in before if was.device in now):
        pairs = (was.allocated, then.allocated), (was.reserved, then.reserved), (was.process, then.process)
        gains.append(DeviceGain(was.device, *(None if a is None or b is None else a - b for a, b in pairs)))
    return sum(gone), len(gone), tuple(gains)
