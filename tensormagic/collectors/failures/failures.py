"""From an exception that torch raised to a report of the call that it refused; nothing is run again."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import CodeType, TracebackType
from typing import Any

import torch

from tensormagic.collectors.autograd_errors.backward_errors import untraced_fault
from tensormagic.collectors.failures.failing_call import (
    Refused,
    Steps,
    can_be_explained,
    function_of,
    is_backward,
    message_of,
    modules_in,
    of_arguments,
    refused_in,
    steps_of,
    tensors_in,
)
from tensormagic.collectors.failures.failing_source import executed_source
from tensormagic.collectors.failures.loading import COLLATE, Elsewhere, raised_elsewhere, samples_in
from tensormagic.collectors.failures.operands import (
    MOST_OPERANDS,
    Argument,
    OperandNames,
    arguments_of,
    function_name,
    has_tensor,
    module_names,
    namespace_of,
    operand_of,
)
from tensormagic.collectors.graphs.live_nodes import walk_nodes
from tensormagic.collectors.graphs.nodes import describe_nodes
from tensormagic.collectors.graphs.structure import Walker, make_structure, start_nodes
from tensormagic.collectors.memory.live_memory import memory_at
from tensormagic.collectors.objects.identity import Leaves, ModuleNames
from tensormagic.collectors.objects.namespace import UNKNOWN
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.where.caller import Origins
from tensormagic.collectors.where.source import (
    CellNumber,
    innermost_own,
    is_own_frame,
    location_in,
    location_of,
    names_of,
)
from tensormagic.reports import Edge, FailureReport, Gap, Graph, Location, Node, Operand, OutOfMemory
from tensormagic.reports.failure import BackwardFault, Phase
from tensormagic.words import error_text

# The graph so far: what autograd had recorded of the operands of a call when torch refused it.
#
# No backward will run through it. The refused call itself is added as a last node: that is where the run ended.

MOST_NODES = 1_500  # a larger graph is not looked at: a picture of it would be all folds


def graph_before(
    operands: Sequence[torch.Tensor], function: str, namespace: Mapping[str, Any], origins: Origins | None = None
) -> Graph | None:
    """Return the graph that led to the operands of a refused call, that call its last node.

    Args:
        operands: Tensors that the call was given.
        function: What the call is named.
        namespace: Where the names of leaves and modules are looked up.
        origins: Knows in which modules nodes were made, where that was recorded.

    Returns:
        None where autograd had recorded nothing of them, or too much to be drawn.
    """
    with quiet():
        recorded = [operand for operand in operands if operand.requires_grad]
        if all(operand.grad_fn is None for operand in recorded):  # leaves
            return None
        starts = start_nodes(recorded)
        if len(list(walk_nodes(starts, MOST_NODES + 1))) > MOST_NODES:
            return None
        known = origins or Origins()
        leaves = Leaves(namespace, ModuleNames(namespace))
        found = Walker(known, leaves).walk(starts)
        structure = make_structure(1, found)
        nodes = [
            dataclasses.replace(node, location=None)
            for node in describe_nodes(found, structure, leaves, known, namespace)
        ]
    last = len(nodes)
    name = function.rsplit(".", 1)[-1].strip("_") or "call"
    into = (Edge(last, root, at, 0) for at, root in enumerate(structure.roots))
    refused = Node(index=last, name=name, op=name, kind="custom")
    return Graph(number=1, nodes=(*nodes, refused), edges=(*structure.edges, *into), roots=(last,))


# What the report is made of is in the exception's traceback: `failing_call` finds the call in it, `operands` shows
# what it was given, `operand_names` what the user calls that. The exception is read, never changed, and nothing of
# it is kept: what is returned is plain data.

_MOST_WAY = 12
# Said by an operator of Python's of operands of which none is a tensor: no function of torch's was called.
_PYTHONS = re.compile(r"can only concatenate (?:tuple|list)|unsupported operand type\(s\) for \S+: (?!.*'Tensor')")


@dataclass(slots=True)
class Surroundings:
    """What is known besides the exception itself."""

    # Where names of models are looked up, besides the functions that were running.
    namespace: Mapping[str, Any] = field(default_factory=dict)
    cell_number: CellNumber | None = None  # Gives a cell's execution count from its file name; None outside a notebook.
    mode_calls: frozenset[CodeType] = frozenset()  # The code of ``__torch_function__`` of the modes that were on.
    source: str = ""  # The source of the expression that a magic evaluates, which Python cannot know.
    # Gives the line that made a tensor, where that was recorded.
    origin: Callable[[Any], Location | None] | None = None
    origins: Origins | None = None  # Knows in which modules nodes were made, where that was recorded.


def failure_of(error: BaseException, around: Surroundings) -> FailureReport | None:
    """Return what is known of a call that torch refused; None where the exception is not one of torch's. Never raises.

    Args:
        error: With its traceback; read before this package's frames are taken out of it.
        around: What is known besides.
    """
    if not can_be_explained(error):
        return None
    try:
        steps = steps_of(error, around.mode_calls, around.source)
        if (elsewhere := raised_elsewhere(steps.message, around.cell_number)) is not None:
            return _report_of_text(error, steps, elsewhere, around) if elsewhere.is_torch_s else None
        refused = refused_in(steps)
        ran_out = out_of_memory_of(error)
        if ran_out is not None:
            return _without_memory(error, steps, (refused, ran_out), around)
        return None if refused is None else _report(error, steps, refused, around)
    except Exception as problem:
        gap = Gap("call", f"the failing call could not be read: {error_text(problem)}")
        return FailureReport(error_type=type(error).__name__, error=message_of(error), exact=False, gaps=(gap,))


def _report(error: BaseException, steps: Steps, refused: Refused, around: Surroundings) -> FailureReport:
    refused, inside = _as_called(steps, refused)
    inside = inside or (COLLATE if samples_in(steps.entries) is not None else "")
    modules = module_names(steps, around.namespace)
    stack = _stack(steps, around)
    running = modules_in(steps)
    own = steps.failing_at(steps.own_entry) if steps.own_entry is not None else None
    operands, gaps = _operands(steps, refused, modules, around)
    function = "" if _PYTHONS.search(steps.message) and not has_tensor(refused.given) else name_of(refused)
    plain = _plain_report(error, steps, function, stack)
    return replace(
        plain,
        module=modules.path(running[-1]) or f"({type(running[-1]).__name__})" if running else "",
        operands=operands,
        exact=refused.exact,
        gaps=gaps,
        call=own.text if own is not None else "",
        inside=inside,
        graph=_graph(steps, refused, function, around) if plain.phase == "forward" else None,
        backward=_backward_fault(error, steps, refused, around),
    )


def _report_of_text(error: BaseException, steps: Steps, elsewhere: Elsewhere, around: Surroundings) -> FailureReport:
    """Return what is known of a call that was refused in another process or thread."""
    stack = (*_stack(steps, around), *elsewhere.stack)
    ran_out = out_of_memory_of(error)
    if ran_out is not None:
        ran_out = replace(ran_out, message=elsewhere.message, location=stack[-1] if stack else None)
    return FailureReport(
        error_type=elsewhere.kind, error=elsewhere.message, inside=elsewhere.inside,
        function="torch.utils.data.DataLoader" if elsewhere.inside else "",
        location=stack[-1] if stack else None, stack=stack, exact=False, gaps=(elsewhere.gap,),
        out_of_memory=ran_out,
    )  # fmt: skip


def _without_memory(
    error: BaseException, steps: Steps, found: tuple[Refused | None, OutOfMemory], around: Surroundings
) -> FailureReport:
    """Return what is known of a call for which there was no memory: not what it was given, but what took the memory."""
    refused, described = found
    stack = _stack(steps, around)
    function = name_of(_as_called(steps, refused)[0]) if refused is not None else ""
    described = replace(described, op=function, location=stack[-1] if stack else None)
    described, memory = memory_at(error, described, around.namespace, around.cell_number)
    return replace(_plain_report(error, steps, function, stack), out_of_memory=described, memory=memory)


def _plain_report(error: BaseException, steps: Steps, function: str, stack: tuple[Location, ...]) -> FailureReport:
    """Return what every report of a failure begins with: the error, whose call it ended, and where."""
    phase: Phase = "backward" if is_backward(steps) else "forward"
    return FailureReport(
        error_type=type(error).__name__, error=message_of(error), function=function, phase=phase,
        location=stack[-1] if stack else None, stack=stack,
    )  # fmt: skip


def _graph(steps: Steps, refused: Refused, function: str, around: Surroundings) -> Graph | None:
    """Return what had been recorded of the operands; None where that cannot be read."""
    given = tensors_in((*refused.given, *refused.keywords.values()))
    try:
        return graph_before(given, function, namespace_of(steps, around.namespace), around.origins)
    except Exception:  # a picture that cannot be made is left out
        return None


def _backward_fault(error: BaseException, steps: Steps, refused: Refused, around: Surroundings) -> BackwardFault | None:
    """Return why a backward raised, from its graph; None where it was none, or did for another reason."""
    if steps.own_entry is None or not is_backward(steps):
        return None
    frame, number = steps.own_entry.tb_frame, around.cell_number
    roots = tensors_in((*refused.given, *refused.keywords.values()))
    spaces = (names_of(frame), frame.f_globals, around.namespace)
    return untraced_fault(error, roots, spaces, partial(location_of, cell_number=number))


def _as_called(steps: Steps, refused: Refused) -> tuple[Refused, str]:
    """Return the call as the user made it, and, where torch made it inside another, the name of that.

    A call inside ``F.cross_entropy`` that was given what that was given is that call.
    """
    made = [id(tensor) for tensor in tensors_in((*refused.given, *refused.keywords.values()))]
    outermost = ""
    for entry in refused.around:
        outer = function_of(entry.tb_frame)
        if outer is None:  # one of torch's innards, which nobody calls by name
            continue
        called = of_arguments(steps, entry, outer)
        known = {id(tensor) for tensor in tensors_in((*called.given, *called.keywords.values()))}
        if known.issuperset(made) or _stem(name_of(refused)) == _stem(function_name(outer)):
            called.exact = refused.exact
            return called, outermost
        outermost = outermost or function_name(outer)
    return refused, outermost


def name_of(refused: Refused) -> str:
    """Return the name of a refused call's function."""
    return refused.name or function_name(refused.func)


def _stem(name: str) -> str:
    """Return a function's name without the number of its dimensions: ``max_pool1d`` is made by ``max_pool2d``."""
    return name.rsplit(".", 1)[-1].rstrip("0123456789d")


def _stack(steps: Steps, around: Surroundings) -> tuple[Location, ...]:
    own = [entry for entry in steps.entries if is_own_frame(entry.tb_frame)]
    kept = own if len(own) <= _MOST_WAY else [*own[:2], *own[-_MOST_WAY + 2 :]]
    stack = [_line_of(entry, around.cell_number) for entry in kept]
    caller = innermost_own(steps.entries[0].tb_frame.f_back) if kept and kept[0] is steps.expression else None
    if caller is not None:  # an expression that a line hands over stands in that line
        line = location_in(caller, caller.f_lineno, around.cell_number)
        stack[0] = replace(line, text=" ".join(around.source.split()))
    return tuple(stack)


def _line_of(entry: TracebackType, cell_number: CellNumber | None) -> Location:
    """Return the line at which a frame stands, also of code that was executed from a string."""
    place = location_in(entry.tb_frame, entry.tb_lineno, cell_number)
    if place.text or not place.filename.startswith("<"):
        return place
    lines = executed_source(entry.tb_frame).splitlines()
    return replace(place, text=lines[place.line - 1].strip()) if 0 < place.line <= len(lines) else place


def _operands(
    steps: Steps, refused: Refused, modules: ModuleNames, around: Surroundings
) -> tuple[tuple[Operand, ...], tuple[Gap, ...]]:
    arguments = arguments_of(refused.func, refused.given, refused.keywords)
    names = OperandNames(steps, refused, modules)
    made_at = around.origin or _nowhere
    found = tuple(operand_of(each, names.of(each), made_at) for each in arguments[:MOST_OPERANDS])
    return found, tuple(_gaps(arguments, found))


def _nowhere(_tensor: Any) -> Location | None:
    return None


def _gaps(arguments: list[Argument], operands: tuple[Operand, ...]) -> list[Gap]:
    unknown = [described.name for each, described in zip(arguments, operands, strict=False) if each.value is UNKNOWN]
    gaps = []
    if unknown:
        described = ", ".join(name or "one without a name" for name in unknown)
        gaps.append(Gap("operands", f"not kept by Python after the error: {described}"))
    if len(arguments) > len(operands):
        gaps.append(Gap("operands", f"{len(arguments) - len(operands)} more arguments"))
    return gaps


# What the messages of an out-of-memory error show: which device, how much was asked for, how much there was.
#
# Each backend of torch writes its own. The sources (torch 2.6 to 2.13, older forms where they are still met):
# ``c10/cuda/CUDACachingAllocator.cpp`` (``CUDA`` or ``HIP``), ``c10/cuda/CUDAMallocAsyncAllocator.cpp``,
# ``c10/xpu/XPUCachingAllocator.cpp``, ``aten/src/ATen/mps/MPSAllocator.mm``, ``c10/core/impl/alloc_cpu.cpp``; NumPy's
# is ``numpy/_core/_exceptions.py``.

_SIZE = r"([\d.]+) (bytes|[KMGTP]i?B)"
_UNITS = {"bytes": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_DEVICES = {"CUDA": "cuda", "HIP": "cuda", "XPU": "xpu", "MPS": "mps", "PrivateUse1": "privateuseone"}

_ACCELERATOR = re.compile(rf"(?:\b(\w+) )?[Oo]ut of memory\. Tried to allocate {_SIZE}")
_MPS = re.compile(rf"MPS backend out of memory \(MPS allocated: {_SIZE}")
_ASYNC = re.compile(r"Allocation on device (\d+) would exceed allowed memory\. \(out of memory\)")
_PLAIN = (
    (re.compile(r"(?:can't allocate memory|not enough memory): you tried to allocate (\d+) bytes"), "cpu"),
    (re.compile(r"unable to mmap (\d+) bytes from file .*Cannot allocate memory", re.DOTALL), "cpu"),
    (re.compile(rf"Unable to allocate {_SIZE} for an array"), "cpu"),
    (re.compile(r"(?:CUDA|CUDA driver|HIP) error: out of memory|CUDNN_STATUS_ALLOC_FAILED"), "cuda"),
    (re.compile(r"CUBLAS_STATUS_ALLOC_FAILED|CUSOLVER_STATUS_ALLOC_FAILED|CUFFT_ALLOC_FAILED"), "cuda"),
)


def read_message(message: str, *, is_memory_error: bool = False, device: str = "cpu") -> OutOfMemory | None:
    """Return what a message shows; None where it shows something else.

    Args:
        message: Of the exception.
        is_memory_error: Whether the exception's type alone says that memory ran out (`MemoryError`,
            ``torch.OutOfMemoryError``).
        device: On which device that type says so, where the message does not tell.
    """
    found = next((described for reader in _READERS if (described := reader(message)) is not None), None)
    if found is None and is_memory_error:
        return OutOfMemory(device, None, message=message)
    return found


def _accelerator(message: str) -> OutOfMemory | None:
    asked = _ACCELERATOR.search(message)
    if asked is None:
        return None
    index = re.search(r"GPU (\d+)", message)
    device = _DEVICES.get(asked[1] or "CUDA", (asked[1] or "").lower())
    reserved = _first(message, rf"{_SIZE} is reserved by PyTorch but unallocated")
    allocated = _first(message, rf"{_SIZE} (?:is allocated by PyTorch|already allocated)")
    in_all = _first(message, rf"{_SIZE} reserved in total by PyTorch")
    return OutOfMemory(
        f"{device}:{index[1] if index else 0}",
        _bytes(asked[2], asked[3]),
        message=message,
        free=_first(message, rf"of which {_SIZE} is free", rf"{_SIZE} free;"),
        total=_first(message, rf"total capac\w*ty of {_SIZE}", rf"{_SIZE} total capacity"),
        allocated=allocated,
        reserved=in_all - allocated if in_all is not None and allocated is not None else reserved,
    )


def _mps(message: str) -> OutOfMemory | None:
    allocated = _MPS.search(message)
    if allocated is None:
        return None
    total = _first(message, rf"max allowed: {_SIZE}")
    others = _first(message, rf"other allocations: {_SIZE}")
    in_use = _bytes(allocated[1], allocated[2])
    free = None if total is None else max(total - in_use - (others or 0), 0)
    asked = _first(message, rf"Tried to allocate {_SIZE}")
    return OutOfMemory("mps:0", asked, message=message, free=free, total=total, allocated=in_use)


def _malloc_async(message: str) -> OutOfMemory | None:
    """Read what ``backend:cudaMallocAsync`` writes: a table."""
    found = _ASYNC.search(message)
    if found is None:
        return None
    return OutOfMemory(
        f"cuda:{found[1]}",
        _first(message, rf"Requested *: {_SIZE}"),
        message=message,
        free=_first(message, rf"Free \(according to CUDA\): {_SIZE}"),
        total=_first(message, rf"Device limit *: {_SIZE}"),
        allocated=_first(message, rf"Currently allocated *: {_SIZE}"),
    )


def _plain(message: str) -> OutOfMemory | None:
    """Read what says at most how much was asked for."""
    for pattern, device in _PLAIN:
        if found := pattern.search(message):
            asked = found.groups()
            nbytes = None if not asked else int(asked[0]) if len(asked) == 1 else _bytes(*asked)
            return OutOfMemory(device, nbytes, message=message)
    return None


_READERS: tuple[Callable[[str], OutOfMemory | None], ...] = (_accelerator, _malloc_async, _mps, _plain)


def _first(message: str, *patterns: str) -> int | None:
    """Return the size that the first fitting pattern finds; None where none fits."""
    found = next((match for pattern in patterns if (match := re.search(pattern, message))), None)
    return None if found is None else _bytes(found[1], found[2])


def _bytes(value: str, unit: str) -> int:
    """Return a size as torch writes it, as a number of bytes: its ``GB`` are as large as its ``GiB``."""
    power = _UNITS[unit] if unit in _UNITS else _UNITS[unit[0]]
    return int(float(value.rstrip(".")) * 2 ** (10 * power) + 0.5)


_TYPES: tuple[type[BaseException], ...] = (MemoryError, torch.OutOfMemoryError)
_READ = (*_TYPES, RuntimeError)  # the only ones whose messages are read


def out_of_memory_of(error: BaseException) -> OutOfMemory | None:
    """Return what an exception says of memory that ran out; None where it is another. Reads its message alone."""
    if not isinstance(error, _READ):
        return None
    try:
        device = "cpu" if isinstance(error, MemoryError) else "cuda"
        return read_message(str(error), is_memory_error=isinstance(error, _TYPES), device=device)
    except Exception:  # a message that cannot be had shows nothing
        return None
