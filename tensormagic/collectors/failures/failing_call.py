"""Finds the call that torch refused in the traceback of an exception, and what that call was given.

While one of this package's function modes is on, its frame is in the traceback and still holds the call: function
and arguments, exactly as they were made. Without one, the call is read from the line that failed and from the arguments
of torch's own Python functions. Nothing costs anything before an exception has ended a run.

What is found here holds tensors: it is made into plain data at once and dropped.
"""

from __future__ import annotations

import ast
import dis
import inspect
import os.path
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any

import torch
from torch import nn
from torch.utils.data import default_collate

from tensormagic.collectors.failures.failing_source import (
    UNPACKS,
    Failing,
    Refused,
    attribute_in,
    call_in,
    failing_at,
    misused_in,
    unpacked_in,
)
from tensormagic.collectors.hooks.modes import MODE_CALLS
from tensormagic.collectors.objects.children import is_kind
from tensormagic.collectors.objects.namespace import UNKNOWN, still_value
from tensormagic.collectors.where.source import (
    foreign_frames,
    is_own_code,
    is_own_frame,
    lines_of,
    names_of,
    syntax_of,
)

_TORCH = str(Path(torch.__file__).parent)
_MODULES = (str(Path(nn.__file__).parent / "modules"), str(Path(nn.__file__).parent / "parallel"))
_HELPERS = str(Path(nn.__file__).parent / "modules" / "utils.py")  # of functions, for all that it is there
# Operations that torch has in Python: what runs there is the inside of a call, as a kernel in C++ is.
_KERNELS = tuple(f"{_TORCH}/{name}" for name in ("_meta_registrations.py", "_prims", "_refs/", "_decomp/", "_library/"))
# Torch's own machinery around calls: never what a user called.
_MACHINERY = tuple(f"{_TORCH}/{name}" for name in ("_tensor.py", "overrides.py", "utils/", "_dynamo/", "_compile.py",
                   "_ops.py", "testing/", "autograd/"))  # fmt: skip
_APART = (*_MODULES, *_KERNELS, *_MACHINERY)
_BACKWARDS: tuple[Any, ...] = (torch.Tensor.backward, torch.autograd.backward, torch.autograd.grad)
_BACKWARD: dict[CodeType, Any] = {call.__code__: call for call in _BACKWARDS}
_MODULE_CALL = nn.Module._call_impl.__code__
_MODULE_CALLS = (_MODULE_CALL, nn.Module._wrapped_call_impl.__code__)
_NO_SUCH_NAME = "__getattr__"  # of a module, or of torch itself, raises AttributeError: as a rule a slip of the pen
# What torch says of an index or of operands in an error of a kind that Python raises as well.
_TORCHS_OWN = re.compile(
    r"Dimension out of range \(expected|for (?:dimension \d+ with size|tensor of dim)|'Tensor'"
    r"|only one element tensors can be converted"
)
_PYTHONS_OWN = re.compile(r"changed size during iteration|generator raised StopIteration")  # in a RuntimeError
_OF_TEXT = re.compile(r"can only concatenate (?:str|list|bytes) ")  # whatever the other operand is
_METHODS = f"{_TORCH}/_tensor.py"
_OPTIMIZER = f"{_TORCH}/optim/optimizer.py"  # whose functions wrap the methods of every optimizer
_MULTIPROCESSING = f"{os.path.sep}multiprocessing{os.path.sep}"
_HIDDEN = "__tracebackhide__"  # a name by which a frame tells IPython what to leave out of a traceback
_GET_ITEM = torch.Tensor.__getitem__  # where a module of torch's takes its own argument apart, the call is the module's


@dataclass(slots=True)
class Steps:
    """The traceback of an exception, without this package's frames."""

    entries: list[TracebackType]  # The outermost first.
    kind: type[BaseException] = Exception  # The class of the exception.
    message: str = ""  # What it says.
    source: str = ""  # Of the expression that a magic evaluates, which Python cannot know.
    own: int = -1  # Index of the user's innermost frame; -1 where there is none.
    made: Refused | None = None  # The innermost call that a mode of this package made below it.

    @property
    def expression(self) -> TracebackType | None:
        """The entry of the expression that a magic evaluates; None where there is none."""
        own = (entry for entry in self.entries if self.source and is_own_frame(entry.tb_frame))
        return next((each for each in own if not lines_of(_file(each), each.tb_frame.f_globals)), None)

    def failing_at(self, entry: TracebackType | None) -> Failing | None:
        """Return what failed in the frame of an entry; None where that is unknown."""
        found = None if entry is None else failing_at(entry, self.source if entry is self.expression else "")
        if found and found.operation == "COMPARE_OP" and self.message.startswith("Boolean value of Tensor"):
            return replace(found, operation="TO_BOOL")  # Python 3.13 compares and asks in one instruction
        return found

    @property
    def own_entry(self) -> TracebackType | None:
        """The entry of the user's innermost frame."""
        return self.entries[self.own] if self.own >= 0 else None


def message_of(error: BaseException) -> str:
    """Return an exception's message, without the colours of a terminal; empty where it cannot say it."""
    with suppress(Exception):
        return re.sub(r"\x1b\[[\d;]*m", "", str(error))
    return ""


def steps_of(error: BaseException, source: str = "") -> Steps:
    """Return the way to where an exception was raised, past the modes of this package."""
    entries: list[TracebackType] = []
    trace = error.__traceback__
    while trace is not None:
        entries.append(trace)
        frame, trace = trace.tb_frame, trace.tb_next
        if _HIDDEN in frame.f_code.co_varnames and names_of(frame).get(_HIDDEN) == "__ipython_bottom__":
            entries.clear()  # of a cell that a magic ran, from the cell on, as IPython shows it
    kept = set(foreign_frames([entry.tb_frame for entry in entries]))
    steps = Steps([entry for entry in entries if entry.tb_frame in kept], type(error), message_of(error), source)
    steps.own = max((at for at, entry in enumerate(steps.entries) if is_own_frame(entry.tb_frame)), default=-1)
    own = entries.index(steps.entries[steps.own]) if steps.own >= 0 else -1
    modes = [at for at, entry in enumerate(entries) if at > own and entry.tb_frame.f_code in MODE_CALLS]
    if modes:
        names, above = names_of(entries[modes[-1]].tb_frame), modes[-1] - 1
        while above > 0 and entries[above].tb_frame.f_code.co_name == "handle_torch_function":
            above -= 2  # that, and the function that asked for it
        given, keywords = tuple(names["args"]), dict(names["kwargs"] or {})
        steps.made = Refused(names["func"], "", given, keywords, exact=True, caller=entries[above])
    return steps


def refused_in(steps: Steps) -> Refused | None:
    """Return the call that torch refused, or None where the exception did not come from torch."""
    below, own = steps.entries[steps.own + 1 :], steps.own_entry
    if steps.made is not None and not (steps.made.func is _GET_ITEM and _forward_entry(below[-1:])):
        return replace(steps.made, around=function_entries(below))
    if not below:
        # What a ``raise`` or a failed ``assert`` raised is the user's own.
        raises = own is not None and dis.opname[own.tb_frame.f_code.co_code[own.tb_lasti]] == "RAISE_VARARGS"
        return None if raises else _read(steps, own)
    while _MULTIPROCESSING in _file(below[-1]) and len(below) > 1:  # what a worker is to get
        below.pop()
    if not is_torch_file(_file(below[-1])):
        return None
    if below[-1].tb_frame.f_code.co_name != _NO_SUCH_NAME:
        return _of_library(steps, below)
    # Of a module that a function of torch's took for a tensor.
    asked = hasattr(torch.Tensor, steps.message.rpartition("attribute ")[2].strip("'"))
    return _of_library(steps, below[:-1]) if asked and len(below) > 1 else _read(steps, own)


def _of_library(steps: Steps, below: list[TracebackType]) -> Refused:
    """Return the call that torch's own Python functions, below the user's, made or refused."""
    below = list(takewhile(lambda entry: not _file(entry).startswith(_KERNELS), below)) or below
    backward = next((entry for entry in below if entry.tb_frame.f_code in _BACKWARD), None)
    if backward is not None:
        call = of_arguments(steps, backward, _BACKWARD[backward.tb_frame.f_code])
        if "inputs" in call.keywords and (inputs := names_of(backward.tb_frame).get("inputs_tuple")):
            call.keywords["inputs"] = inputs[0] if is_kind(call.keywords["inputs"], torch.Tensor) else inputs
        return call
    around = [each for each in function_entries(below) if _file(each) != _OPTIMIZER]
    read = _read(steps, below[-1])
    if read is not None and not (read.func is _GET_ITEM and _forward_entry(below[-1:])):
        read.around = around
        return read
    if around:
        return of_arguments(steps, around[0], function_of(around[0].tb_frame))
    name = below[-1].tb_frame.f_code.co_name
    method = getattr(torch.Tensor, name, None) if _file(below[-1]) == _METHODS else None
    if method is not None:
        return of_arguments(steps, below[-1], method)
    inside = ((each, each.tb_frame.f_code) for each in below if _file(each).startswith((*_MODULES, f"{_TORCH}/optim")))
    methods = (each for each, code in inside if code not in _MODULE_CALLS and code.co_varnames[:1] == ("self",))
    entry = _forward_entry(below) or next(methods, None)
    if entry is not None:
        return of_arguments(steps, entry, None)
    return _read(steps, steps.own_entry) or Refused(caller=below[-1])


def _read(steps: Steps, entry: TracebackType | None) -> Refused | None:
    """Return the call that an entry's failing expression makes, where it is one of torch's."""
    failing = steps.failing_at(entry)
    if entry is None or failing is None or _OF_TEXT.match(steps.message):
        return None
    names = {**entry.tb_frame.f_globals, **names_of(entry.tb_frame)}
    if failing.operation in UNPACKS:
        found = unpacked_in(failing, names)
    elif issubclass(steps.kind, AttributeError) and entry is steps.own_entry:
        found = attribute_in(failing, names, steps.message)
    else:
        of_python = not issubclass(steps.kind, RuntimeError) or _PYTHONS_OWN.search(steps.message)
        only_torch = not of_python or _TORCHS_OWN.search(steps.message) is not None
        found = call_in(failing, names, only_torch=only_torch) or misused_in(failing, names, steps.message)
    return None if found is None else replace(found, caller=entry)


def name_at_home(named: Any) -> str:
    """Return the name of a function or class, behind the shortest of torch's modules that has it; alone where none."""
    parts = str(named.__module__).split(".")
    homes = [".".join(parts[: at + 1]) for at in range(len(parts) if parts[0] == "torch" else 0)]
    home = next((each for each in homes if getattr(sys.modules.get(each), named.__name__, None) is named), "")
    return f"{home}.{named.__name__}" if home else str(named.__name__)


def function_entries(below: list[TracebackType]) -> list[TracebackType]:
    """Return the entries of torch's own functions, from that which the user, or a module, called inwards."""

    def is_function_s(entry: TracebackType) -> bool:
        return is_torch_file(_file(entry)) and (_file(entry) == _HELPERS or not _file(entry).startswith(_APART))

    inwards = [*takewhile(is_function_s, reversed(below))][::-1]
    named = ((entry, entry.tb_frame.f_code.co_name) for entry in inwards)
    # What is torch's own business by its name is left out: ``_check``, but not ``__call__``.
    return [entry for entry, name in named if not name.startswith("_") or name.endswith("__")]


def _file(entry: TracebackType) -> str:
    return entry.tb_frame.f_code.co_filename


def is_torch_file(filename: str) -> bool:
    """Return whether a file is one of torch's own."""
    return filename.startswith(_TORCH)


def _forward_entry(below: list[TracebackType]) -> TracebackType | None:
    """Return the entry of the innermost forward, or constructor, of a module of torch's own."""
    inside = (entry for entry in reversed(below) if entry.tb_frame.f_code.co_name in {"forward", "__init__"})
    return next((entry for entry in inside if _file(entry).startswith(_MODULES)), None)


def of_arguments(steps: Steps, entry: TracebackType, func: Any) -> Refused:
    """Return a call with the arguments in its Python function's frame, but defaults; None for a module's method."""
    code, held, name, method = entry.tb_frame.f_code, names_of(entry.tb_frame), "", entry.tb_frame.f_code.co_name
    owner = held.get("self") if func is None else None
    order, several, _ = inspect.getargs(code)
    named, rest = {name: held[name] for name in order if name in held}, tuple(held.get(several or "", ()))
    if rest:
        rest = (*(named.pop(name) for name in order[: code.co_argcount]), *rest)
    elif (called := func or getattr(type(owner), method, None)) is not None:
        for known, parameter in inspect.signature(called).parameters.items():
            value, default = named.get(known), parameter.default
            if value is default or (type(value) is type(default) in {int, float, str} and value == default):
                named.pop(known, None)
    above = steps.entries[: steps.entries.index(entry)]
    if owner is not None:
        rest = rest[1:] if rest[:1] and rest[0] is owner else rest
        # As a user calls it: the class alone, where that is what they call.
        name = name_at_home(type(owner)).replace("torch.nn.", "nn.", 1)
        name += "" if method in {"forward", "__init__"} else f".{method}"
        order = order[1:]
        named.pop("self", None)
        if [each.tb_frame.f_code for each in above[-2:]] == [*reversed(_MODULE_CALLS)]:
            # What the module was called with: its forward may have bound its parameters anew.
            names = names_of(above[-2].tb_frame)
            named = {**dict(zip(order, names["args"], strict=False)), **names["kwargs"]} or named
        features = vars(owner).get("num_features") if isinstance(owner, nn.Module) else None
        if type(features) is int:  # of a normalisation, which looks at its input before it calls a function
            named["num_features"] = features
    while len(above) > 1 and above[-1].tb_frame.f_code in _MODULE_CALLS:
        above.pop()
    return Refused(func, name, rest, named, caller=above[-1] if above else None, order=tuple(order))


def function_of(frame: FrameType) -> Any:
    """Return the function of torch's that a frame runs; None where its module does not have it."""
    found = vars(sys.modules.get(frame.f_globals.get("__name__", ""), sys)).get(frame.f_code.co_name)
    same = getattr(inspect.unwrap(found), "__code__", None) is frame.f_code if callable(found) else False
    return found if same else None


def modules_in(steps: Steps) -> list[nn.Module]:
    """Return the modules whose forward was running, the outermost first; none without what ``nn.Module`` sets up."""
    frames = (entry.tb_frame for entry in steps.entries if entry.tb_frame.f_code is _MODULE_CALL)
    return [module for frame in frames if "_modules" in vars(module := names_of(frame)["self"])]


def given_to_module(entries: list[TracebackType]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what the innermost module that was called there was given: arguments and keywords."""
    calls = [names_of(entry.tb_frame) for entry in entries if entry.tb_frame.f_code is _MODULE_CALLS[1]]
    return (calls[-1]["args"], calls[-1]["kwargs"]) if calls else ((), {})


def is_backward(steps: Steps) -> bool:
    """Return whether the exception was raised within a backward call."""
    return any(entry.tb_frame.f_code in _BACKWARD for entry in steps.entries)


def samples_in(entries: Iterable[TracebackType]) -> Any:
    """Return the samples that torch, and not the user's ``collate_fn``, gave its default one; else None."""
    frames = (entry.tb_frame for entry in entries if entry.tb_frame.f_code is default_collate.__code__)
    first = next(frames, None)
    is_torch_s = first is not None and first.f_back is not None and is_torch_file(first.f_back.f_code.co_filename)
    return names_of(first)["batch"] if first is not None and is_torch_s else None


# The call that makes a layer of torch's: as the user's code writes it, else with every argument that the layer has.

# The arguments of a recurrent layer are those of their base, after the mode.
_RECURRENT = tuple(inspect.signature(nn.RNNBase).parameters)[1:]
_PLAIN = frozenset({bool, int, float, str, tuple})
_AROUND = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)  # who makes one of these makes its attention


def layer_call(steps: Steps, running: Sequence[nn.Module], path: str, names: Mapping[str, Any]) -> str:
    """Return the call that makes the innermost module that was running; empty where it is none of torch's."""
    around = [each for each in running[-2:-1] if is_kind(each, *_AROUND)]
    layer, name = (around or running[-1:])[0], "" if around else path.rpartition(".")[2]
    kind = type(layer)
    if getattr(nn, kind.__name__, None) is not kind:
        return ""
    sources = dict.fromkeys(source for source in _sources(steps, running) if f"{kind.__name__}(" in source)
    written = {ast.unparse(call) for source in sources for call in _calls(source, layer, name, names)}
    if len(written) == 1:
        return written.pop()
    shown = repr(layer)
    return f"nn.{kind.__name__}(...)" if "\n" in shown else f"nn.{shown}"


def _sources(steps: Steps, running: Sequence[nn.Module]) -> Iterator[str]:
    """Yield the source of the files and cells whose functions were running, or that define a module that was."""
    codes = [entry.tb_frame.f_code for entry in steps.entries if is_own_frame(entry.tb_frame)]
    inits = (getattr(type(module).__init__, "__code__", None) for module in running)
    for code in (*(each for each in inits if each is not None), *codes):
        if is_own_code(code.co_filename):
            yield "".join(lines_of(code.co_filename))


def _calls(source: str, layer: nn.Module, name: str, names: Mapping[str, Any]) -> Iterator[ast.Call]:
    """Yield the calls that made a layer: of its class, and with its arguments, or assigned to its name."""
    nodes = list(ast.walk(syntax_of(source)))
    targets = {id(node.value): node.targets[0] for node in nodes if isinstance(node, ast.Assign)}
    for call in (node for node in nodes if isinstance(node, ast.Call)):
        target = targets.get(id(call))
        called, assigned = (getattr(each, "attr", getattr(each, "id", "")) for each in (call.func, target))
        if called == type(layer).__name__ and _fits(call, layer, names, wholly=not name or assigned != name):
            yield call


def _fits(call: ast.Call, layer: nn.Module, names: Mapping[str, Any], *, wholly: bool) -> bool:
    """Return whether all arguments of a call, as far as they are known, are those that a layer has."""
    order = _RECURRENT if is_kind(layer, nn.RNNBase) else tuple(inspect.signature(type(layer)).parameters)
    if any(isinstance(each, ast.Starred) for each in call.args) or any(each.arg is None for each in call.keywords):
        return False
    given = {**dict(zip(order, call.args, strict=False)), **{each.arg or "": each.value for each in call.keywords}}
    values = {name: still_value(node, names) for name, node in given.items()}
    unknown = any(value is UNKNOWN for value in values.values())
    return not (wholly and unknown) and all(_is_value(vars(layer), name, value) for name, value in values.items())


def _is_value(held: Mapping[str, Any], name: str, value: Any) -> bool:
    """Return whether a layer has a value for an argument; one that is not known, or kept, may be it."""
    if value is UNKNOWN:
        return True
    if name in held["_parameters"]:
        return (held["_parameters"][name] is not None) == bool(value)
    has = held.get(name)
    return type(has) not in _PLAIN or has == value or (type(has) is tuple and type(value) is int and {*has} == {value})
