"""Whether a result shares memory with its operands, and why a call gave a view or a copy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from tensormagic.collectors.aliasing.aliases import Footprint, footprint_of
from tensormagic.collectors.geometry.overlap import overlap, overlap_elements
from tensormagic.collectors.geometry.strides import shares_version
from tensormagic.collectors.objects.namespace import is_kind
from tensormagic.collectors.quiet import quiet, told
from tensormagic.reports import CopyVerdict, Sharing
from tensormagic.reports.storage import Outcome, contiguous_stride, why_not
from tensormagic.words import number_of_bytes

_UNWRITTEN = "nothing was written to this memory: its values are left over from earlier use"
_JOINED = "the parts are written one after the other into new memory"
_BASIC = "basic indexing (numbers, slices, None, …): another offset, other sizes and strides"
_ADVANCED = "advanced indexing (a list, a mask or a tensor as index) gathers into new memory"
_SWAPPED = "the strides are swapped; no element moves"
_REPEATED = "repeated dimensions get stride 0: nothing is stored twice"
_NO_VERSION_BUMP = "shares memory but not the version counter: autograd does not notice writes"
_DETACHED = "shares memory and version counter, but is detached from the graph"
_EMPTY = "empty empty_like empty_strided empty_permuted new_empty new_empty_strided"
MOST_OPERANDS = 8
_ORDER = ("same object", "overlap", "may overlap", "same storage", "unknown", "separate")


# Why a call gave a view or a copy, in a sentence: the rules of torch and NumPy as tables.
#
# The outcome itself is never looked up: it is what the memory says. A reason only explains it.

_SAME: dict[str, Outcome] = {"same object": "same object", "overlap": "view", "may overlap": "view",
                             "same storage": "view", "unknown": "unknown"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Call:
    """One call as far as its explanation needs it."""

    name: str  # ``"reshape"``, ``".T"`` for an attribute, ``"[]"`` for an index, ``"operator"``; empty where unknown
    library: bool  # whether it is torch's or NumPy's own
    first: Footprint | None  # the first tensor or array that went in
    result: Footprint  # what came out
    of_sizes: bool = False  # whether it was given whole numbers and nothing else
    of_format: bool = False  # whether it was given a memory format

    @property
    def source(self) -> Footprint:
        """What went in first; the result itself where nothing did, so that it compares as unchanged."""
        return self.first or self.result

    @property
    def unchanged(self) -> str:
        """What is said of a call that had nothing to do."""
        return f"{self.name}() returned the {'array' if self.source.is_array else 'tensor'} itself"


def outcome_and_reason(call: Call, relation: str) -> tuple[Outcome, str]:
    """Return what a call did, given how its result relates to its inputs, and why."""
    outcome: Outcome
    if relation == "same object" and call.first is not None and call.first.version != call.result.version:
        outcome = "written in place"
    elif relation in _SAME:
        outcome = _SAME[relation]
    elif not call.library or call.name == ".grad" or (call.name in _FROM_BUFFERS and call.first is None):
        outcome = "separate"
    else:
        outcome = "copy" if call.name in _COPIES and call.first is not None else "new"
    explain = _REASONS.get(call.name, _general) if call.library else _general
    return outcome, explain(call, outcome)


def _general(call: Call, outcome: Outcome) -> str:
    same = (call.source.shape, call.source.stride) == (call.result.shape, call.result.stride)
    if outcome == "written in place":
        what = "wrote into its input" if same else "gave its input other sizes or strides"
        return f"it {what} and returned it"
    if outcome == "view" and call.library:
        return "another object over the same elements" if same else "only sizes, strides or offset differ"
    return "its memory cannot be compared" if outcome == "unknown" else ""


def _reshape(call: Call, outcome: Outcome) -> str:
    if outcome == "same object":
        return f"{call.unchanged}: it already has that shape"
    if outcome == "view":
        return "the strides allow the new shape without moving elements"
    because = _barrier(call.source, call.result.shape)
    return f"{call.name} had to copy: {because}" if because else ""


def _barrier(source: Footprint, to: tuple[int, ...]) -> str:
    """Return which two dimensions keep a view of shape ``to`` from being possible; empty where none do."""
    failure = why_not(source.shape, source.stride, to) if len(source.shape) == len(source.stride) else None
    if failure is None or (found := failure.barrier) is None:
        return ""
    return (
        f"dims {found.outer} and {found.inner} cannot merge: the stride of dim {found.outer} is {found.stride}, "
        f"merging needs {found.inner_size}·{found.inner_stride} = {found.needed}"
    )


def why_view_fails(source: Footprint, to: tuple[int, ...]) -> str:
    """Return why a tensor cannot be viewed in another shape, and what it takes; empty where strides are no reason."""
    because, copied = _barrier(source, to), number_of_bytes(source.nbytes)
    return f"{because}; .reshape({', '.join(map(str, to))}) would copy {copied}" if because else ""


def _contiguous(call: Call, outcome: Outcome) -> str:
    if outcome == "same object":
        return f"{call.unchanged}: it already was contiguous"
    wanted = contiguous_stride(call.source.shape)
    if outcome == "copy" and call.source.stride != wanted and not call.of_format:
        return f"{call.name}() had to copy: the stride was `{call.source.stride}`, contiguous is `{wanted}`"
    return ""


def _convert(call: Call, outcome: Outcome) -> str:
    source, result = call.source, call.result
    if outcome == "same object":
        return f"{call.unchanged}: it already is {result.dtype} on {result.device}"
    if outcome != "copy":
        return _general(call, outcome)
    pairs = (source.dtype, result.dtype), (source.device, result.device)
    changed = [f"{old} → {new}" for old, new in pairs if old != new]
    return f"converted: {', '.join(changed)}" if changed else "a copy was requested"


def _numpy_bridge(call: Call, outcome: Outcome) -> str:
    if outcome == "view" and call.source.is_array != call.result.is_array:
        return "the array and the tensor share memory; autograd does not notice writes through the array"
    if outcome == "copy":
        old, new = call.source.dtype, call.result.dtype
        return f"{old} → {new} needs new memory" if old != new else ""
    return _general(call, outcome)


def _old_constructor(call: Call, outcome: Outcome) -> str:
    if call.of_sizes and call.result.nbytes:
        return f"it was given sizes, not values: {_UNWRITTEN}"
    return _numpy_bridge(call, outcome)


_Rule = Callable[[Call, Outcome], str]


def _says(sentence: str, *outcomes: Outcome, otherwise: _Rule | None = _general) -> _Rule:
    """Return a rule that gives one sentence for these outcomes: by default wherever the call made new memory."""

    def explain(call: Call, outcome: Outcome) -> str:
        if outcome in (outcomes or ("copy", "new")):
            return sentence
        return otherwise(call, outcome) if otherwise is not None else ""

    return explain


_RULES: tuple[tuple[str, _Rule], ...] = (
    ("reshape reshape_as flatten ravel unflatten", _reshape),
    ("contiguous ascontiguousarray", _contiguous),
    ("to type type_as float double half bfloat16 int long short char byte bool cfloat cdouble", _convert),
    ("cpu cuda xpu mps astype", _convert),
    ("[]", _says(_BASIC, "view", otherwise=_says(_ADVANCED, "copy"))),
    ("t transpose permute swapaxes swapdims movedim moveaxis adjoint .T .mT .H .mH", _says(_SWAPPED, "view")),
    ("view view_as squeeze unsqueeze", _says("other sizes and strides over the same elements", "view")),
    ("expand expand_as broadcast_to broadcast_tensors", _says(_REPEATED, "view", otherwise=None)),
    (".data", _says(_NO_VERSION_BUMP, "view", otherwise=None)),
    ("detach", _says(_DETACHED, "view", otherwise=None)),
    ("numpy from_numpy as_tensor asarray __array__ from_dlpack frombuffer", _numpy_bridge),
    ("Tensor FloatTensor DoubleTensor HalfTensor IntTensor LongTensor", _old_constructor),
    (_EMPTY, _says(_UNWRITTEN)),
    ("tensor", _says("tensor() always copies its data")),
    ("array", _says("array() copies its data unless it is told not to")),
    ("clone copy deepcopy", _says("it always copies")),
    ("repeat tile repeat_interleave", _says("every repeat is stored; expand would share memory")),
    ("cat concat concatenate stack hstack vstack dstack column_stack row_stack block_diag", _says(_JOINED)),
    ("flip fliplr flipud rot90", _says("torch has no negative strides: the order is changed by copying")),
    ("roll", _says("what leaves at one end enters at the other, which no strides can do")),
    ("index_select gather take take_along_dim masked_select", _says("the selected elements are gathered")),
    ("pad", _says("pad always makes new memory, even where it adds nothing")),
)
_REASONS: dict[str, _Rule] = {name: rule for names, rule in _RULES for name in names.split()}
# Without a tensor or an array going in, their memory may be that of a buffer, a file, another library's object.
_FROM_BUFFERS = frozenset(
    ["from_dlpack", "frombuffer", "from_file", "load", "as_tensor", "asarray", "set_", "memmap", "fromfile"]
)
_COPIES = (frozenset(_REASONS) - {*_EMPTY.split()}) | {"tril", "triu", "diag_embed"}


def copy_or_view(result: Any, operands: Mapping[str, Any], *, name: str = "result") -> CopyVerdict:
    """Return whether a tensor or array shares memory with each of the operands that are tensors or arrays.

    Nothing is written, read from the device or kept. Tuples and lists of tensors are compared, too; other operands are
    left out.
    """
    found = []
    with quiet():
        mine = footprint_of(result)
        for label, item in operands.items():
            if mine is None or (other := footprint_of(item)) is None:
                continue
            shared = compared(mine, other, label)
            tensors = is_kind(result, torch.Tensor) and is_kind(item, torch.Tensor)
            if tensors and shared.relation not in {"separate", "unknown"}:
                counted = told(partial(shares_version, result, item), None)  # a wrapper has no counter of its own
                shared = replace(shared, shares_version=counted)
            found.append(shared)
    found.sort(key=lambda each: _ORDER.index(each.relation))
    return CopyVerdict(name, tuple(found[:MOST_OPERANDS]), more_operands=max(len(found) - MOST_OPERANDS, 0))


def compared(mine: Footprint, other: Footprint, name: str) -> Sharing:
    """Compare two footprints, of which the second is the operand's."""
    elements, item = other.elements, mine.references[0]()
    if not (mine.several or other.several) and item is not None and item is other.references[0]():
        return Sharing(name, "same object", elements, elements)
    if mine.pieces is None or other.pieces is None:
        return Sharing(name, "unknown", None, elements)
    pairs = [
        (x, replace(y, start=y.start + shift))
        for memory, x in mine.pieces
        for its, y in other.pieces
        if (shift := memory.shift(its)) is not None
    ]
    if not pairs:
        return Sharing(name, "separate", 0, elements)
    answers = [overlap(x, y) for x, y in pairs]
    answer = "yes" if "yes" in answers else "maybe" if "maybe" in answers else "no"
    if answer == "no":
        return Sharing(name, "same storage", 0, elements)
    ((x, y), *_) = pairs
    count = overlap_elements(y, x) if len(pairs) == len(mine.pieces) == len(other.pieces) == 1 else None
    return Sharing(name, "overlap" if answer == "yes" else "may overlap", count, elements)
