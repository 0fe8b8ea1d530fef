"""A tensor's place in autograd: what made it, what saved tensors, its hooks, and the way to its leaves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import PurePath
from typing import Any

import torch

from tensormagic.collectors.geometry.parts import storage_of
from tensormagic.collectors.graphs.live_nodes import inputs_of, walk_nodes
from tensormagic.collectors.graphs.nodes import op_name
from tensormagic.collectors.graphs.saved_tensors import read_slots, tensors_in
from tensormagic.collectors.kinds import is_readable, sizes_of
from tensormagic.collectors.objects.children import has_history, is_kind, is_stale
from tensormagic.collectors.quiet import local_shard, numbers, quiet, told
from tensormagic.collectors.where.source import in_file
from tensormagic.reports import BEYOND, NOTHING, AutogradDetails, AutogradReport, Hook, Path, PathNode, SavedState
from tensormagic.words import count, listed

MOST_SAVED = 12  # tensors of a node
MOST_COUNTED = 10_000  # nodes on the way to the leaves
MOST_LISTED = 28  # of them
MOST_NAMED = 10_000  # names whose tensors are asked which node made them
MOST_HOOKS = 12
NODE_LIMIT = 10_000  # nodes between which leaves are looked for
_SHOWN_LEAVES = 8
_NAMED_LEAVES = 3


def saved_states(node: Any, names: Mapping[int, str] | None = None) -> tuple[SavedState, ...]:
    """Return what a live node keeps for its backward, and in which state."""
    found: list[SavedState] = []
    for slot in read_slots(node):
        if slot.state != "ok":
            before, now = slot.versions or (None, None)
            found.append(SavedState(slot.name, slot.state, saved_version=before, version=now))
            continue
        for name, value in tensors_in(slot):
            version = None if value.is_inference() else value._version
            dtype, nbytes = str(value.dtype).removeprefix("torch."), value.numel() * value.element_size()
            called = (names or {}).get(value._cdata, "")
            found.append(SavedState(name, "fine", called, sizes_of(value), dtype, nbytes, version, version))
    return tuple(found[:MOST_SAVED])


# The way from a tensor to its leaves: the nearest nodes of its graph, by the user's names where there are any.
#
# The walk is breadth first, iterative and bounded: a recurrent network of a hundred thousand nodes is not walked for
# a panel. A few nodes are described, more are counted, and it is said whether these were all.
def path_of(root: Any, names: Mapping[int, str], named: Iterable[tuple[str, Any]]) -> Path:
    """Return the way from a tensor's ``grad_fn`` to the leaves.

    Leaves are called as in ``names``, which is by ``tensor._cdata``; what the nodes made as in ``named``.
    """
    nodes = list(walk_nodes([root], MOST_COUNTED + 1))  # held, so that the Python object and ``id`` of each stay
    listed = nodes[:MOST_LISTED]
    places, made = {id(node): place for place, node in enumerate(listed)}, names_made(listed, islice(named, MOST_NAMED))
    described = tuple(_node(node, names, places, made.get(id(node), "")) for node in listed)
    return Path(described, walked=min(len(nodes), MOST_COUNTED), complete=len(nodes) <= MOST_COUNTED)


def names_made(nodes: Iterable[Any], named: Iterable[tuple[str, Any]]) -> dict[int, str]:
    """Return the first name of what each of these nodes made, by ``id`` of the node."""
    made = {id(node): "" for node in nodes}
    for label, item in named:  # a view that was written to is not asked: it would get a new node
        if has_history(item) and not is_stale(item) and made.get(id(item.grad_fn)) == "":
            made[id(item.grad_fn)] = label
    return made


_UNKNOWN: tuple[int, ...] = ()  # the shape of nested and functorch outputs


def _node(node: Any, names: Mapping[int, str], places: Mapping[int, int], made: str) -> PathNode:
    if type(node).__name__ == "AccumulateGrad" and (leaf := node.variable) is not None:
        return PathNode(
            op="", node="AccumulateGrad", name=names.get(leaf._cdata, ""), is_leaf=True, has_grad=leaf.grad is not None,
            shape=told(lambda: numbers(leaf.shape), _UNKNOWN),
        )  # fmt: skip
    inputs = tuple(NOTHING if to is None else places.get(id(to), BEYOND) for to in inputs_of(node))
    states = {saved.state for saved in saved_states(node)}
    modified = next((state for state in ("changed in place", "freed") if state in states), "")
    shape = told(lambda: numbers(node._input_metadata[0].shape), _UNKNOWN)
    return PathNode(op_name(node.name()), node.name(), made, shape, inputs=inputs, saved=modified)


def autograd_details(
    x: torch.Tensor, names: Mapping[int, str], named: Iterable[tuple[str, Any]] = (), *, name: str
) -> AutogradDetails:
    """Return what is behind the autograd state of a tensor that is called ``name``.

    ``names`` are what tensors are called, by ``tensor._cdata``; ``named`` are names with tensors and arrays.
    """
    with quiet():
        node, others = x.grad_fn, [pair for pair in named if is_kind(pair[1], torch.Tensor) and pair[1] is not x]
        return AutogradDetails(
            output_number=x.output_nr,
            because=_because(x, others, name),
            grad_because=_grad_because(x, name),
            hooks=tuple(hooks_of(x))[:MOST_HOOKS],
            saved=() if node is None else saved_states(node, names),
            path=None if node is None else path_of(node, names, others),
        )


def _because(x: torch.Tensor, others: list[tuple[str, Any]], name: str) -> str:
    if x.is_inference():
        return "made under inference_mode, which records nothing"
    if x.grad_fn is not None:
        return f"not a leaf: {x.grad_fn.name()} made it from something that requires grad"
    if x.requires_grad:
        asked = "a Parameter requires grad" if isinstance(x, torch.nn.Parameter) else "requires_grad was set on it"
        return f"a leaf: no recorded operation made it, and {asked}"
    if not (x.is_floating_point() or x.is_complex()):
        return "only floating-point and complex tensors can require grad"
    storage = storage_of(x)
    tracked = [label for label, item in others if storage and item.requires_grad and storage_of(item) == storage]
    if tracked:
        return f"it shares {tracked[0]}'s memory but not its graph: detach(), .data or no_grad cut {name} off"
    why = "nothing it was made from requires grad, or no_grad or detach() cut it off"
    return f"no operation that led to it was recorded: {why}"


def _grad_because(x: torch.Tensor, name: str) -> str:
    if not x.requires_grad:
        return "autograd does not track it"
    if not x.is_leaf and not x.retains_grad:
        return f"torch only keeps the gradients of leaves, unless {name}.retain_grad() is called before backward()"
    if x.grad is not None:
        return "backward() has set it; the next one is added to it"
    return "no backward() has reached it since it was made, or since zero_grad() cleared it"


def hooks_of(x: torch.Tensor) -> Iterator[Hook]:
    """Yield the hooks that are called with the gradient of a tensor."""
    kinds = (("tensor hook", "_backward_hooks"), ("post-accumulate hook", "_post_accumulate_grad_hooks"))
    for kind, attribute in kinds:
        for hook in list((getattr(x, attribute, None) or {}).values()):
            function = hook
            while isinstance(function, partial):
                function = function.func
            name = str(getattr(function, "__qualname__", "") or type(function).__qualname__)
            code = getattr(function, "__code__", None)
            line = in_file(code)[0].co_firstlineno if code is not None else 0
            place = f"{PurePath(code.co_filename).name}, line {line}" if code is not None else ""
            yield Hook(kind, name.rsplit("<locals>.", 1)[-1], place)


def autograd(x: torch.Tensor, names: Mapping[int, str], *, name: str = "x") -> AutogradReport:
    """Return the autograd state of a tensor, without the warnings torch gives for looking.

    ``names`` are what tensors are called, by ``tensor._cdata``; ``name`` is what ``x`` is called in the sentence.
    """
    with quiet():
        made_by = x.grad_fn
        nodes, found = set[Any](), dict[int, str]()
        for node in walk_nodes([] if made_by is None else [made_by], NODE_LIMIT + 1, nodes):
            if type(node).__name__ == "AccumulateGrad" and (leaf := node.variable) is not None:
                found.setdefault(leaf._cdata, names.get(leaf._cdata, f"a leaf {sizes_of(leaf)}"))
        leaves = list(found.values())
        state, shape, norm = "none", None, None
        try:
            grad = x.grad if x.is_leaf or x.retains_grad else None  # not even asked for where torch would warn
        except RuntimeError:
            state = "unreadable"
        else:
            if grad is not None:
                state, shape, norm = "present", sizes_of(grad), told(lambda: _norm(grad), None)
        return AutogradReport(
            x.requires_grad, x.is_leaf, None if made_by is None else made_by.name(), x.retains_grad, state, shape, norm,
            hooks=len(x._backward_hooks or ()) + len(getattr(x, "_post_accumulate_grad_hooks", None) or ()),
            leaves=tuple(leaves[:_SHOWN_LEAVES]), leaf_count=len(leaves),
            sentence=_sentence(x, name, state, leaves, complete=len(nodes) <= NODE_LIMIT),
        )  # fmt: skip


def _norm(grad: torch.Tensor) -> float | None:
    """Return the Euclidean norm of a gradient of any layout; None where it cannot be read without its class."""
    grad = local_shard(grad)  # of a DTensor what lies in this process
    values = grad.coalesce().values() if grad.is_sparse else grad
    if not is_readable(values):
        return None
    wide = None if values.device.type == "mps" else torch.complex128 if values.is_complex() else torch.float64
    return float(torch.linalg.vector_norm(values, dtype=wide))


def _sentence(x: torch.Tensor, name: str, state: str, leaves: list[str], *, complete: bool) -> str:
    if x.is_inference():
        return "an inference tensor (made under inference_mode): autograd never tracks it"
    if not x.requires_grad:
        if not (x.is_floating_point() or x.is_complex()):
            return f"not tracked: {str(x.dtype).removeprefix('torch.')} values cannot have gradients"
        return f"not tracked (requires_grad=False): {name}.grad stays None"
    if x.is_leaf:
        holds = "adds to" if state == "present" else "will fill"
        return f"a leaf that requires grad: backward() {holds} {name}.grad"
    made = f"made by {x.grad_fn.name()}, not a leaf" if x.grad_fn is not None else "not a leaf"
    retains, onwards = x.retains_grad, ""  # where the gradient goes on to; nothing where no leaf was found
    if leaves:
        further = "" if complete else " and perhaps others"
        onwards = f"{' and goes on' if retains else ''} to {listed(leaves, most=_NAMED_LEAVES)}{further}"
    elif not complete:
        onwards = f" (its leaves are more than {count(NODE_LIMIT)} nodes away)"
    if retains:
        return f"{made}, but retain_grad() was called: backward() fills {name}.grad{onwards}"
    return f"{made}: backward() passes through it{onwards}, and {name}.grad stays None"
