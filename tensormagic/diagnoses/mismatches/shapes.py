"""Shapes that two or more tensors must share: broadcasting, joining, and the new shapes of views.

Broadcasting compares dimensions from the right: they must be equal, or one of them 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate, combinations
from math import prod
from operator import mul

from tensormagic.diagnoses.mismatches.call import Call, Given, Shape, as_args, clashing, mismatch, numbers, unlike
from tensormagic.diagnoses.mismatches.table import Messages
from tensormagic.reports import Clashing, Mismatch
from tensormagic.reports.storage import why_not
from tensormagic.words import listed

says = Messages(globals())

# The last dimensions of these are no batch: the product takes them.
_MATRIX_DIMENSIONS = {"matmul": 2, "solve": 2, "baddbmm": 2, "lstsq": 2}
_LOSSES = frozenset({"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"})
# Arguments that take no part in the broadcasting.
_APART = {"cosine_embedding_loss": frozenset({"weight"}), "setitem": frozenset({"index"})}


says.table(r"""
# -- tensors that are padded to one length

The size of tensor a \(\d+\) must match the size of tensor b
    if: call.function == "pad_sequence"; with top: members[0]
    with wrong: [(at, one) for one in members[1:] for at in unlike(top.shape, one.shape) if at]; if: wrong
    shape: All sizes but that of dimension 0, which is padded, must be equal: {top} and {wrong[0][1]} differ in
        dimension {wrong[0][0]}.
    parts: top[wrong[0][0]] must be {wrong[0][1][wrong[0][0]]}; parts: one[at] must be {top[at]} for at, one in wrong

# -- tensors that are joined: all sizes must agree but that along which they are

Sizes of tensors must match except in dimension {along}
    with top: members[0]; if: not [one for one in members if one.ndim != top.ndim]
    with wrong: [(at, one) for one in members[1:] for at in unlike(top.shape, one.shape) if at != along]
    with differing: dict([(at, one[at]) for at, one in wrong[::-1]]); with places: sorted(differing)
    with others: listed(map(str, dict.fromkeys([one for _, one in wrong])))
    with where: listed([f"dimension {at}" for at in places])
    shape: All sizes but that of dimension {along}, along which they are joined, must be equal: {top} and {others}
        differ in {where}.
    parts: top[at] must be {differing[at]} for at in places; parts: one[at] must be {top[at]} for at, one in wrong
    with shapes: [(dim, {one.shape[:dim] + one.shape[dim + 1 :] for one in members}) for dim in range(top.ndim)]
    with dims: [dim for dim, rest in shapes if dim != along and len(rest) == 1]
    try: torch.cat([{first_four(members)}], dim={dim}) for dim in dims
    with single: [one for one in members if len(members) == 2 and not dims and {one[at] for at in places} == {1}]
    with pairs: [(one, [each for each in members if each is not one][0]) for one in single]
    try: {way} for way in [expanded(call, one, other, places) for one, other in pairs]
    with maps: len(members) == 2 and top.ndim == 4 and not dims and not differing.keys() & {0, 1}
    with assigned: f"{top.code} = " if top.can_be_assigned else ""
    try: {assigned}F.interpolate({top.code}, size={members[1].code}.shape[2:]) when maps

Tensors must have same number of dimensions: got
    if: members; with counts: [one.ndim for one in members]
    with usual: max(counts, key=lambda ndim: (counts.count(ndim), ndim))
    with right: [one for one in members if one.ndim == usual][0]
    with wrong: [one for one in members if one.ndim != usual]; if: wrong
    shape: All must have the same number of dimensions: {right} has {usual}, and {wrong[0]} has {wrong[0].ndim}.
    parts: right.ndim must be {wrong[0].ndim}; parts: one.ndim must be {usual} for one in wrong
    with low: wrong[0]; with along: (call.number("dim|axis", 1) or 0) % max(counts[0], 1)
    with shapes: [(at, (*low.shape[:at], 1, *low.shape[at:])) for at in range(right.ndim)]
    with fit: [at for at, shape in shapes if not {*unlike(shape, right.shape)} - {along}]
    try: {low.code}.unsqueeze({at}) for at in fit when call.function == "cat" and right.ndim == low.ndim + 1

zero-dimensional tensor \(at position \d+\) cannot be concatenated
    with wrong: [one for one in members if not one.ndim]
    shape: There is no dimension along which to join {number}; numbers are stacked.
    parts: one.ndim must be 1 for one in wrong
    with listing: ", ".join([one.code for one in members[:4]]); try: torch.stack([{listing}])

_chunk_cat expects (?:same sizes|dim < ndim|non-negative dim when|non-empty tensor)
    with wrong: every 0 in one.shape
    shape: There must be something to split: {wrong[0]} is empty.
    parts: one[one.shape.index(0)] must be at least 1 for one in wrong

_chunk_cat expects same sizes
    with cut: call.value("dim", 1); if: cut.isdigit(); with one: members[0]; with other: members[1]
    with wrong: [at for at in range(int(cut)) if one[at] != other[at]]
    shape: All sizes before dimension {cut} must be equal: {one} and {other}.
    parts: one[at] must equal other[at] for at in wrong

_chunk_cat expects (?P<expects>same sizes|dim < ndim|non-negative dim when|non-empty tensor)
    if: len(members) > 1 and not (expects == "same sizes" and call.value("dim", 1).isdigit())
    shape: The dimensions before the one that is cut must be there in all, and equal: {listed(map(str, members))}.
    parts: one for one in members

# -- views: how many elements there are, and which dimensions lie apart in memory

view size is not compatible with input tensor's size and stride
    with asked: asked_for(call); if: asked and first.operand.stride; with wanted: resolved(first.shape, asked)
    with failure: why_not(first.shape, first.operand.stride, wanted); with barrier: failure.barrier
    if: failure.dim is not None
    view: The view of {first} as {sizes(wanted)} would merge dimensions {barrier.outer} and {barrier.inner}, which are
        not adjacent in memory: the stride of dimension {barrier.outer} is {barrier.stride}, not
        {barrier.inner_size} × {barrier.inner_stride} = {barrier.needed}.
    parts: first[barrier.outer] is stride {barrier.stride} must be a stride of {barrier.needed}
    parts: first[barrier.inner] is stride {barrier.inner_stride}
    with text: as_args(wanted) if call.function.endswith("_as") else call.arguments or as_args(asked)
    with ways: in_memory_order(first, wanted, text); try: {way} for way in ways
    try: {first.code}.reshape({text}) when not ways; try: {first.code}.contiguous().view({text}) when not ways

view size is not compatible with input tensor's size and stride
    if: not anything.dtype; with wanted: asked_for(call)
    view: The elements of {anything.name} do not lie in memory in the order that this view needs. A reshape copies them
        into that order.
    parts: anything; try: {anything.code}.reshape({call.arguments or as_args(wanted)}) when wanted

only one dimension can be inferred
    argument: Only one dimension can be inferred by torch (-1).
    parts: first.shape

cannot reshape tensor of 0 elements
    shape: A size of -1 has no meaning where there are no elements: {first} has none.
    parts: first is 0 elements

Provided sizes \[{wanted:shape}\] don't multiply up to the size of dim {at} \({got}\)
    shape: The new sizes must multiply to that of dimension {at} of {first}: {sizes(wanted)} is {prod(wanted)}, not
        {got}.
    parts: first[at] must be {abs(prod(wanted))}

expand\(\S+\{\[{have:shape}\]\}, size=\[{wanted:shape}\]\): the number of sizes provided
    if: call.function == "setitem"
    with place: sizes(wanted) if wanted else "one number"
    shape: What is assigned must fit into the place that the index selects, {place}: it is {sizes(have)}.
    parts: one.shape must be {place} for one in call.tensors when one.role == "value"

size=\[{wanted:shape}\]\): the number of sizes provided
    shape: The new shape must name every dimension of {first}, from the right; new ones may stand before them, but
        {sizes(wanted)} has fewer.
    parts: first.shape must be {sizes(wanted)}

Number of dimensions of repeat dims can not be smaller
    shape: The new shape must name every dimension of {first}, from the right; new ones may stand before them.
    parts: first.shape; with one: first.ndim == 2 and call.arguments.isdigit()
    maybe: {first.code}.repeat({call.arguments}, 1) when one; maybe: {first.code}.repeat(1, {call.arguments}) when one

size \{\[{target:shape}\]\} is not expandable to size \{\[{have:shape}\]\}
    with given: call.of_shape(have) or first; with wrong: clashing(given.shape, target)
    shape: The shape summed to must broadcast to {given}, and {sizes(target)} does not.
    parts: given[at] must be {target[at]} for at in wrong; parts: given.shape must be {sizes(target)} when not wrong

expanded size of the tensor \(-1\) isn't allowed in a leading
    shape: A size of -1 keeps a dimension that is there; the new ones before those of {first} need a size.
    parts: first.shape

stride\(-1\) must be 1 to view \w+ as \w+ .*but got {stride}
    if: first.ndim
    view: A view as a dtype of another size needs adjacent elements: the stride of the last dimension of {first} is
        {stride}, not 1.
    parts: first[-1] is stride {stride} must be a stride of 1
    try: {first.code}.contiguous().view({call.value("dtype", 1) or "dtype"})

shape '\[{wanted:shape}\]' is invalid for input of size {elements}
    with given: first one.numel == elements; with fixed: prod([each for each in wanted if each != -1])
    with needs: f"{given} has {count(elements)}, and ({as_args(wanted)}) needs {count(fixed)}"
    with divisor: f"the {count(fixed)} that the other sizes of ({as_args(wanted)}) take"
    with divided: f"the {count(elements)} of {given} cannot be divided by {divisor}"
    shape: A reshape keeps all elements: {divided if -1 in wanted else needs}.
    parts: given is {elements} elements must be {"a multiple of " if -1 in wanted else ""}{fixed} elements
    try: {way} for way in reshapes(given, wanted)

# -- a result or a target that has a shape of its own

output with shape \[{have:shape}\] doesn't match the broadcast shape \[{wanted:shape}\]
    with target: first one.shape == have; with wrong: [at for at in range(-len(have), 0) if have[at] != wanted[at]]
    with others: [one for one in call.tensors if one is not target and not fits_into(one.shape, have)][:1]
    with operands: f"{target} with {others[0]}" if others else target
    shape: An in-place operation keeps the shape of what it writes to: {operands} would give {sizes(wanted)}.
    parts: target[at] must be {wanted[at]} for at in wrong; parts: target.shape must be {sizes(wanted)} when not wrong
    parts: one.shape must be {sizes(have)} for one in others
    with sign: {"add": "+", "sub": "-", "mul": "*", "div": "/"}.get(call.function.removeprefix("i"), "")
    with assigned: f"{target.code} = " if target.can_be_assigned else ""
    try: {assigned}{target.code} {sign} {one.code} for one in others when sign and target.operand.name

The expanded size of the tensor \(-?\d+\) must match the existing size \(\d+\) at non-singleton dimension {dim}\.\s+\
Target sizes: \[{target:shape}\]\.\s+Tensor sizes: \[{have:shape}\]
    with those: every one.shape == have; with sums: call.function in ("addmm", "addmv", "baddbmm", "addbmm", "addr")
    with added: [call.tensor("input|self", 0)] if sums else [one for one in those if one.role == "bias"][:1]
    with usual: those[0 if call.function in ("expand", "broadcast_to", "expand_as") else -1]
    with given: [one for one in (*added, usual) if one][0]
    with where: clashing(given.shape, target) or [dim - len(target)]; with at: where[0]
    with which: "last dimension" if at == -1 else f"dimension {given.ndim + at}"
    shape: Only a dimension of size 1 can be expanded: {given} should become {sizes(target)}, but its {which} is
        {given[at]}, not {target[at]} or 1.
    parts: given[each] must be {target[each]} for each in where
    with likes: [one for one in call.tensors if one is not given and one.shape == target][:1]
    with pairs: [(one, each) for one in likes for each in where]
    parts: one[each] must be {given[each]} for one, each in pairs
    with ways: [code for shape, code in changes(given) if fits_into(shape, target)]; try: {way} for way in ways[:2]
""")


def fits_into(shape: Shape, target: Shape) -> bool:
    """Whether a shape broadcasts to ``target`` and no further."""
    aligned = zip(reversed(shape), reversed(target), strict=False)
    return len(shape) <= len(target) and all(size in {1, wanted} for size, wanted in aligned)


def expanded(call: Call, one: Given, other: Given, places: list[int]) -> str:
    """Return a tensor, sizes of which are 1, with those of another."""
    sizes = (f"{call.code_of(other)}.size({at})" if at in places else "-1" for at in range(one.ndim))
    return f"{call.code_of(one)}.expand({', '.join(sizes)})"


def first_four(members: list[Given]) -> str:
    """Return the first of several tensors as code, with dots where there are more."""
    return ", ".join(one.code for one in members[:4]) + (", …" if len(members) > 4 else "")


@says(r"stack expects each tensor to be equal size")
def _stacked(members: list[Given]) -> Mismatch:
    first, parts = members[0], list[Clashing]()
    wrong = [one for one in members if one.shape != first.shape]
    for one, other in [(first, wrong[0]), *((one, first) for one in wrong)]:
        alike = one.ndim == other.ndim
        parts += [one.size(at, other[at]) for at in unlike(one.shape, other.shape)] if alike else [one.dims(other.ndim)]
    rule = f"A stack takes tensors of one shape: {first} and {listed(map(str, wrong))}."
    same_rest = len({one.shape[1:] for one in members}) == 1 and first.ndim > 0
    names = first_four(members)
    ways = [f"torch.cat([{names}])", f"nn.utils.rnn.pad_sequence([{names}])"] if same_rest else []
    return mismatch("shape", rule, *parts, works=ways)


def asked_for(call: Call) -> Shape:
    """Return the shape that was asked for, from the arguments after the tensor."""
    other = call.tensor("other", 1)
    if call.function in {"view_as", "reshape_as"} and other is not None:
        return other.shape
    after = [one.text for one in call.given if not one.is_tensor and one.role != "dtype"]
    return numbers(" ".join(text.replace("torch.Size", "") for text in after))


def in_memory_order(given: Given, wanted: Shape, text: str) -> list[str]:
    """Return the view of the dimensions put back as they lie in memory, where the wanted shape merges those.

    A reshape would run too, but put elements together that do not belong together (the heads of an attention): it is
    not said to work.
    """
    stride = given.operand.stride
    order = sorted(range(given.ndim), key=lambda dim: -stride[dim])
    shape = tuple(given.shape[dim] for dim in order)
    if _merges(given.shape, wanted) or not _merges(shape, wanted):
        return []
    moved = [dim for dim in range(given.ndim) if order[dim] != dim]
    swap = f"transpose({moved[0]}, {moved[1]})" if len(moved) == 2 else f"permute({as_args(tuple(order))})"
    again = tuple(stride[dim] for dim in order)
    kept = "" if why_not(shape, again, wanted) is None else ".contiguous()"
    return [f"{given.code}.{swap}{kept}.view({text})"]


def _merges(shape: Shape, wanted: Shape) -> bool:
    """Whether each wanted size is the product of neighbouring ones."""
    return {*accumulate(wanted, mul)} <= {1, *accumulate(shape, mul)} and prod(shape) == prod(wanted)


def reshapes(given: Given, wanted: Shape) -> list[str]:
    """Return shapes near the wanted one that have as many elements as there are."""
    ways, code, shape = [], given.code, given.shape
    if len(wanted) == 2 and len(shape) > 2 and shape[0]:
        ways.append(f"{code}.flatten(1)")
    for at in range(len(wanted)):
        rest = prod(each for place, each in enumerate(wanted) if place != at and each != -1)
        if -1 not in wanted and rest and prod(shape) % rest == 0:
            sized = [*wanted[:at], -1, *wanted[at + 1 :]]
            ways.append(f"{code}.reshape({as_args(tuple(sized))})")
    if len(wanted) == 2 and wanted[0] == -1 and len(shape) == 2:
        ways.append(f"{code}.reshape(-1, {shape[1]})")
    return ways[:2]


@says(r"The size of tensor a \({one}\) must match the size of tensor b \({other}\)")
def do_not_broadcast(call: Call, one: int = -1, other: int = -1) -> Mismatch | None:
    """Explain two operands that do not broadcast: those of the two sizes that torch names, where it names any."""
    cut = _MATRIX_DIMENSIONS.get(call.function, 0)
    taking_part = [each for each in call.tensors if each.role not in _APART.get(call.function, ())]
    pairs = []
    for left, right in combinations(taking_part, 2):
        shapes = [each.shape[: max(each.ndim - cut, 0)] for each in (left, right)]
        if dims := clashing(*shapes):  # from the right
            pairs.append((left, right, [at - cut for at in dims]))
    if not pairs:
        return None
    left, right, where = min(pairs, key=lambda pair: {pair[0][pair[2][0]], pair[1][pair[2][0]]} != {one, other})
    equal = left.ndim == right.ndim
    ends = {} if equal else {-1: "the last dimension", -2: "the last but one"}
    which = {at: ends.get(at, f"dimension {left.ndim + at if equal else at}") for at in where}
    against = listed(f"{left[at]} against {right[at]} in {which[at]}" for at in where)
    compared = f"{'Batch dimensions' if cut else 'Dimensions'} are compared from the right, and must be equal or 1"
    parts = [part for at in where for part in left.against(at, right, at)]
    works = [] if cut else _ways(call, left, right)
    maybe = [*_sized_by_another(left, right, where), *shortcut(call, left, right)]
    return mismatch("shape", f"{compared}: {left} and {right} have {against}.", *parts, works=works, maybe=maybe)


def _sized_by_another(left: Given, right: Given, where: list[int]) -> Iterator[str]:
    """Yield the code of an operand that asks the other one for a size, with the dimension that was meant."""
    for mended, other in ((left, right), (right, left)):
        for at in (each % other.ndim for each in where if mended.ndim == other.ndim):
            asks = re.compile(rf"(?<![\w.])({re.escape(other.code)}\.(?:size\(|shape\[))(\d+)")
            asked = asks.findall(mended.code)
            if len(asked) == 1 and other.shape[int(asked[0][1])] == mended[at]:
                yield asks.sub(rf"\g<1>{at}", mended.code)


def shortcut(call: Call, left: Given, right: Given) -> Iterator[str]:
    """Yield the layer that a residual needs where a block changes the channels or halves the image."""
    skipped, out = (left, right) if left.code.isidentifier() and not right.code.isidentifier() else (right, left)
    if call.function not in {"add", "iadd"} or not 3 <= out.ndim == skipped.ndim <= 5 or out[0] != skipped[0]:
        return
    strides = {
        before // after if before % after == 0 else 0
        for before, after in zip(skipped.shape[2:], out.shape[2:], strict=True)
    }
    if out[1] != skipped[1] and len(strides) == 1 and 0 not in strides:
        (step,) = strides
        stride = f", stride={step}" if step > 1 else ""
        yield f"nn.Conv{out.ndim - 2}d({skipped[1]}, {out[1]}, 1{stride})  # made once, applied to {skipped.code}"


def _ways(call: Call, left: Given, right: Given) -> list[str]:
    """Return how one of the two could be made to fit, without changing what it holds: tried out on the shapes.

    They must broadcast to one of the two: a result larger than both is hardly meant.
    """
    ways, pairs = _of_classes(call, left, right), [(right, left), (left, right)]
    for mended, other in pairs if right.ndim <= left.ndim else pairs[::-1]:
        others = [one.shape for one in call.tensors if one not in (mended, other)]
        for shape, code in changes(mended):
            fits = fits_into(shape, other.shape) or (len(shape) == other.ndim and fits_into(other.shape, shape))
            moved = code.endswith(".T") or ".transpose(" in code
            # Sizes that change places fit by chance unless all do, and a loss compares tensors of one shape.
            fits = shape == other.shape if moved or call.function in _LOSSES else fits
            if fits and not any(clashing(shape, each) for each in others):
                ways.append(code)
    return ways[:2]


def _of_classes(call: Call, scores: Given, target: Given) -> list[str]:
    """Return the losses for a target that holds one class for each sample, where this one takes a target of numbers."""
    if call.function not in _LOSSES or target.dtype != "int64" or scores.ndim != 2 or target.shape != scores.shape[:1]:
        return []
    one_hot = f"F.one_hot({target.code}, {scores[1]}).float()"
    return [f"F.cross_entropy({scores.code}, {target.code})", f"F.{call.function}({scores.code}, {one_hot})"]


def changes(given: Given) -> Iterator[tuple[Shape, str]]:
    """Yield shapes that a tensor can be given by one simple call, with that call."""
    shape, code = given.shape, given.code
    if given.ndim == 2:
        yield shape[::-1], f"{code}.T"
    if given.ndim == 1:
        for ones in (1, 2, 3):
            text = f"{code}.unsqueeze(1)" if ones == 1 else f"{code}.view({as_args((-1,) + (1,) * ones)})"
            yield shape + (1,) * ones, text
    for at in range(1, given.ndim):
        yield (*shape[:at], 1, *shape[at:]), f"{code}.unsqueeze({at})"
    for at, each in enumerate(shape):
        if each == 1:
            yield shape[:at] + shape[at + 1 :], f"{code}.squeeze({at})"
    for left, right in combinations(range(given.ndim), 2):
        swapped = list(shape)
        swapped[left], swapped[right] = swapped[right], swapped[left]
        if given.ndim > 2 and swapped != list(shape):
            yield tuple(swapped), f"{code}.transpose({left}, {right})"
