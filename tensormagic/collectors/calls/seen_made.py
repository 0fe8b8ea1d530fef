"""What calls make: memory that nothing has filled yet, random numbers, and updates that are lost."""

from __future__ import annotations

import ast
import ctypes
import inspect
import random
import re
import sys
import weakref
from dataclasses import dataclass
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from tensormagic.collectors.calls.call_notes import MODULE_CALL, Call, CallNotes, Found, running_part
from tensormagic.collectors.geometry.parts import PLAIN
from tensormagic.collectors.graphs.live_nodes import flat
from tensormagic.collectors.objects.children import has_history, is_leaf
from tensormagic.collectors.quiet import TensorRef
from tensormagic.collectors.where.source import (
    SourceLines,
    definition_of,
    is_own_code,
    known_line,
    lines_of,
    names_of,
    outwards,
    running_line,
    statements_around,
    syntax_of,
    tree_of,
)
from tensormagic.reports import Observation
from tensormagic.reports.training import ObservationKind

# Memory that was asked for without a value, and read before anybody wrote one.
#
# What ``torch.empty`` gave is known by a weak reference to its storage: so are views and an ``nn.Parameter`` of it. The
# first write by torch ends that, also one that is not seen (the version counter shows it), and so does handing the
# memory to somebody else. Who writes without telling torch (a compiled extension) changes what is there: a few bytes
# from its ends are compared before anything is said, which is why only memory on the CPU is followed. Only what the
# user's own code asks for is, and `Module.to_empty`: torch's own layers fill what they make.

MOST_FOLLOWED = 128
LONGEST = 10_000  # calls that are looked at while something is followed
SAMPLE = 64  # bytes at either end

_TO_EMPTY = "torch/nn/modules/module.py"
_COPYING = frozenset({"clone", "to", "cpu", "float", "double", "half", "bfloat16", "contiguous", "type", "detach"})
_FILLING = frozenset({"__setitem__", "numpy", "__array__", "data_ptr", "untyped_storage", "storage", "__dlpack__",
                      "_typed_storage", "set_", "__reduce_ex__", "__deepcopy__", "share_memory_"})  # fmt: skip
_LOOKING = frozenset({
    "__repr__", "__format__", "__get__", "zeros_like", "ones_like", "empty_like", "full_like", "rand_like",
    "randn_like", "randint_like", "new_zeros", "new_ones", "new_empty", "new_full",
})  # fmt: skip
# These ignore their first operand where beta is 0.
_BETA = frozenset({"addmm", "addmv", "addr", "baddbmm", "addbmm", "sspaddmm"})
_READING = frozenset({
    "add", "sub", "mul", "div", "pow", "rsub", "__radd__", "__rsub__", "__rmul__", "__rtruediv__", "__rpow__", "neg",
    "abs", "exp", "log", "sqrt", "square", "sin", "cos", "tanh", "sigmoid", "relu", "softmax", "log_softmax", "matmul",
    "mm", "mv", "bmm", "dot", "addmm", "addmv", "baddbmm", "einsum", "linear", "conv1d", "conv2d", "conv3d", "sum",
    "mean", "std", "var", "max", "min", "amax", "amin", "norm", "prod", "argmax", "argmin", "cumsum", "sort", "topk",
    "cat", "stack", "concat", "embedding", "layer_norm", "batch_norm", "group_norm", "mse_loss", "l1_loss", "gelu",
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy_loss", "item", "__float__", "silu",
    "add_", "sub_", "mul_", "div_", "pow_", "__matmul__", "__rmatmul__", "__pow__", "__neg__", "outer", "dropout",
})  # fmt: skip


@dataclass(slots=True)
class UninitializedMemory:
    """One piece of memory that nobody has written yet, as far as torch knows."""

    reference: StorageWeakRef  # while it lives, no other storage gets this address
    site: int | None
    version: int
    bits: bytes
    intact: bool = False  # when a call began that reads and writes it

    def still_is(self, x: torch.Tensor) -> bool:
        """Return whether what was asked for is as it was when it came, judged by versions and bytes."""
        return x._version == self.version and _ends(x.untyped_storage()) == self.bits


def _ends(storage: torch.UntypedStorage) -> bytes:
    start, length = storage.data_ptr(), storage.nbytes()
    size = min(length, SAMPLE)
    return ctypes.string_at(start, size) + ctypes.string_at(start + length - size, size)


def _mark_fresh(watch: CallNotes, x: torch.Tensor, site: int | None) -> None:
    """Follow the memory behind a tensor from now on."""
    if len(watch.fresh) >= MOST_FOLLOWED:
        del watch.fresh[next(iter(watch.fresh))]
    storage = x.untyped_storage()
    reference = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
    watch.fresh[storage._cdata] = UninitializedMemory(reference, site, x._version, _ends(storage))
    watch.since_fresh = 0


def about_to_write(watch: CallNotes, x: Any) -> None:
    """Look at what a call is about to write: afterwards it has changed anyway."""
    if (mark := watch.fresh.get(storage_key(x))) is not None:
        mark.intact = mark.still_is(x)


def follow_fresh(watch: CallNotes, call: Call) -> None:
    """Look at what a call does with memory that is followed: it fills it, reads it, or looks away."""
    watch.since_fresh += 1
    if watch.since_fresh > LONGEST:
        watch.fresh.clear()
    given = [x for x in flat((*call.args, *call.kwargs.values())) if watch.fresh and storage_key(x) in watch.fresh]
    if not given:
        return
    x, name = given[0], str(getattr(call.function, "__name__", ""))
    # ``torch.baddbmm(torch.empty(…), q, k, beta=0)`` is meant: the values are ignored.
    blind = name in _BETA and call.kwargs.get("beta") == 0 and len(given) == 1 and x is call.args[0]
    if name in _LOOKING or blind or _goes_on(watch, name, call, x):
        return
    mark = watch.fresh[storage_key(x)]
    if name in _READING and "out" not in call.kwargs and (mark.intact or mark.still_is(x)):
        operands = [value for value in flat(call.args) if isinstance(value, torch.Tensor)]
        place = next(at for at, value in enumerate(operands) if value is x)
        watch.note("uninitialised", call, operands=operands, about=place, nbytes=x.nbytes, made=mark.site)
    for x in given:
        watch.fresh.pop(storage_key(x), None)


def _goes_on(watch: CallNotes, name: str, call: Call, x: torch.Tensor) -> bool:
    """Return whether memory stays unwritten and unread: what came out is a view of it, a copy, or no tensor."""
    result = call.result
    if name in _FILLING or (name.endswith("_") and not name.endswith("__")):
        return False
    if not isinstance(result, torch.Tensor):
        return name not in _READING and not isinstance(result, tuple | list)
    if copied := name in _COPYING and storage_key(result) != storage_key(x) and _is_followable(result):
        _mark_fresh(watch, result, watch.fresh[storage_key(x)].site)
    return copied or storage_key(result) == storage_key(x)


def storage_key(x: Any) -> int:
    """Return under which key the memory of a tensor is followed; 0 where it is not plain."""
    if not isinstance(x, torch.Tensor) or type(x) not in PLAIN or x.layout is not torch.strided or x.is_nested:
        return 0
    return int(x.untyped_storage()._cdata)


def _is_followable(x: Any) -> bool:
    return bool(storage_key(x)) and x.device.type == "cpu" and x.numel() > 0 and not x.is_inference()


def asked_for(watch: CallNotes, call: Call) -> None:
    """Follow memory that the user's own code has asked for."""
    if (is_own_code(call.filename) or call.filename.endswith(_TO_EMPTY)) and _is_followable(call.result):
        _mark_fresh(watch, call.result, watch.site(call))


# Random numbers that come from a generator whose seed nobody chose.
#
# torch seeds its generators from the system's entropy, with 64 bits, on a GPU with 53, as ``torch.seed()`` does.
# A seed that a user or a program writes down is smaller: a date with its time, 20261121204500, has 45 bits. A larger
# one no second run will have: one of a quarter of a million that torch draws would be taken for a chosen one.

_CHOSEN_BITS, _CHOSEN_BITS_ON_A_GPU = 45, 40

DROPPING = (
    "dropout", "dropout_", "dropout1d", "dropout2d", "dropout3d", "feature_dropout", "alpha_dropout",
    "feature_alpha_dropout",
)  # fmt: skip
DRAWS = (
    *DROPPING, "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "normal", "bernoulli",
    "multinomial", "poisson", "normal_", "uniform_", "random_", "bernoulli_", "exponential_", "cauchy_", "geometric_",
    "log_normal_", "rrelu", "scaled_dot_product_attention", "kaiming_uniform_", "kaiming_normal_", "xavier_uniform_",
    "xavier_normal_", "trunc_normal_", "orthogonal_",
)  # fmt: skip
_NO_EFFECT = "torch/utils/data/dataloader.py"  # draws a seed for its workers, also where there are none


def drew(watch: CallNotes, call: Call) -> None:
    """Note a draw from a default generator with a seed of torch's own choice."""
    if not isinstance(call.result, torch.Tensor):
        return
    device, cuda = call.result.device, torch.cuda.default_generators
    if device.type not in {"cpu", "cuda"} or (device.type == "cuda" and not cuda):
        return
    seed = (torch.default_generator if device.type == "cpu" else cuda[device.index or 0]).initial_seed()
    if not was_chosen(seed, device) and _draws(call) and not call.filename.endswith(_NO_EFFECT):
        watch.note("draw", call, detail=str(seed))


def was_chosen(seed: int, device: torch.device) -> bool:
    """Return whether a seed is one that somebody wrote down, not one that torch took from the system."""
    seed = min(seed, (1 << 64) - seed)  # `manual_seed(-1)` is the last of 64 bits
    return seed.bit_length() <= (_CHOSEN_BITS if device.type == "cpu" else _CHOSEN_BITS_ON_A_GPU)


def _draws(call: Call) -> bool:
    """Return whether a call draws from a default generator: dropout while training alone, attention where it drops."""
    name, given = call.function.__name__, call.kwargs
    if name in DROPPING:
        p = call.args[1] if len(call.args) > 1 else given.get("p", 0.5)
        train = call.args[2] if len(call.args) > 2 else given.get("training", given.get("train", True))
        return bool(p) and bool(train)
    if name == "scaled_dot_product_attention":
        return bool(given.get("dropout_p", (*call.args, *(0,) * 5)[4]))
    return not any(isinstance(value, torch.Generator) for value in (*call.args, *given.values()))


# Workers of a loader get a copy of the data set each. What it draws from a generator of its own is then the same in all
# of them, and a stream that does not ask which worker it is in gives each sample as often as there are workers.

_DRAWING = frozenset({"rand", "randn", "randint", "random", "normal", "uniform", "choice", "shuffle", "randperm"})


def loaded(watch: CallNotes, call: Call) -> None:
    """Look at a loader as it begins an epoch: it draws a seed for its workers then."""
    if call.frame.f_code.co_name != "__init__" or not call.filename.endswith(_NO_EFFECT):
        return
    loader = call.frame.f_locals.get("loader")
    if loader is None or loader.num_workers < 2 or loader.worker_init_fn is not None:
        return
    dataset: Any = loader.dataset
    for _ in range(4):  # data sets in data sets
        inner = getattr(dataset, "dataset", None)
        dataset = inner if isinstance(inner, torch.utils.data.Dataset) else dataset
    kind = type(dataset)
    methods = (value for each in kind.__mro__ for name, value in vars(each).items() if name != "__init__")
    names = {name for method in methods for name in getattr(getattr(method, "__code__", None), "co_names", ())}
    if "get_worker_info" in names:
        return
    numpy = sys.modules.get("numpy")
    kinds = (random.Random, torch.Generator, *((numpy.random.Generator, numpy.random.RandomState) if numpy else ()))
    own = next((name for name, value in vars(dataset).items() if isinstance(value, kinds) and name in names), "")
    gives = getattr(getattr(kind, "__iter__", None), "__code__", None)
    is_stream = isinstance(dataset, torch.utils.data.IterableDataset) and not names & _DRAWING
    if own or (is_stream and (gives is None or is_own_code(gives.co_filename))):
        watch.note("same draws", call, op="DataLoader", detail=f"{loader.num_workers} {kind.__name__} {own}".rstrip())


# Dropout that ``eval()`` does not reach: a module that its model does not know, or `F.dropout` with its own default.

_MODULE: type = nn.modules.dropout._DropoutNd
_FORWARD = nn.Dropout.forward.__code__


def dropped(watch: CallNotes, call: Call) -> None:
    """Note a dropout that drops whatever mode the module around it is in."""
    drops, above = _draws(call), call.frame.f_back
    watch.drops = watch.drops or drops
    if not drops or (above is not None and above.f_code is _FORWARD and watch.dropouts.of(above.f_locals["self"])):
        return
    running = [each.f_locals["self"] for each in outwards(call.frame) if each.f_code is MODULE_CALL]
    if not running:
        return
    around, how = running[0], "called"
    if isinstance(around, _MODULE):
        dropouts = [module for module in running[-1].modules() if isinstance(module, _MODULE)]
        if any(module is around for module in dropouts):
            for module in dropouts:
                watch.dropouts.put(module, "known")
            return
        if len(running) < 2:
            return
        around, how = running[1], "made"
    elif not _leaves_mode_out(call.frame):
        return
    kind: ObservationKind = "dropout" if around.training else "dropout in eval"
    watch.note(kind, call, detail=f"{how} {type(around).__name__}")


def _leaves_mode_out(frame: FrameType | None) -> bool:
    """Return whether a line of the user's own, in a module's forward, calls dropout and says nothing of the mode."""
    ends = (each for each in outwards(frame) if each.f_code is MODULE_CALL or is_own_code(each.f_code.co_filename))
    end = next(ends, None)
    part = running_part(end) if end is not None and end.f_code is not MODULE_CALL else None
    if not isinstance(part, ast.Call) or any(isinstance(given, ast.Starred) for given in part.args):
        return False
    keywords = {keyword.arg for keyword in part.keywords}
    name = part.func.attr if isinstance(part.func, ast.Attribute) else getattr(part.func, "id", "")
    return name in DROPPING and len(part.args) <= 2 and keywords <= {"p", "inplace", "input"}


# An update by hand of which nothing comes: ``for p in net.parameters(): p = p - lr * p.grad`` makes a new tensor each
# time, and the parameter stays as it is. That is known when the line runs again, for a later gradient.

_ROUNDS = (ast.For, ast.While, ast.FunctionDef, ast.AsyncFunctionDef)
MOST_UPDATES = 64  # that are remembered


class Update(NamedTuple):
    """A parameter and what was made of it, as they were."""

    parameter: weakref.ref[torch.Tensor]
    version: int  # of the parameter
    storage: StorageWeakRef  # of the parameter: while it lives, no other gets its `_cdata`, wherever its memory lies
    gradient: weakref.ref[torch.Tensor]
    gradient_version: int
    result: weakref.ref[torch.Tensor]

    def is_lost(self) -> bool:
        """Return whether the result is gone, and the parameter unchanged although it has got another gradient."""
        parameter = self.parameter()
        if parameter is None or (gradient := parameter.grad) is None or self.result() is not None:
            return False
        same = (parameter._version, parameter.untyped_storage()._cdata) == (self.version, self.storage.cdata)
        return same and (self.gradient() is not gradient or gradient._version != self.gradient_version)


def updated(watch: CallNotes, call: Call) -> None:
    """Remember what is made of a parameter that has a gradient; note what was lost of what the line made before."""
    x, result = call.args[0] if call.args else None, call.result
    if not (type(x) is nn.Parameter or type(x) is torch.Tensor) or type(result) is not torch.Tensor:
        return
    if not is_leaf(x) or x.layout is not torch.strided or x.grad is None:
        return  # of no leaf, the gradient warns; of other layouts, the memory begins nowhere
    if not is_own_code(call.filename):
        return  # a library's updates are right by themselves
    site = watch.site(call)
    watch.updates = known = {key: one for key, one in watch.updates.items() if one.parameter() is not None}
    lost = [key for key, one in known.items() if key[0] == site and one.is_lost()]
    update = _update_at(tree_of(call.frame), running_line(call.frame)) if lost else ""
    if lost and not update:
        return  # it was meant for what reads it: a step that is tried, an attack on what was trained
    for key in lost:
        del known[key]
        mode = "with torch.no_grad(): " if torch.is_grad_enabled() else ""
        watch.note("update lost", call, operands=(x,), of=2, detail=mode + update)
    if (key := (site, id(x))) in known or len(known) < MOST_UPDATES:
        storage: Any = StorageWeakRef(x.untyped_storage())  # type: ignore[no-untyped-call]
        gradient = TensorRef(x.grad)
        known[key] = Update(TensorRef(x), x._version, storage, gradient, x.grad._version, TensorRef(result))


def lost_in_steps(watch: CallNotes, step: Any, sites: SourceLines, times: int) -> None:
    """Note the update in an optimizer's own ``step`` that gives a name to a new tensor: the steps have changed nothing.

    Calls within a step are not looked at: its code tells.
    """
    code = (step := inspect.unwrap(step)).__code__
    if not is_own_code(code.co_filename):
        return
    tree = syntax_of("".join(lines_of(code.co_filename, step.__globals__)))
    definition = definition_of(code, tree)
    lost: list[ast.Assign] = []
    for node in ast.walk(definition) if definition is not None else ():
        match node:  # ``p = p - x``, of a name alone
            case ast.Assign(targets=[ast.Name(id=name), *_], value=ast.BinOp(left=left, op=ast.Sub() | ast.Add())):
                if ast.unparse(left).removesuffix(".data") == name and _update_at(tree, node.lineno):
                    lost.append(node)
    if definition is not None and lost:
        site, text = sites.number(code.co_filename, lost[-1].lineno), ast.unparse(definition)
        mode = "" if "no_grad" in text or ".data" in text else "with torch.no_grad(): "
        seen = Observation(kind="update lost", op="step", location=site, detail=mode + ast.unparse(lost[-1]))
        watch.keep(Found(seen), times=times)


def _update_at(tree: ast.AST, line: int) -> str:
    """Return the assignment that a line belongs to, as one line; empty where what it binds is read below it."""
    around = statements_around(tree, line)
    scope = next((node for node in reversed(around) if isinstance(node, _ROUNDS)), None)
    bound = next((node for node in reversed(around) if isinstance(node, ast.Assign)), None)
    return "" if bound is None or _is_read_below(bound, scope) else ast.unparse(bound)


def _is_read_below(bound: ast.Assign, scope: ast.AST | None) -> bool:
    """Return whether what an assignment binds is read further down; ``p.grad = None`` is no reading."""
    inside = list(ast.walk(scope)) if scope is not None else []
    set_on = {id(node.value) for node in inside if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    stored = {node.id for target in bound.targets for node in ast.walk(target) if isinstance(node, ast.Name)}
    reads = (node for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
    end = bound.end_lineno or bound.lineno, bound.end_col_offset or 0
    after = (node for node in reads if node.id in stored and (node.lineno, node.col_offset) >= end)
    return any(id(node) not in set_on for node in after)


# Other changes of which nothing comes, known from the code alone: ``p = p.clamp(-c, c)`` of what a loop or a function
# was given under this name and does not read again, and ``p.data.clamp(-c, c)``, whose result goes nowhere.

CHANGES = ("clamp", "clip", "clamp_min", "clamp_max", "add", "sub", "mul", "div", "nan_to_num", "renorm")
_LINE = re.compile(rf"(?:(?:for|with)\b.*:\s*)?(?:(\w+) = .*\b\1\b|[\w.\[\]]+\.(?:{'|'.join(CHANGES)})\()")
_HANDS_ON = (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await, ast.Lambda)


def thrown_away(watch: CallNotes, call: Call) -> None:
    """Note a change of a parameter, of its data or its gradient that makes a new tensor, which nothing can use."""
    x, frame = call.args[0] if call.args else None, call.frame
    if not isinstance(x, torch.Tensor) or has_history(x) or "out" in call.kwargs:
        return
    number = running_line(frame)
    line = known_line(frame.f_code.co_filename, number, frame.f_globals)
    if not (_is_weight(x) or ".data" in line or ".grad" in line) or not _LINE.match(line):
        return  # nearly all: the code around these is not read
    tree = tree_of(frame)
    around = statements_around(tree, number)
    match around[-1] if around else None:
        case ast.Assign(targets=[ast.Name(id=name)]) as statement:
            scope = next((node for node in reversed(around) if isinstance(node, _ROUNDS)), None)
            lost = scope is not None and _is_given(name, scope) and _is_only_bound(statement, name, scope)
            lost, text = lost and _is_weight(names_of(frame).get(name, frame.f_globals.get(name))), name
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner, attr=call.name)) as made) as statement:
            running = running_part(frame)
            is_call = running is not None and ast.unparse(running) == ast.unparse(made)
            text = ast.unparse(made.args[0] if ast.unparse(owner) == "torch" and made.args else owner)
            lost = is_call and (_is_weight(x) or text.endswith((".data", ".grad")))
            lost = lost and statement not in tree.body[-1:]  # a cell shows that one
        case _:
            return
    if lost:
        is_free = text.removesuffix(".data").endswith(".grad") or not torch.is_grad_enabled()
        mode = "" if is_free else "with torch.no_grad(): "
        watch.note("change lost", call, operands=(x,), of=2, detail=mode + ast.unparse(statement))


def _is_weight(x: Any) -> bool:
    return is_leaf(x) or type(x) is nn.Parameter


def _is_given(name: str, scope: ast.AST) -> bool:
    """Return whether a loop binds a name anew in each round, or a function in each call."""
    if isinstance(scope, ast.For):
        return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(scope.target))
    every = ast.walk(scope.args) if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef) else ()
    return any(isinstance(node, ast.arg) and node.arg == name for node in every)


def _is_only_bound(statement: ast.Assign, name: str, scope: ast.AST) -> bool:
    """Return whether a name is made of its old value, by calls of torch alone, and no other code reads it then."""
    for node in ast.walk(statement.value):
        called = node.func if isinstance(node, ast.Call) else None
        handed = called is not None and not (isinstance(called, ast.Attribute) and hasattr(torch.Tensor, called.attr))
        if handed or isinstance(node, _HANDS_ON) or (isinstance(called, ast.Attribute) and called.attr.endswith("_")):
            return False
    inner = (node for node in ast.walk(scope) if isinstance(node, ast.FunctionDef | ast.Lambda) and node is not scope)
    late = {each.id for node in inner for each in ast.walk(node) if isinstance(each, ast.Name)}
    reads = {node.id for node in ast.walk(statement.value) if isinstance(node, ast.Name)}
    return name in reads - late and not _is_read_below(statement, scope)
