"""What is seen of a training beside passes and steps: how loops get data, loads, alike units, hooks, unused graphs."""

from __future__ import annotations

import ast
import dis
import itertools
import sys
import weakref
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from threading import get_ident
from types import CellType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any, Literal

import numpy as np
import torch
from torch import nn
from torch.utils.data.distributed import DistributedSampler

from tensormagic.collectors.gradients.pass_log import Following, TraceContext, TracePart
from tensormagic.collectors.gradients.traced_graph import TracedGraph
from tensormagic.collectors.graphs.live_nodes import NO_NUMBER
from tensormagic.collectors.graphs.structure import Walk
from tensormagic.collectors.hooks.replacing import BackwardCall, Replacement, skip_in_dynamo, without_dynamo
from tensormagic.collectors.objects.children import attributes_of, inside
from tensormagic.collectors.objects.identity import Leaves, module_calls, place_of
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.session.unregistered import TiedWeights, modules_report
from tensormagic.collectors.where.source import (
    AskedOnce,
    SourceLines,
    frame_of,
    function_of_code,
    in_file,
    is_own_code,
    is_own_frame,
    lines_of,
    names_of,
    own_frames,
    running_line,
)
from tensormagic.collectors.where.statements import Scope
from tensormagic.reports import (
    Graph,
    HookKind,
    ModulesReport,
    RepeatedHook,
    SameOrder,
    StateLoad,
    UnusedGraph,
    UsedUpIterator,
)
from tensormagic.words import error_text

# A ``for`` over an iterator that was made outside of the loop around it: the second round finds nothing in it. One over
# a loader whose DistributedSampler was not given the epoch: the second round has the same order.

MOST_LINES = 5000  # of a file whose loops are looked at
MOST_FRAMES = 4  # of the user's above a backward
MOST_LOOPS = 32
_WRAPPERS = frozenset({"enumerate", "tqdm", "trange", "zip", "iter", "track"})


class LoopsOverData:
    """Finds such loops around the lines that call backward, once for each line."""

    def __init__(self, sites: SourceLines) -> None:
        self._sites = sites
        self._looked: set[int | None] = set()
        # The first round of a loop over a loader that shuffles, as it stood when a backward was called in it: code, the
        # name and value of what the outer loop counts with, the sampler and its epoch, what to tell if the next has it.
        self._first: dict[int | None, tuple[CodeType, str, Any, weakref.ref[Any], int, SameOrder]] = {}
        self.used_up: dict[tuple[str, int], UsedUpIterator] = {}  # by file and line of the loop
        self.same_order: list[SameOrder] = []

    def look(self, site: int | None, frame: FrameType | None) -> None:
        """Look at the loops around a backward; ``frame`` is where it was called."""
        if site in self._first:  # whether a loader is gone through once more, and its sampler has the epoch that it had
            code, outer, value, reference, epoch, found = self._first[site]
            around, sampler = frame_of(code, frame), reference()
            if around is not None and sampler is not None and _value(outer, around) != value:
                del self._first[site]
                self.same_order += [found] if sampler.epoch == epoch else []
        if site in self._looked or len(self._looked) >= MOST_LOOPS:
            return
        self._looked.add(site)
        for own in itertools.islice(own_frames(frame), MOST_FRAMES):
            self._look_in(own, site)

    def _look_in(self, frame: FrameType, site: int | None) -> None:
        code = frame.f_code
        lines = lines_of(code.co_filename, frame.f_globals)
        scope = Scope.of("".join(lines), frame, None) if len(lines) <= MOST_LINES else None
        for outer, inner in itertools.pairwise(scope.loops(running_line(frame)) if scope is not None else ()):
            leaves = any(isinstance(one, ast.Break | ast.Return) for one in ast.walk(inner))  # or one inside it does
            if leaves or not isinstance(inner, ast.For):
                continue  # it may end before its iterator does
            made = [one.id for one in ast.walk(outer) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]
            place, epoch = (code.co_filename, inner.lineno), getattr(getattr(outer, "target", None), "id", "")
            for called in _gone_through(inner.iter):
                value = _value(called, frame)
                sampler = value.sampler if type(value) is torch.utils.data.DataLoader else None
                if _is_used_up(value):
                    if called not in made and (rounds := _rounds(outer, frame)) != 1:
                        self.used_up.setdefault(place, UsedUpIterator(
                            location=self._sites.number(*place), name=called, type_name=type(value).__name__,
                            rounds=rounds, own=called in code.co_varnames or not function_of_code(code.co_name),
                        ))  # fmt: skip
                elif type(sampler) is DistributedSampler and sampler.shuffle and type(_value(epoch, frame)) is int:
                    found = SameOrder(location=self._sites.number(*place), loader=called, epoch=epoch)
                    first = code, epoch, _value(epoch, frame), weakref.ref(sampler), sampler.epoch, found
                    self._first[site] = first


def _gone_through(node: ast.expr) -> Iterator[str]:
    """Yield the names of what a loop goes through to its end."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        for given in node.args if name in _WRAPPERS else ():
            yield from _gone_through(given)


def _value(name: str, frame: FrameType) -> Any:
    return names_of(frame).get(name, frame.f_globals.get(name))


def _is_used_up(value: Any) -> bool:
    """Return whether a value is an iterator that can be gone through once, by type: none of a user's own classes."""
    kind = type(value)
    pythons = hasattr(kind, "__next__") and kind.__module__ in {"builtins", "itertools"}  # a generator, too
    ends = pythons and not issubclass(kind, (itertools.count, itertools.cycle, itertools.repeat))
    return ends or issubclass(kind, torch.utils.data.dataloader._BaseDataLoaderIter)


def _rounds(loop: ast.For | ast.While, frame: FrameType) -> int:
    """Return how often a loop goes round; -1 where that cannot be known from what it goes through."""
    over = loop.iter if isinstance(loop, ast.For) else None
    while isinstance(over, ast.Call) and getattr(over.func, "id", "") in _WRAPPERS and over.args:
        over = over.args[0]
    match over:
        case ast.Name(id=name):
            value = _value(name, frame)
            return len(value) if type(value) in {list, tuple, range, dict, str} else -1
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return len(elements)
        case ast.Call(func=ast.Name(id="range"), args=args, keywords=[]):
            given: list[Any] = [
                _value(one.id, frame) if isinstance(one, ast.Name) else getattr(one, "value", None) for one in args
            ]
            return len(range(*given)) if given and all(isinstance(one, int) for one in given) else -1
    return -1


# ``load_state_dict`` gives the keys that did not fit to the class of what it returns, which is its last question. So no
# frame of ours stands on the stack while it loads.

_MODULE: ModuleType = sys.modules[nn.Module.__module__]
_ANSWER = "_IncompatibleKeys"
MOST_LOADS = 32


class StateLoads:
    """Loads of a run whose keys do not fit, by the user's line."""

    def __init__(self, sites: SourceLines, leaves: Leaves, namespace: Mapping[str, Any]) -> None:
        self._sites, self._leaves, self._namespace = sites, leaves, namespace
        self.found: dict[int | None, StateLoad] = {}

    def noted(self) -> AbstractContextManager[Any]:
        """Note loads until the block ends."""
        return Replacement(_MODULE, _ANSWER, self._asking)

    def _asking(self, original: Any) -> Any:
        def incompatible_keys(missing: Any, unexpected: Any) -> Any:
            without_dynamo(self.note, sys._getframe(1), missing, unexpected)
            return original(missing, unexpected)

        skip_in_dynamo(incompatible_keys)
        return incompatible_keys

    def note(self, frame: FrameType, missing: list[str], unexpected: list[str]) -> None:
        """Look at what did not fit, and whether all that was given are the module's own tensors. Never raises."""
        caller = frame.f_back
        if caller is None or frame.f_code is not nn.Module.load_state_dict.__code__ or len(self.found) >= MOST_LOADS:
            return
        with suppress(Exception), torch._C.DisableTorchFunction():  # a user's own class of keys may raise
            names, odd = frame.f_locals, dict[str, Any]()
            module, state = names["self"], names["state_dict"]
            own = dict(module.named_parameters())
            if unexpected and missing:
                strip = unexpected[0].removesuffix(missing[0])
                fits = strip != unexpected[0] and {key.removeprefix(strip) for key in list(state)} >= own.keys()
                odd = {"unexpected": len(unexpected), "missing": len(missing), "example": unexpected[0],
                       "wanted": missing[0], "strip": strip if fits else ""}  # fmt: skip
            # A library that has changed nothing puts weights back in this way, too.
            elif is_own_frame(caller) and not names["assign"] and own and all(name in state for name in own):
                odd = {"own": all(state[name].data_ptr() == one.data_ptr() != 0 for name, one in own.items())}
            if any(odd.values()):
                called = place_of(module, self._namespace) or self._leaves.modules.path(module) or type(module).__name__
                site = self._sites.of_frame(caller)
                load = StateLoad(location=site, module=called, given=len(list(state)), **odd)
                self.found.setdefault(site, load)


# Hooks that stand several times on one tensor or module: each step, or a cell that was run again, has put the same one
# there once more. Nothing is noted as they are put on: what is there at the end tells, also of earlier cells.

MOST_HOOKS, MOST_NAMED = 32, 4
_ON_TENSORS: dict[HookKind, str] = {"tensor": "_backward_hooks", "post-accumulate": "_post_accumulate_grad_hooks"}
_ON_MODULES: dict[HookKind, str] = {
    "forward": "_forward_hooks", "forward pre": "_forward_pre_hooks", "full backward": "_backward_hooks",
    "full backward pre": "_backward_pre_hooks",
}  # fmt: skip
_DEEP, _MOST_WRAPPED = 3, 8  # functions in what functions hold; partials and decorators around one
_PLAIN = frozenset({int, float, complex, bool, str, bytes, type(None)})
_CONSTANTS = frozenset({"LOAD_CONST", "LOAD_COMMON_CONSTANT"})  # the latter of None since Python 3.15
_KEEPING = frozenset({"append", "extend", "update", "add", "print", "setdefault", "__setitem__"})  # of a lambda's body
_Function = tuple[CodeType, Any]  # the code of a function, and what tells it from others of that code


class HooksInPlace:
    """The hooks of the user's own that a run's leaves and modules have; none of it is kept."""

    def __init__(self, leaves: Leaves, sites: SourceLines) -> None:
        self._leaves, self._sites = leaves, sites
        self._own = AskedOnce(is_own_code)
        self._before: Counter[tuple[HookKind, int, CodeType]] | None = None

    def begin(self) -> None:
        """Count those that are there before the run's first backward."""
        if self._before is None:
            found = self._found(1)
            self._before = Counter((kind, place, code) for kind, _, place, own in found for code, _ in own)

    def repeated(self, registered: Mapping[CodeType, int | None]) -> tuple[RepeatedHook, ...]:
        """Return those that stand several times on one; ``registered`` are the lines that put any on leaves."""
        before = self._before or Counter()
        found: dict[tuple[HookKind, CodeType, int, bool], RepeatedHook] = {}
        for kind, name, place, functions in self._found(2):
            for code, every in Counter(code for code, _ in functions).items():
                alike = max(Counter(given for one, given in functions if one == code).values())
                grown = every - first if (first := before[kind, place, code]) else 0
                if max(alike, grown) < 2:
                    continue
                times = alike if alike > 1 else every
                key = kind, code, times, alike > 1
                known = found.get(key) or RepeatedHook(
                    kind=kind, function=code.co_name, on=(), targets=0, times=times, same=alike > 1,
                    changes=_changes(code), registered=self._sites.location(registered.get(code)),
                    location=self._sites.at(code.co_filename, in_file(code)[0].co_firstlineno, code.co_name),
                )  # fmt: skip
                on = (*known.on, name)[:MOST_NAMED]
                found[key] = replace(known, on=on, targets=known.targets + 1, grown=max(grown, known.grown))
        return tuple(itertools.islice(found.values(), MOST_HOOKS))

    def _found(self, fewest: int) -> Iterator[tuple[HookKind, str, int, list[_Function]]]:
        """Yield what has so many hooks of a kind that are the user's: its name, its ``id``, and these."""
        with quiet():
            for kind, name, place, hooks in self._places():
                functions = [_function_of(hook) for hook in hooks.values()] if len(hooks) >= fewest else []
                own = [one for one in functions if one is not None and self._own[one[0].co_filename]]
                if len(own) >= fewest:
                    yield kind, name, place, own

    def _places(self) -> Iterator[tuple[HookKind, str, int, Mapping[int, Any]]]:
        """Yield every leaf and module that has hooks, each once."""
        tensors = {id(leaf): (one.name, leaf) for one in self._leaves.known if (leaf := one.reference()) is not None}
        for place, (name, leaf) in tensors.items():
            for kind, attribute in _ON_TENSORS.items():
                if hooks := getattr(leaf, attribute, None):
                    yield kind, name, place, hooks
        roots = self._leaves.modules.roots()
        modules = {id(module): (name, module) for root in roots for name, module in inside(*root)}
        for place, (name, module) in modules.items():
            held = attributes_of(module)
            for kind, attribute in _ON_MODULES.items():
                if hooks := held.get(attribute):
                    yield kind, name, place, hooks


def _function_of(hook: Any, deep: int = _DEEP) -> _Function | None:
    """Return what a hook is known by; None of what is no function of Python's."""
    given: list[Any] = []
    for _ in range(_MOST_WRAPPED):
        if type(hook) is partial:
            given += [*hook.args, *itertools.chain(*hook.keywords.items())]
            hook = hook.func
        elif type(hook) is MethodType:
            given.append(hook.__self__)
            hook = hook.__func__
        elif type(hook) is not FunctionType:  # an object that can be called
            given.append(hook)
            hook = getattr(type(hook), "__call__", None)  # noqa: B004  (its code is asked for)
        elif "__wrapped__" in hook.__dict__:  # what a decorator has made of the user's function
            hook = hook.__dict__["__wrapped__"]
        else:
            given += [*map(_content, hook.__closure__ or ()), *(hook.__defaults__ or ())]
            given += (hook.__kwdefaults__ or {}).values()
            return hook.__code__, tuple(_known_by(value, deep) for value in given)
    return None


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing is bound to the name
        return None


def _known_by(value: Any, deep: int) -> Any:
    """Return by what a value is known to be the same: itself, where it is plain; else its place in memory."""
    if type(value) in _PLAIN:
        return type(value), value
    return (deep and type(value) is FunctionType and _function_of(value, deep - 1)) or id(value)


def _changes(code: CodeType) -> bool:
    """Return whether a function may change what it is given: it returns something, or calls what writes in place."""
    if any(name.endswith("_") and not name.startswith("_") for name in code.co_names):
        return True
    every = list(dis.get_instructions(code))
    stored = any(one.opname == "STORE_ATTR" and one.argval in {"grad", "data"} for one in every)
    returns = any(
        one.opname == "RETURN_VALUE" and not (before.opname in _CONSTANTS and before.argval is None)
        for before, one in itertools.pairwise(every)
    )
    return stored or (returns and not (code.co_name == "<lambda>" and _KEEPING.intersection(code.co_names)))


# What the modules of a traced run hold beside their registries: only the ties of weights are taken down when a module
# is first met, since that two Parameters were one cannot be seen later.


class ModuleWatch(TracePart):
    """Looks at the outermost modules of a run, and at hooks, when it has ended; at modules, while they are there, too.

    Those of a function go when it returns: they are told as they were when they were looked at last.
    """

    def __init__(self, trace: TraceContext) -> None:
        self._trace, self._modules, self._ties = trace, trace.leaves.modules, TiedWeights()
        self._hooks, self._repeated = HooksInPlace(trace.leaves, trace.sites), tuple[RepeatedHook, ...]()
        self._learn, self._modules.on_root = self._modules.on_root, self._met
        self._report: ModulesReport | None = None
        self._early, self._seen = ModulesReport(), dict[str, weakref.ref[nn.Module]]()

    def _met(self, name: str, module: nn.Module) -> None:
        self._learn(name, module)
        self._ties.remember(module)

    def graph_begins(self, _found: Walk, _graph: TracedGraph) -> None:
        """Count the hooks that are there as the first backward begins, or none of them. Never raises."""
        with suppress(Exception):
            self._hooks.begin()

    def look_early(self) -> None:
        """Look at the modules while they are there; not at ties, for which values on a device would be read."""
        self._look(None)

    def finish(self, _error: BaseException | None) -> None:
        """Look at the modules; where that cannot be done, a gap."""
        self._look(self._ties)

    def _look(self, ties: TiedWeights | None) -> None:
        trace = self._trace
        try:
            known = list(trace.recorder.detached.trained.known())
            roots, cell_number = self._modules.roots(), trace.sites.cell_number
            now = modules_report(roots, trace.namespace, ties, lambda: known, cell_number)
            gone = [name for name, reference in self._seen.items() if reference() is None and name not in dict(roots)]
            self._early = now.with_those_of(self._early, gone) if gone else now
            self._seen.update((name, weakref.ref(module)) for name, module in roots)
            if ties is not None:
                self._report = self._early
                self._repeated = self._hooks.repeated(trace.recorder.autograd.hooked_leaves)
        except Exception as error:
            trace.add_gap("modules", f"the contents of the modules could not be inspected: {error_text(error)}")

    def fields(self, _graphs: Sequence[Graph]) -> dict[str, Any]:
        """Return what was found; None before the run has ended."""
        return {"modules": self._report, "hooks": self._repeated}


# Graphs that are kept, or recorded by a model in eval mode, and that no backward goes through.

MOST_RANGES = 256  # of graphs of a line: what backward goes through, it has made lately

_GraphKind = Literal["kept", "evaluation"]
_GraphKey = tuple[_GraphKind, "int | None", str]  # with the site, and the model


@dataclass(slots=True)
class _GraphsOfLine:
    """The graphs of one line: each a range of sequence numbers, of which the stop is exclusive."""

    ranges: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=MOST_RANGES))
    times: int = 0  # how many times a pass came after one of these graphs, and did not go through it
    waits: bool = False  # whether one was made since the last pass
    used: bool = False  # whether a backward went through any of them

    def add(self, start: int, stop: int) -> None:
        """Note a graph, or more of the one that was noted last."""
        self.waits = True
        if self.ranges and self.ranges[-1][1] == start:
            start = self.ranges.pop()[0]
        self.ranges.append((start, stop))

    def look(self, walked: Any) -> None:
        """Note what a pass goes through: the numbers of its nodes, in order."""
        if self.ranges and walked.size and self.ranges[-1][1] > walked[0]:
            at = np.searchsorted(walked, np.array(self.ranges, dtype=np.uint64))
            self.used = self.used or bool((at[:, 0] < at[:, 1]).any())
        self.times += self.waits and not self.used
        self.waits = False


class UnusedGraphs(TracePart):
    """Compares what each backward goes through with the graphs that were kept, or recorded in eval mode, before it."""

    def __init__(self, trace: TraceContext) -> None:
        self._sites, self._modules, self._home = trace.sites, trace.leaves.modules, get_ident()
        self._lines: dict[_GraphKey, _GraphsOfLine] = {}
        self._recorder, self._judges = trace.recorder, True  # as long as every pass is seen
        self._recorder.evaluated = self._evaluated

    def _evaluated(self, start: int, stop: int, frame: FrameType) -> None:
        """Note nodes that a call made in a module in eval mode, by the line that called the model. Never raises."""
        with suppress(Exception):  # a module may answer by code of its own
            *_, call = module_calls(frame)
            model = call.f_locals["self"]
            if get_ident() == self._home and not model.training:
                name = self._modules.path(model) or type(model).__name__
                self._add("evaluation", self._sites.of_frame(call.f_back), name, start, stop)

    def before_pass(self, call: BackwardCall, followed: Following) -> None:
        """Compare a pass with the graphs noted so far, and note its own where it keeps it. Never raises."""
        keeps = call.retains and not call.creates and followed.pass_context is None
        if not (keeps or self._lines):
            return
        found = followed.found
        if found is None or found.foreign:
            self.forget()
            return
        with suppress(Exception):
            numbers = np.array(found.numbers, dtype=np.uint64)
            walked = np.sort(numbers[numbers != NO_NUMBER])
            for line in self._lines.values():
                line.look(walked)
            if keeps and walked.size and followed.thread == self._home:
                self._add("kept", followed.site, "", int(walked[0]), int(walked[-1]) + 1)

    def _add(self, kind: _GraphKind, site: int | None, model: str, start: int, stop: int) -> None:
        line = self._lines.get((kind, site, model))
        if line is None and site is not None and self._judges and len(self._lines) < MOST_LOOPS:
            line = self._lines[kind, site, model] = _GraphsOfLine()
        if line is not None:
            line.add(start, stop)

    def forget(self) -> None:
        """Say nothing of this run: a pass that was not seen may have gone through any of these graphs."""
        self._judges, self._recorder.evaluated = False, None
        self._lines.clear()

    def fields(self, _graphs: Sequence[Graph]) -> dict[str, Any]:
        """Return what was found so far."""
        every = [(*key, line) for key, line in list(self._lines.items()) if line.times and not line.used]
        return {"unused_graphs": tuple(
            # The last backward is one of those that keep, the last evaluation may still be gone through.
            UnusedGraph(kind=kind, location=site, model=model, times=line.times + (kind == "kept" and line.waits))
            for kind, site, model, line in every
        )}  # fmt: skip
