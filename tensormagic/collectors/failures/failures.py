"""From an exception that torch raised to a report of the call that it refused; nothing is run again."""

from __future__ import annotations

import ast
import multiprocessing
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from types import FunctionType, TracebackType
from typing import Any

import torch
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from tensormagic.collectors.autograd_errors.backward_errors import untraced_fault
from tensormagic.collectors.failures.failing_call import (
    Steps,
    function_of,
    is_backward,
    is_torch_file,
    layer_call,
    message_of,
    modules_in,
    of_arguments,
    refused_in,
    samples_in,
    steps_of,
)
from tensormagic.collectors.failures.failing_source import Failing, Refused, lines_in, near_names, tensors_in
from tensormagic.collectors.failures.lost_graph import Asking, lost_graph, lost_way
from tensormagic.collectors.failures.operands import (
    MOST_OPERANDS,
    OperandNames,
    arguments_of,
    as_given,
    function_name,
    namespace_of,
    operand_of,
)
from tensormagic.collectors.graphs.live_nodes import walk_nodes
from tensormagic.collectors.graphs.nodes import describe_nodes
from tensormagic.collectors.graphs.structure import Walker, make_structure, start_nodes
from tensormagic.collectors.memory.live_memory import memory_at
from tensormagic.collectors.objects.children import ObjectReader
from tensormagic.collectors.objects.identity import Leaves, ModuleNames
from tensormagic.collectors.objects.namespace import UNKNOWN, is_kind, still_value
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.session.unregistered import nothing_to_train
from tensormagic.collectors.where.caller import Origins
from tensormagic.collectors.where.source import (
    CellNumber,
    edited,
    failing_line,
    function_of_code,
    innermost_own,
    is_gone,
    is_own_code,
    is_own_frame,
    location_in,
    location_of,
    names_of,
    no_cell,
    running_line,
)
from tensormagic.errors import TensorMagicError
from tensormagic.reports import Edge, FailureReport, Gap, Graph, Location, Node, OutOfMemory
from tensormagic.reports.failure import NothingToTrain, Phase
from tensormagic.words import error_text

# The exception is read, never changed, and nothing of it is kept: what is returned is plain data.
MOST_NODES = 1_500  # a larger graph is not looked at: a picture of it would be all folds
# Torch refused no call there; what this package raises says itself what it is about.
_UNEXPLAINED = (ImportError, NameError, OSError, RecursionError, StopIteration, TensorMagicError, Warning)
COLLATE = "torch.utils.data.default_collate"
# What torch's ``ExceptionWrapper`` raises again here: of a worker, of the thread that pins memory, of a replica.
_ELSEWHERE = re.compile(r"Caught (?P<kind>\w+) in (?P<where>.+?)\.\nOriginal Traceback .*?:\n(?P<trace>.*)", re.DOTALL)
_LINE = re.compile(r'^ *File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
_MOST_WAY = 12
_USUAL = {"F": torch.nn.functional, "nn": torch.nn}
_PARAMETERS = {"parameters", "named_parameters"}
_ENDED = re.compile(r"DataLoader worker .* exited unexpectedly")
_DEEPEST, _MOST_SENT = 4, 1_000  # levels below what a worker is sent, and objects of each
_UNUSED = re.compile(r"Tensors?(?: at index (\d+))? appears to not have been used in the graph")
# Said by an operator of Python's of operands of which none is a tensor: no function of torch's was called.
_PYTHONS = re.compile(r"can only concatenate (?:tuple|list)|unsupported operand type\(s\) for \S+: (?!.*'Tensor')")


@dataclass(slots=True)
class Surroundings:
    """What is known besides the exception itself."""

    # Where names of models are looked up, besides the functions that were running.
    namespace: Mapping[str, Any] = field(default_factory=dict)
    cell_number: CellNumber | None = None  # Gives a cell's execution count from its file name; None outside a notebook.
    source: str = ""  # The source of the expression that a magic evaluates, which Python cannot know.
    # Gives the line that made a tensor, where that was recorded.
    origin: Callable[[Any], Location | None] | None = None
    origins: Origins | None = None  # Knows in which modules nodes were made, where that was recorded.


def failure_of(error: BaseException, around: Surroundings) -> FailureReport | None:
    """Return what is known of a call that torch refused, from the whole traceback; else None. Never raises."""
    if not isinstance(error, Exception) or isinstance(error, _UNEXPLAINED):
        return None
    try:
        steps = steps_of(error, around.source)
        if (found := _ELSEWHERE.match(steps.message)) is not None:
            return _raised_elsewhere(error, steps, found, around)
        refused, inside, ran_out = *_as_called(steps, refused_in(steps)), out_of_memory_of(error)
        if refused is None and ran_out is None:
            return None
        function = name_of(refused) if refused is not None else ""
        phase: Phase = "backward" if is_backward(steps) else "forward"
        stack = _stack(steps, around)
        location = stack[-1] if stack else None
        codes = (entry.tb_frame.f_code for entry in steps.entries if is_own_frame(entry.tb_frame))
        changed = dict.fromkeys(code.co_filename for code in codes if is_gone(code))
        report = FailureReport(
            error_type=type(error).__name__, error=message_of(error), function=function, phase=phase,
            location=location, stack=stack, gaps=tuple(map(edited, changed)),
        )  # fmt: skip
        if ran_out is not None:  # not what it was given is of interest, but what took the memory
            ran_out = replace(ran_out, op=function, location=location)
            ran_out, memory = memory_at(error, ran_out, around.namespace, around.cell_number)
            return replace(report, out_of_memory=ran_out, memory=memory)
        assert refused is not None
        return _with_operands(replace(report, inside=inside, exact=refused.exact), error, steps, refused, around)
    except Exception as problem:
        gap = Gap("call", f"the failing call could not be read: {error_text(problem)}")
        return FailureReport(error_type=type(error).__name__, error=message_of(error), exact=False, gaps=(gap,))


def _with_operands(
    report: FailureReport, error: BaseException, steps: Steps, refused: Refused, around: Surroundings
) -> FailureReport:  # fmt: skip
    """Return the report with what the refused call was given, and what led there."""
    namespace, running = namespace_of(steps, around.namespace), modules_in(steps)
    modules = ModuleNames(namespace)
    if running:
        modules.add_root(running[0])
    own = steps.failing_at(steps.own_entry)
    if _PYTHONS.search(steps.message) and not tensors_in(refused.given):
        report = replace(report, function="")
    arguments = [as_given(each, steps) for each in arguments_of(refused.func, refused.given, refused.keywords)]
    names = OperandNames(steps, refused, modules)
    operands = tuple(operand_of(each, names.of(each), around.origin) for each in arguments[:MOST_OPERANDS])
    unknown = [one.name for each, one in zip(arguments, operands, strict=False) if each.value is UNKNOWN]
    said = ", ".join(name or "one without a name" for name in unknown)
    unread = [f"not kept by Python after the error: {said}"] if unknown else []
    unread += [f"{len(arguments) - MOST_OPERANDS} more arguments"] if len(arguments) > MOST_OPERANDS else []
    gaps = (*report.gaps, *(Gap("operands", why) for why in unread))
    if report.phase == "backward":
        led = _of_backward(error, steps.own_entry, own, refused, around)
    else:
        led = {"graph": _graph(refused.tensors, report.function, namespace, around.origins)}
    path = modules.path(running[-1]) if running else ""
    return replace(
        report, module=path or f"({type(running[-1]).__name__})" if running else "",
        layer_call=layer_call(steps, running, path, namespace) if running else "",
        operands=operands, gaps=gaps, call=own.text if own is not None else "",
        inside=report.inside or (COLLATE if samples_in(steps.entries) is not None else ""),
        unnamed=_unnamed(steps), unimportable=_unimportable(steps), nothing_to_train=_untrained(steps, own, around),
        near=near_names(error.obj, error.name) if isinstance(error, AttributeError) and error.name else (), **led,
    )  # fmt: skip


def _untrained(steps: Steps, failing: Failing | None, around: Surroundings) -> NothingToTrain | None:
    """Return why the module whose parameters an optimizer was to train gave it none; None where there is no module."""
    entry = steps.own_entry
    if "empty parameter list" not in steps.message or failing is None or entry is None:
        return None
    names = {**entry.tb_frame.f_globals, **names_of(entry.tb_frame)}
    asked = (node for node in ast.walk(failing.node) if isinstance(node, ast.Attribute) and node.attr in _PARAMETERS)
    modules = ((ast.unparse(node.value), still_value(node.value, names)) for node in asked)
    found = next(((name, each) for name, each in modules if is_kind(each, torch.nn.Module)), None)
    return found and nothing_to_train(*found, around.namespace, around.cell_number or no_cell)


def _unnamed(steps: Steps) -> tuple[str, ...]:
    """Return which of the usual names of torch's modules the failing line does not know."""
    if steps.own_entry is None:
        return ()
    frame = steps.own_entry.tb_frame
    names = {**frame.f_globals, **names_of(frame)}
    return tuple(name for name, module in _USUAL.items() if names.get(name) is not module)


def _unimportable(steps: Steps) -> tuple[str, ...]:
    """Return what of a DataLoader is defined in the session's cells alone, where its workers ended.

    Workers that are forked have all that there is. Others begin anew, as all do from Python 3.14 on, and import the
    classes and functions that they are sent by name: a script is imported for that, a notebook is no file.
    """
    if not _ENDED.search(steps.message):
        return ()
    objects = (names_of(entry.tb_frame).get("self") for entry in steps.entries)
    loading = next((each for each in objects if is_kind(each, _MultiProcessingDataLoaderIter)), None)
    if loading is None or getattr(sys.modules["__main__"], "__file__", None) is not None:
        return ()
    if (loading._workers[0]._start_method or multiprocessing.get_start_method()) == "fork":
        return ()
    met = sent = [loading._dataset, loading._collate_fn, loading._worker_init_fn]
    for _ in range(_DEEPEST):  # a Subset's dataset, a transform among several, the function of a partial
        whole = (each for each in met if not isinstance(each, FunctionType | type))
        inner = (held for each in whole for _, _, held in ObjectReader().of(each))
        met = list(islice(inner, _MOST_SENT))
        sent = sent + met
    kinds = (each if isinstance(each, FunctionType | type) else type(each) for each in sent)
    return tuple(dict.fromkeys(kind.__qualname__ for kind in kinds if kind.__module__ == "__main__"))


def _of_backward(
    error: BaseException, entry: TracebackType | None, failing: Failing | None, refused: Refused, around: Surroundings
) -> dict[str, Any]:  # fmt: skip
    """Return the fields of a report for a backward that raised, as its graph and its source show why."""
    if entry is None:
        return {}
    given, frame, line = refused.tensors, entry.tb_frame, failing_line(entry)
    root = next(iter(given), None)
    asking = Asking(frame, line, failing, around.cell_number)
    outputs, inputs = (tensors_in(refused.keywords.get(name)) for name in ("outputs", "inputs"))
    unused = _UNUSED.search(message_of(error))
    # Which of several it is, torch says from 2.13 on.
    if unused is not None and len(outputs) == 1 and inputs and (unused[1] or len(inputs) == 1):
        cut, lines = lost_way(asking, outputs[0], inputs[int(unused[1] or 0)])
        return {"cuts": () if cut is None else (cut,), "locations": lines}
    if "does not require grad" in message_of(error):
        root = next((one for one in given if not one.requires_grad), root)
    scope = asking.scope if around.origins is None else None  # a trace saw it better
    if scope is not None and root is not None and not root.requires_grad:
        return lost_graph(asking, scope, root)
    spaces = (names_of(frame), frame.f_globals, around.namespace)
    locate = partial(location_of, cell_number=around.cell_number)
    return {"backward": untraced_fault(error, given, spaces, locate, (scope, line) if scope is not None else None)}


def _raised_elsewhere(
    error: BaseException, steps: Steps, found: re.Match[str], around: Surroundings
) -> FailureReport | None:
    """Return what is told of a call that was refused in another process or thread; None where torch refused nothing."""
    kind, trace = found["kind"], found["trace"]
    lines = _LINE.findall(trace)
    own = tuple(
        location_of(filename, int(line), function_of_code(function), cell_number=around.cell_number)
        for filename, line, function in lines if is_own_code(filename)
    )  # fmt: skip
    innermost = lines[-1][0] if lines else ""
    raises = innermost and is_own_code(innermost) and re.search(r"\braise\b", own[-1].text)
    if raises or not (kind in {"RuntimeError", "OutOfMemoryError"} or is_torch_file(innermost)):
        return None
    said = re.split(rf"^(?:\w+\.)*{kind}: ", trace, flags=re.MULTILINE)  # its module's name may stand before its own
    message = said[-1].strip() if len(said) > 1 else ""
    collated = next((at for at, (*_, function) in enumerate(lines) if function == "default_collate"), 0)
    inside = COLLATE if collated and is_torch_file(lines[collated - 1][0]) else ""
    instead = "; with num_workers=0 it is made here" if "DataLoader" in found["where"] else ""
    stack = (*_stack(steps, around), *own)
    location = stack[-1] if stack else None
    if (ran_out := out_of_memory_of(error)) is not None:
        ran_out = replace(ran_out, message=message, location=location)
    return FailureReport(
        error_type=kind, error=message, inside=inside, function="torch.utils.data.DataLoader" if inside else "",
        location=location, stack=stack, exact=False, out_of_memory=ran_out,
        gaps=(Gap("what the call was given", f"the call was made in {found['where']}{instead}"),),
    )  # fmt: skip


def _graph(
    operands: Sequence[torch.Tensor], function: str, namespace: Mapping[str, Any], origins: Origins | None
) -> Graph | None:
    """Return what autograd had recorded of the operands, the refused call its last node; None where that is nothing."""
    with suppress(Exception):
        with quiet():
            recorded = [operand for operand in operands if operand.requires_grad]
            if all(operand.grad_fn is None for operand in recorded):  # leaves
                return None
            starts = start_nodes(recorded)
            if len(list(walk_nodes(starts, MOST_NODES + 1))) > MOST_NODES:
                return None
            known, leaves = origins or Origins(), Leaves(namespace, ModuleNames(namespace))
            found = Walker(known, leaves).walk(starts)
            structure = make_structure(1, found)
            described = describe_nodes(found, structure, leaves, known, namespace)
        nodes, last = [replace(node, location=None) for node in described], len(described)
        name = function.rsplit(".", 1)[-1].strip("_") or "call"
        into = (Edge(last, root, at, 0) for at, root in enumerate(structure.roots))
        refused = Node(index=last, name=name, op=name, kind="custom")
        return Graph(number=1, nodes=(*nodes, refused), edges=(*structure.edges, *into), roots=(last,))
    return None


def _as_called(steps: Steps, refused: Refused | None) -> tuple[Refused | None, str]:
    """Return the call as the user made it: ``F.cross_entropy``, if given the same; else what it is inside."""
    if refused is None:
        return None, ""
    made, outermost = {id(tensor) for tensor in refused.tensors}, ""
    for entry in refused.around:
        outer = function_of(entry.tb_frame)
        if outer is None:  # one of torch's innards, which nobody calls by name
            continue
        called = of_arguments(steps, entry, outer)
        # Without the number of dimensions: ``max_pool1d`` is made by ``max_pool2d``.
        stems = {name.rsplit(".", 1)[-1].rstrip("0123456789d") for name in (name_of(refused), function_name(outer))}
        if made <= {id(tensor) for tensor in called.tensors} or len(stems) == 1:
            called.exact = refused.exact
            return called, outermost
        outermost = outermost or function_name(outer)
    return refused, outermost


def name_of(refused: Refused) -> str:
    """Return the name of a refused call's function."""
    return refused.name or function_name(refused.func)


def _stack(steps: Steps, around: Surroundings) -> tuple[Location, ...]:
    own = [entry for entry in steps.entries if is_own_frame(entry.tb_frame)]
    kept = own if len(own) <= _MOST_WAY else [*own[:2], *own[-_MOST_WAY + 2 :]]
    stack: list[Location] = []
    for entry in kept:
        place = location_in(entry.tb_frame, failing_line(entry), around.cell_number)
        if not place.text and place.line <= len(lines := lines_in(entry.tb_frame)):  # executed from a string
            place = replace(place, text=lines[place.line - 1].strip())
        stack.append(place)
    caller = innermost_own(steps.entries[0].tb_frame.f_back) if kept and kept[0] is steps.expression else None
    if caller is not None:  # an expression that a line hands over stands in that line
        line = location_in(caller, running_line(caller), around.cell_number)
        stack[0] = replace(line, text=" ".join(around.source.split()))
    return tuple(stack)


# Each backend has its own words for memory that ran out (torch 2.10 to 2.13):
# ``c10/cuda/CUDACachingAllocator.cpp`` (``CUDA`` or ``HIP``), ``c10/cuda/CUDAMallocAsyncAllocator.cpp``,
# ``c10/xpu/XPUCachingAllocator.cpp``, ``aten/src/ATen/mps/MPSAllocator.mm``, ``c10/core/impl/alloc_cpu.cpp``; NumPy's
# is ``numpy/_core/_exceptions.py``.
_SIZE = r"([\d.]+) (bytes|[KMGTP]i?B)"
_UNITS = "bKMGTP"  # what they begin with, each 1024 of the one before: torch's ``GB`` are as large as its ``GiB``
_DEVICES = {"HIP": "cuda", "PrivateUse1": "privateuseone"}
# What says that memory ran out, and where; nowhere: the message names the kind of device, and its number.
_RAN_OUT = (
    (r"(?:\b(\w+) )?[Oo]ut of memory\. Tried to allocate", ""),
    (r"Allocation on device (\d+) would exceed allowed memory\. \(out of memory\)", "cuda:{}"),
    (r"MPS backend out of memory", "mps:0"),
    (r"(?:can't allocate memory|not enough memory): you tried to allocate \d+ bytes", "cpu"),
    (r"unable to mmap \d+ bytes from file (?s:.*)Cannot allocate memory|Unable to allocate .+ for an array", "cpu"),
    (r"(?:CUDA|CUDA driver|HIP) error: out of memory|CU(?:(?:DNN|BLAS|SOLVER)_STATUS|FFT)_ALLOC_FAILED", "cuda"),
)
_NUMBERS = (
    rf"(?:[Tt]ried to allocate|Requested *:|unable to mmap|Unable to allocate) {_SIZE}",
    rf"(?:of which|Free \(according to CUDA\):) {_SIZE}",
    rf"(?:total capacity of|Device limit *:|max allowed:) {_SIZE}",
    rf"(?:MPS allocated:|Currently allocated *:|allocated memory) {_SIZE}",
    rf"{_SIZE} is reserved by PyTorch but unallocated",
    rf"other allocations: {_SIZE}",
)  # asked for, free, in all, in use, in reserve, in use by others


def out_of_memory_of(error: BaseException) -> OutOfMemory | None:
    """Return what an exception says of memory that ran out; None where it is another. Reads its message alone."""
    if not isinstance(error, MemoryError | RuntimeError):  # torch.OutOfMemoryError is a RuntimeError
        return None
    message, device = message_of(error), "cpu" if isinstance(error, MemoryError) else "cuda"
    said = next(((found, where) for pattern, where in _RAN_OUT if (found := re.search(pattern, message))), None)
    if said is not None:
        kind, index = next(iter(said[0].groups()), None) or "CUDA", re.search(r"GPU (\d+)", message)
        device = said[1].format(kind) or f"{_DEVICES.get(kind, kind.lower())}:{index[1] if index else 0}"
    elif not isinstance(error, MemoryError | torch.OutOfMemoryError):
        return None
    sizes = [re.search(pattern, message) for pattern in _NUMBERS]
    asked, free, total, allocated, reserved, others = (
        found and int(float(found[1].rstrip(".")) * 2 ** (10 * _UNITS.index(found[2][0])) + 0.5) for found in sizes
    )
    if others is not None and total is not None:
        free = max(total - (allocated or 0) - others, 0)
    return OutOfMemory(
        device, asked, message=message, free=free, total=total, allocated=allocated, reserved=reserved,
    )  # fmt: skip
