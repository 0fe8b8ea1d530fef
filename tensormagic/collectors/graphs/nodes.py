"""Nodes of a graph as a report lists them, also of a graph that no run recorded."""

from __future__ import annotations

import dataclasses
import re
import sys
from array import array
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import torch

from tensormagic.collectors.geometry.parts import storage_of
from tensormagic.collectors.graphs.saved_tensors import is_custom, live_saved, read_slots, tensors_in
from tensormagic.collectors.graphs.structure import GraphStructure, Walk, Walker, is_accumulate, make_structure
from tensormagic.collectors.objects.children import is_kind
from tensormagic.collectors.objects.identity import Leaves, ModuleNames
from tensormagic.collectors.quiet import number, numbers, quiet, told
from tensormagic.collectors.where.caller import Origins
from tensormagic.errors import NoGraphError
from tensormagic.reports import Cell, Graph, Node, ParameterSeries, SavedTensor, SavedTotals, TraceReport
from tensormagic.reports.base import quickly

# Describes the nodes of a structure once: names, shapes, saved tensors. The nodes are looked at, never kept.

MAX_SAVED = 12  # slots listed a node; an LSTM keeps one for every layer and gate

_LEAF = (
    "{} is a leaf: nothing was computed to make it, so there is no graph; give something computed from it, such as a "
    "loss"
)
_UNGRADED = (
    "{} has no graph: it does not require grad. Either nothing it was computed from requires grad, or it was made "
    "under torch.no_grad() or inference_mode(), by detach(), or as integers"
)

new_node = quickly(Node)
_saved = lru_cache(maxsize=4096)(SavedTensor)  # a model repeats few of them many times

_VERSION_NUMBER = re.compile(r"Backward\d*$")
_WORD_BOUNDARY = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[0-9])(?=[A-Z][a-z])|(?<=[A-Z])(?=[A-Z][a-z])")


@lru_cache(maxsize=1024)
def op_name(node_name: str) -> str:
    """Return the readable name of a node.

    ``"NativeLayerNormBackward0"`` is ``"native_layer_norm"``, ``"MaxPool2DWithIndicesBackward0"`` is
    ``"max_pool2d_with_indices"``. A custom Function keeps the name that the user gave it: ``"MyReLUBackward"`` is
    ``"MyReLU"``.
    """
    bare = _VERSION_NUMBER.sub("", node_name)
    if not re.search(r"Backward\d+$", node_name):
        return bare
    return _WORD_BOUNDARY.sub("_", bare).lower()


def describe_nodes(
    found: Walk, structure: GraphStructure, leaves: Leaves, origins: Origins, namespace: Mapping[str, Any]
) -> tuple[Node, ...]:
    """Return the report nodes of a structure, in report order."""
    variables = _variables(found, namespace)
    described: dict[int, Node] = {}
    for place, node in enumerate(found.nodes):
        # Without C++'s namespaces: of ``torch::autograd::CppNode<my::Op>``, too, what counts.
        name = sys.intern(node.name().rsplit("::", 1)[-1].removeprefix("CppNode<").removesuffix(">"))
        index = structure.index[place]
        if index in structure.leaf_of:
            shapes, dtype, device = _outputs((node.variable,))
            described[index] = new_node(
                index=index, name=name, op="accumulate", kind="accumulate",
                variable=leaves.known[structure.leaf_of[index]].name, shapes=shapes, dtype=dtype, device=device,
            )  # fmt: skip
            continue
        number, exact = (-1, False) if place in found.foreign else origins.of(node._sequence_nr())
        site, module = origins.origins[number] if number >= 0 else (None, "")
        try:
            shapes, dtype, device = _outputs(node._input_metadata)
        except (RuntimeError, AttributeError):  # nested and functorch outputs have no plain shape
            shapes, dtype, device = (), "", ""
        described[index] = new_node(
            index=index, name=name, op=op_name(name), kind="custom" if is_custom(node) else "op",
            location=site, exact_location=exact, module=module, variable=variables.get(place, ""),
            shapes=shapes, dtype=dtype, device=device, saved=saved_tensors(node),
        )  # fmt: skip
    return tuple([described[index] for index in range(structure.size)])


def _outputs(outputs: Sequence[Any]) -> tuple[tuple[tuple[int, ...], ...], str, str]:
    """Return the shapes of tensors or of what represents them, and dtype and device of the first."""
    shapes = tuple([_size(output) for output in outputs])
    return (shapes, _plain(outputs[0].dtype), str(outputs[0].device)) if shapes else ((), "", "")


def _size(sized: Any) -> tuple[int, ...]:
    try:
        return numbers(sized.shape)
    except (RuntimeError, TypeError, AttributeError):  # nested or jagged
        return ()


@lru_cache(maxsize=64)
def _plain(dtype: Hashable) -> str:
    return str(dtype).removeprefix("torch.")


def saved_tensors(node: Any) -> tuple[SavedTensor, ...]:
    """Return what a live node keeps for its backward, and in which state.

    What the user packed with saved-tensor hooks is not unpacked: that would run their code.
    """
    of_torch = not is_custom(node)
    found: list[SavedTensor] = []
    for slot in read_slots(node, MAX_SAVED):
        if slot.state != "ok":
            found.append(_saved(slot.name, (), "", 0, slot.state))
        for name, x in tensors_in(slot) if not (of_torch and slot.several) else ():
            found.append(_saved(name, _size(x), _plain(x.dtype), number(x.numel() * x.element_size()), "ok"))
    return tuple(found[:MAX_SAVED])


def _variables(found: Walk, namespace: Mapping[str, Any]) -> dict[int, str]:
    """Return traversal place → the name under which the namespace holds what the node made."""
    places = {id(node): place for place, node in enumerate(found.nodes) if not is_accumulate(node)}
    names: dict[int, str] = {}
    for name, value in list(namespace.items()):
        if is_kind(value, torch.Tensor) and not name.startswith("_"):
            maker = told(partial(getattr, value, "grad_fn"), None)  # not of a view that autograd forbids, for one
            if (place := places.get(id(maker))) is not None:
                names.setdefault(place, name)
    return names


# An existing graph: what backward would run through, looked at before it does. Nothing is run, hooked or kept. The
# forward was not watched, so a node's line and module are not known; everything autograd itself keeps is.


def collect_graph(root: torch.Tensor, *, name: str, namespace: Mapping[str, Any]) -> TraceReport:
    """Return the graph that leads to ``root``, a tensor with a ``grad_fn`` that is called ``name``.

    Raises:
        NoGraphError: where it has none.
    """
    with quiet():
        start = root.grad_fn
        if start is None:
            raise NoGraphError((_LEAF if root.requires_grad else _UNGRADED).format(name))
        leaves = Leaves(namespace, ModuleNames(namespace))
        found = Walker(Origins(), leaves).walk([start])
        structure = make_structure(1, found)
        nodes = list(describe_nodes(found, structure, leaves, Origins(), namespace))
        (at,) = structure.roots
        nodes[at] = dataclasses.replace(nodes[at], variable=nodes[at].variable or name)
        parameters = tuple(
            ParameterSeries(leaf.name, leaf.shape, leaf.dtype, leaf.numel, leaf.is_parameter, leaf.requires_grad,
                            True, leaf.owner, array("f"), 0)  # noqa: FBT003
            for leaf in leaves.known
        )  # fmt: skip
        return TraceReport(
            title=name, state="drawn", cell=Cell("", None, ()), seconds=0.0, own_seconds=0.0,
            graphs=(Graph(number=1, nodes=tuple(nodes), edges=structure.edges, roots=structure.roots),),
            forward_nodes=sum(node.kind != "accumulate" for node in nodes),
            parameters=parameters, saved=_saved_totals(found),
        )  # fmt: skip


def _saved_totals(found: Walk) -> SavedTotals:
    """Count what is saved; storages by identity, each once."""
    sizes: dict[int, int] = {}
    of_leaves = {storage_of(node.variable) for node in found.nodes if is_accumulate(node)}
    counts, unread = Counter[str](), 0
    for state, tensor in (saved for node in found.nodes for saved in live_saved(node)):
        counts[state] += 1
        try:
            if tensor is not None:
                storage = tensor.untyped_storage()
                sizes[storage._cdata] = number(storage.nbytes())
        except (RuntimeError, NotImplementedError):
            unread += 1
    slots, freed, changed = counts["ok"], counts["freed"], counts["changed in place"]
    return SavedTotals(
        slots=slots, storages=len(sizes), nbytes=sum(sizes.values()),
        leaf_bytes=sum(size for key, size in sizes.items() if key in of_leaves),
        freed=freed, changed=changed, unread=counts.total() - slots - freed - changed + unread,
    )  # fmt: skip
