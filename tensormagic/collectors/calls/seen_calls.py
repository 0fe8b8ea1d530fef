"""What single calls show: waits for a device, sequences, copies, and broadcasts."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, islice, permutations
from math import prod
from operator import mul
from types import FrameType
from typing import Any, NamedTuple, TypeGuard

import torch

from tensormagic.collectors.calls.call_notes import LOSSES, Call, CallNotes, operand_parts, running_part
from tensormagic.collectors.geometry.parts import PLAIN
from tensormagic.collectors.graphs.live_nodes import first_input, flat, reaches
from tensormagic.collectors.objects.children import is_leaf
from tensormagic.collectors.objects.identity import holds
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.where.source import (
    is_own_code,
    names_of,
    outwards,
    running_line,
    statements_around,
    tree_of,
)

# Calls for which the host has to wait until a device has done all that it was given. On the CPU nothing is noted.

WAITS = (
    "item", "tolist", "cpu", "to", "__float__", "__int__", "__bool__", "__index__", "is_nonzero", "nonzero", "argwhere",
    "masked_select", "unique", "equal", "allclose", "__repr__", "__format__",
)  # fmt: skip


def waited(watch: CallNotes, call: Call) -> None:
    """Note a call that reads what is on a device."""
    x = call.args[0] if call.args else None
    if not isinstance(x, torch.Tensor) or x.device.type in {"cpu", "meta"}:
        return
    came = isinstance(call.result, torch.Tensor) and call.result.device.type == "cpu"
    if call.name in {"to", "cpu"} and (not came or call.kwargs.get("non_blocking", False)):
        return  # nothing was brought here, or nobody waited for it
    watch.note("synchronised", call, operands=(x,), detail=str(x.device))


# Recurrent layers that take time first, and attention that was built to take (places, batch, features): their results
# are read as if the batch came first.

_ATTENTION = torch.nn.functional.multi_head_attention_forward.__code__
_MOST_FRAMES, _MOST_ATTENDED = 4, 32


def recurred(watch: CallNotes, call: Call) -> None:
    """Remember the output of a recurrent layer that was built to take (time, batch, features)."""
    result: Any = call.result
    output = result[0] if isinstance(result, tuple) and result else None
    if isinstance(output, torch.Tensor) and output.dim() == 3 and call.args and call.args[-1] is False:
        watch.sequences.put(output, f"nn.{call.name.partition('_')[0].upper()}")


def attended(watch: CallNotes, call: Call) -> None:
    """Remember an attention of torch's whose first dimension is that of the places: how many there are, and samples."""
    frame = next((each for each in islice(outwards(call.frame), _MOST_FRAMES) if each.f_code is _ATTENTION), None)
    if frame is None or frame.f_back is None or getattr(frame.f_back.f_locals.get("self"), "batch_first", True):
        return  # before the locals of the attention are read, of which there are many
    sizes = places, samples = frame.f_locals.get("tgt_len"), frame.f_locals.get("bsz")
    node = getattr(call.result, "grad_fn", None)
    if node is None or not (places and samples) or places == samples or 1 in sizes:
        return
    if len(watch.attended) >= _MOST_ATTENDED:
        del watch.attended[next(iter(watch.attended))]
    watch.attended[node._sequence_nr()] = places, samples


def one_of_the_batch(watch: CallNotes, call: Call) -> None:
    """Note ``output[:, -1]`` of such a layer, ``x[:, 0]`` or ``x[:, -1]`` after such an attention: one sample."""
    if len(call.args) < 2 or not (watch.sequences or watch.attended):
        return
    x, index = call.args[:2]
    if not isinstance(x, torch.Tensor) or not isinstance(index, tuple) or len(index) not in {2, 3}:
        return
    whole = slice(None)
    if not isinstance(index[0], slice) or index[0] != whole or type(index[1]) is not int or x.grad_fn is None:
        return
    layer, rest = watch.sequences.of(x), not isinstance(index[-1], slice) or index[-1] == whole
    if layer and x.shape[1] > 1 and index[1] in {-1, x.shape[1] - 1} and rest:
        watch.note("last sample", call, operands=(x,), detail=layer)
    if len(index) == 2 and index[1] in {0, -1} and x.dim() == 3:
        numbers = [number for number, sizes in watch.attended.items() if sizes == tuple(x.shape[:2])]
        if numbers and reaches(x.grad_fn, numbers[-1]):
            watch.note("last sample", call, operands=(x,), detail=f"attention {index[1]}")


SMALLEST = 1 << 16  # bytes; what is less is not even counted


def copied(watch: CallNotes, call: Call) -> None:
    """Note a copy, identified by the storage behind the result."""
    result, source = call.result, call.args[0] if call.args else call.kwargs.get("input")
    if result is source or not isinstance(result, torch.Tensor) or not isinstance(source, torch.Tensor):
        return
    if result.layout is not torch.strided or result.nbytes < SMALLEST or result.device.type == "meta":
        return
    if result.untyped_storage()._cdata != source.untyped_storage()._cdata and call.frame.f_code is not _ATTENTION:
        watch.note("copy", call, operands=(source,), result=result, nbytes=result.nbytes)  # attention's are on purpose


# ``view`` and ``reshape`` keep the order of the elements. Where the new sizes are the old ones in another order, the
# elements end up under indices that they do not belong to: (B, C, H, W) as (B, H * W, C) mixes the channels.

_MOST_DIMS = 5
_MOST_MADE = 8  # ops that are gone back


def regrouped(watch: CallNotes, call: Call) -> None:
    """Note a new shape whose sizes are the old ones in another order, or heads that were split off without a swap."""
    source, result = call.args[0] if call.args else None, call.result
    if not isinstance(source, torch.Tensor) or not isinstance(result, torch.Tensor) or result.dtype != source.dtype:
        return
    for order in _orders(tuple(map(int, source.shape)), tuple(map(int, result.shape))):
        if order == "swapped":
            part = running_part(call.frame) if is_own_code(call.frame.f_code.co_filename) else None
            if part is None or any(isinstance(node, ast.Mult | ast.FloorDiv) for node in ast.walk(part)):
                continue  # ``view(t, b * heads, -1)`` splits on purpose
            if _is_shifted(part, call.frame):
                continue
        if order == "pieces" and not _has_channels_first(source):
            continue
        detail = "permuted" if order == "pieces" else order
        watch.note("regrouped", call, operands=(source,), result=result, detail=detail)
        return


def _scope(around: Sequence[ast.AST], tree: ast.AST) -> ast.AST:
    """Return the innermost function around a statement, or the whole of the code."""
    return next((node for node in reversed(around) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)), tree)


def _is_shifted(part: ast.AST, frame: FrameType) -> bool:
    """Return whether the first row of what is made is cut off: ``x.view(k, q)[1:].view(q, k - 1)`` shifts each row."""
    tree, text = tree_of(frame), ast.unparse(part)
    around = statements_around(tree, running_line(frame))
    scope = _scope(around, tree)
    made = (node for node in ast.walk(scope) if isinstance(node, ast.Assign) and ast.unparse(node.value) == text)
    called = {text, *(ast.unparse(target) for node in made for target in node.targets)}
    for node in ast.walk(scope):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) in called:
            index = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            if any(isinstance(each, ast.Slice) and each.lower and ast.unparse(each.lower) == "1" for each in index):
                return True
    return False


_ELEMENTWISE = frozenset({"Relu", "LeakyRelu", "Sigmoid", "Silu", "Gelu", "Tanh", "Elu", "Add", "Mul", "Clone"})
_CHANNELS_FIRST = (
    "Convolution", "NativeBatchNorm", "CudnnBatchNorm", "NativeGroupNorm", "Upsample", "MaxPool", "AvgPool",
)  # fmt: skip


def _has_channels_first(x: torch.Tensor) -> bool:
    """Return whether what made a tensor, before what treats all elements alike, gives (batch, channels, places)."""
    node, looked = x.grad_fn, 0
    while node is not None and node.name().partition("Backward")[0] in _ELEMENTWISE and looked < _MOST_MADE:
        node, looked = first_input(node), looked + 1
    return node is not None and node.name().startswith(_CHANNELS_FIRST)


@lru_cache(maxsize=256)
def _orders(before: tuple[int, ...], after: tuple[int, ...]) -> tuple[str, ...]:
    """Return how dimensions would have to be swapped, for each part of both shapes that tells.

    Parts are those that hold the same elements, and are neither one dimension split nor merged: of (8, 16, 4, 4) as
    (8, 16, 16) the first dimension stays, and (16, 4, 4) becomes (16, 16).
    """
    old, new = (tuple(size for size in sizes if size != 1) for sizes in (before, after))
    if old == new or not 2 <= len(old) <= _MOST_DIMS or not 2 <= len(new) <= _MOST_DIMS or 0 in old:
        return ()
    found, first, second = [], 0, 0
    while first < len(old) and second < len(new):
        begin, start = first, second
        left, right = old[first], new[second]
        first, second = first + 1, second + 1
        while left != right:
            if left < right:
                left, first = left * old[first], first + 1
            else:
                right, second = right * new[second], second + 1
        if first - begin > 1 and second - start > 1:
            found.append(_order(old[begin:first], new[start:second]))
    return tuple(filter(None, found))


def _order(before: tuple[int, ...], after: tuple[int, ...]) -> str:
    """Return how the dimensions would have to be swapped for the new sizes; empty where the sizes do not tell.

    (24, 8, 8) as (8, 192) may be eight steps of three samples each as well: nothing has to be swapped for that. Of
    (4, 4, 8) as (32, 4), each row may be a piece of one that is there: four numbers for each of two boxes.
    """
    if len(before) > len(after) == 2 and before[0] % after[0] == 0:
        return ""
    ends = set(accumulate(after, mul))
    # Of some other order, neighbouring sizes multiply to the new ones.
    if any(ends <= set(accumulate(swapped, mul)) for swapped in permutations(before) if swapped != before):
        if len(after) < len(before) and before[-1] % after[-1] == 0:
            return "pieces"
        return "swapped" if len(before) == len(after) == 2 else "permuted"
    if len(before) == 2 and len(after) == 3 and after[1] == before[0] != after[0] and after[0] * after[2] == before[1]:
        return "split"
    return ""


# Tensors that were stored one by one and are all the same memory: every one is the last.

_FEWEST, _MOST_VALUES = 3, 256


def same_memory(watch: CallNotes, call: Call) -> None:
    """Note tensors that are joined and are different objects over one memory, which was written in between."""
    given = call.args[0] if call.args else None
    if not isinstance(given, list | tuple) or len(given) < _FEWEST or not isinstance(call.result, torch.Tensor):
        return
    first, some = given[0], given[:_MOST_VALUES]
    same = (
        type(x) is torch.Tensor and x.layout is torch.strided and x.is_cpu and x.data_ptr() == first.data_ptr() != 0
        for x in some
    )
    if not all(same) or len({x.shape for x in some}) > 1 or len({id(x) for x in some}) < len(some):
        return
    how = "torch" if first.untyped_storage().resizable() else "numpy"
    if how == "numpy" or first._version >= len(given) - 1:
        detail = f"{len(given)} {how}"
        watch.note("same memory", call, operands=(first,), of=2, result=call.result, detail=detail)


# Operands that both grew where they met: a column of N against a row of N gives N x N values, from which one is made.
#
# Whether that was meant shows in what becomes of it. Pairwise distances are looked at by row; a loss or an accuracy
# is one number. So the result is followed, weakly, through calls that work element by element, and noted only where
# it is reduced to a single number.

BROADCASTS = ("add", "sub", "mul", "div", "eq", "__eq__", "ne", "rsub", "__radd__", "__rsub__", "__rmul__",
              "__rtruediv__")  # fmt: skip
JOINED = ("broadcast_tensors",)

_PASSING = frozenset({
    *BROADCASTS, "pow", "__pow__", "square", "abs", "__abs__", "neg", "__neg__", "float", "double", "long", "int", "to",
    "type", "exp", "log", "log1p", "sqrt", "clamp", "where", *LOSSES,
})  # fmt: skip
_REDUCING = frozenset({"mean", "sum", "nanmean", "nansum", "norm", *LOSSES})
_TURNING = frozenset({"unsqueeze", "view", "reshape", "expand", "T", "mT", "t", "transpose"})


def follow_wide(watch: CallNotes, call: Call) -> None:
    """Pass the mark of a result that is larger than both operands on, or note what came of it."""
    marks, result, name = watch.wide, call.result, str(getattr(call.function, "__name__", ""))
    mark = next((marks[id(value)] for value in flat(call.args) if holds(marks, value)), None)
    if mark is None:
        return
    if name in JOINED:
        for x in result:
            marks.put(x, mark.note)
    elif not isinstance(result, torch.Tensor):
        return
    elif name in _REDUCING and result.dim() == 0:
        watch.keep(mark.note)
        for key in [key for key, other in marks.items() if other.note is mark.note]:
            del marks[key]
    elif name in _PASSING and result.dim() and result is not mark():
        marks.put(result, mark.note)


def both_grew(watch: CallNotes, call: Call) -> None:
    """Follow what came of a column and a row of the same length, where nothing says that a table was meant."""
    result = call.result
    if not isinstance(result, torch.Tensor) or len(call.args) < 2:
        return
    left, right = call.args[:2]
    if not (isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor)) or result.dim() < 2:
        return
    column, row = (left, right) if left.dim() > right.dim() else (right, left)
    if column.shape != (*row.shape, 1) or result.numel() <= max(column.numel(), row.numel()):
        return
    if not _is_meant(call, column, row):
        watch.wide.put(result, watch.found("both broadcast", call, operands=(left, right), result=result))


def _is_meant(call: Call, column: torch.Tensor, row: torch.Tensor) -> bool:
    """Return whether pairs are wanted: of one tensor, or of a column that was made just now; by the line, or before.

    A parameter against data is a feature map; two predictions against each other are a ranking. Of a line that is not
    known nothing is said.
    """
    if any(map(is_leaf, (column, row))) or (column.requires_grad and row.requires_grad):
        return True
    made = column.grad_fn.name() if column.grad_fn is not None else ""
    if made == "UnsqueezeBackward0" or column.untyped_storage()._cdata == row.untyped_storage()._cdata:
        return True
    if (parts := operand_parts(call.frame)) is None:
        return True
    at = 0 if column is call.args[0] else 1
    for node in (node for part in (parts[at : at + 1] if len(parts) == 2 else parts) for node in ast.walk(part)):
        match node:
            case ast.Constant(value=None) | ast.keyword(arg="keepdim"):
                return True
            case ast.Attribute(attr=name) if name in _TURNING:
                return True
    return False


def grew_in_a_loss(watch: CallNotes, call: Call) -> None:
    """Follow what a loss makes of operands that both grow, of which it warns; note a target that alone is stretched."""
    given = call.args[0] if call.args and isinstance(call.args[0], tuple | list) else call.args
    if len(given) != 2 or given[0].shape == given[1].shape:
        return
    above = call.frame.f_back
    if above is None or not above.f_code.co_filename.replace("\\", "/").endswith("torch/nn/functional.py"):
        return
    left, right = given
    op = above.f_code.co_name
    if _is_stretched(left, right, call.result[1]):
        watch.note("stretched", call, operands=given, result=call.result[1], op=op)
    for x in call.result:
        if x.numel() > max(left.numel(), right.numel()):
            watch.wide.put(x, watch.found("both broadcast", call, operands=(left, right), result=x, op=op))


def _is_stretched(prediction: torch.Tensor, target: torch.Tensor, grown: torch.Tensor) -> bool:
    """Return whether a target of several values, no number for all, has become as large as the prediction is."""
    return 1 < target.numel() < prediction.numel() == grown.numel() and prediction.requires_grad


def grew_in_a_whole_loss(watch: CallNotes, call: Call) -> None:
    """Note a loss that was seen as a whole, and made one number of operands of which one grew, or both did."""
    if len(call.args) < 2 or not isinstance(call.result, torch.Tensor) or call.result.dim():
        return
    left, right = call.args[:2]
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor) and left.shape != right.shape:
        shape = torch.broadcast_shapes(left.shape, right.shape)  # type: ignore[no-untyped-call]
        grown = torch.empty(shape, device="meta")
        if grown.numel() > max(left.numel(), right.numel()):
            watch.note("both broadcast", call, operands=(left, right), result=grown)
        elif _is_stretched(left, right, grown):
            watch.note("stretched", call, operands=(left, right), result=grown)


# ``out[dst] += msg`` reads the places, adds, and writes them back. Where the index names a place twice, both sums begin
# with what was there before, and one of them stays. That it is wrong is sure where they differ, and what was added is
# not made of the place itself: a step towards a target is one more than enough. Of equal sums nothing is lost where
# what is added belongs to the place, as a weight's decay does; who adds one may count.

_MOST_PLACES, _MOST_PAIRS = 1 << 20, 1 << 12
_DRAWN = re.compile(r"\b(?:rand|randn|randint|normal|bernoulli)(?:_like)?\(")
_ONE = re.compile(r"1(?:\.0)?|torch\.ones(?:_like)?\(.*\)")


class _Sum(NamedTuple):
    """A statement that adds to indexed places: ``x[i] += y``, also written ``x[i] = x[i] + y``."""

    statement: ast.AugAssign
    sure: bool  # whether what it adds is neither made of the places themselves nor drawn


def summed_by_index(watch: CallNotes, call: Call) -> None:
    """Note a sum written to places some of which the index names several times; on the CPU, where nobody waits for it.

    The detail is how many sums are lost, of how many, whether that is ``"sure"``, and the statement.
    """
    x, index, written = call.args
    if not (_is_on_cpu(x) and _is_on_cpu(written)):
        return
    with quiet():
        places = _places(x, index)
        if places is None or not places.numel() or written.numel() % places.numel():
            return
        of, rows = places.numel(), written.detach().reshape(places.numel(), -1)
        lost = of - int((places.flatten().bincount() > 0).sum())
        found = _sum_at(call.frame) if lost else None
        if found is None:
            return
        numbers, order = places.flatten()[:_MOST_PLACES].sort()
        again = (numbers[1:] == numbers[:-1]).nonzero().flatten()[:_MOST_PAIRS]
        differ = not torch.isclose(rows[order[again]], rows[order[again + 1]], equal_nan=True).all()
    added = found.statement.value
    if differ or _ONE.fullmatch(ast.unparse(added)):
        value = added.id if isinstance(added, ast.Name) else ""
        value = names_of(call.frame).get(value, call.frame.f_globals.get(value))
        operands = [x, *[each for each in flat((index,)) if isinstance(each, torch.Tensor)][:1]]
        operands += [value] if isinstance(value, torch.Tensor) and len(operands) > 1 else []
        how = ("sure" if found.sure else "perhaps") if differ else "counts"
        watch.note("index repeats", call, operands=operands, op="add",
                   detail=f"{lost} {of} {how} {ast.unparse(found.statement)}")  # fmt: skip


def _is_on_cpu(x: Any) -> TypeGuard[torch.Tensor]:
    return type(x) in PLAIN and x.is_cpu and x.layout is torch.strided and not x.is_nested


def _places(x: torch.Tensor, index: Any) -> torch.Tensor | None:
    """Return the number of the place that each entry of an index names; None where it names none twice anyway."""
    parts = index if isinstance(index, tuple) else (index,)
    if not all(isinstance(part, torch.Tensor | list | int | slice) for part in parts):
        return None
    tensors = [part for part in parts if isinstance(part, torch.Tensor)]
    if any(each.dtype not in {torch.int64, torch.int32} or not _is_on_cpu(each) for each in tensors):
        return None  # a mask names each place once
    sizes = x.shape[: len(parts)]
    if not (tensors or any(isinstance(part, list) for part in parts)) or prod(sizes) > _MOST_PLACES:
        return None
    return torch.arange(prod(sizes), device="cpu").view(sizes)[index]


def _sum_at(frame: FrameType) -> _Sum | None:
    """Return the sum that the running line writes; None where it is none, or there are several statements."""
    tree = tree_of(frame)
    around = statements_around(tree, running_line(frame))
    match [node for node in around if isinstance(node, ast.AugAssign | ast.Assign)]:
        case [ast.AugAssign(target=ast.Subscript(), op=ast.Add() | ast.Sub()) as found]:
            pass
        case [
            ast.Assign(targets=[ast.Subscript() as place], value=ast.BinOp(left, ast.Add() | ast.Sub() as op, right))
        ]:
            if ast.unparse(left) != ast.unparse(place):
                if ast.unparse(right) != ast.unparse(place) or isinstance(op, ast.Sub):
                    return None
                right = left
            found = ast.AugAssign(place, op, right)
        case _:
            return None
    scope = _scope(around, tree)
    drawn = _DRAWN.search(ast.unparse(found.value))
    return _Sum(found, not (drawn or _is_made_of(found, scope)))


def _is_made_of(found: ast.AugAssign, scope: ast.AST) -> bool:
    """Return whether what is added reads the very places, or is made of what a line of the function has read there."""
    assert isinstance(found.target, ast.Subscript)
    both = [
        re.compile(rf"(?<![\w.]){re.escape(ast.unparse(one))}(?!\w)")
        for one in (found.target.value, found.target.slice)
    ]
    bound = [node for node in ast.walk(scope) if isinstance(node, ast.Assign)]
    wanted, known = [found.value], set[str]()
    for value in wanted:
        for node in ast.walk(value):
            if isinstance(node, ast.Subscript | ast.Call) and all(one.search(ast.unparse(node)) for one in both):
                return True
            if isinstance(node, ast.Name) and node.id not in known:
                known.add(node.id)
                wanted += [each.value for each in bound for target in each.targets if node.id in _stored(target)]
    return False


def _stored(target: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
