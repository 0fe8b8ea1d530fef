"""A graph that stands: what backward would run through, looked at before it does. Nothing is run, hooked or kept.

The forward was not watched, so a node's line and module are not known; everything autograd itself keeps is: nodes,
edges, leaves with their names, shapes, and what is saved for backward, in how many bytes.
"""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from tensormagic.collectors.graphs.nodes import describe_nodes
from tensormagic.collectors.graphs.saved_tensors import live_saved
from tensormagic.collectors.graphs.structure import GraphStructure, Walk, Walker, is_accumulate, make_structure
from tensormagic.collectors.objects.identity import Leaf, Leaves, ModuleNames
from tensormagic.collectors.quiet import number, quiet
from tensormagic.collectors.where.caller import Origins
from tensormagic.errors import NoGraphError
from tensormagic.reports import Cell, Graph, Kept, Node, ParameterSeries, TraceReport


def collect_graph(root: torch.Tensor, *, name: str, namespace: Mapping[str, Any]) -> TraceReport:
    """Return the graph that leads to ``root``.

    Args:
        root: A tensor with a ``grad_fn``.
        name: What it is called.
        namespace: Where the names of tensors and modules are looked up.

    Raises:
        NoGraphError: where it has none.
    """
    with quiet():
        start = root.grad_fn
        if start is None:
            raise NoGraphError(_without_graph(root, name))
        leaves = Leaves(namespace, ModuleNames(namespace))
        found = Walker(Origins(), leaves).walk([start])
        structure = make_structure(1, found)
        nodes = describe_nodes(found, structure, leaves, Origins(), namespace)
        return TraceReport(
            title=name, state="drawn", cell=Cell("", None, ()), seconds=0.0, own_seconds=0.0,
            graphs=(
                Graph(number=1, nodes=_named(nodes, structure, name), edges=structure.edges, roots=structure.roots),
            ),
            forward_nodes=sum(node.kind != "accumulate" for node in nodes),
            parameters=tuple(_series(leaf) for leaf in leaves.known), kept=_kept(found),
        )  # fmt: skip


def _without_graph(root: torch.Tensor, name: str) -> str:
    if root.requires_grad:
        return (
            f"{name} is a leaf: nothing was computed to make it, so there is no graph; give something computed from "
            f"it, such as a loss"
        )
    return (
        f"{name} has no graph: it does not require grad. Either nothing it was computed from requires grad, or it was "
        f"made under torch.no_grad() or inference_mode(), by detach(), or as integers"
    )


def _named(nodes: tuple[Node, ...], structure: GraphStructure, name: str) -> tuple[Node, ...]:
    """Return the nodes; the root bears the name of what was asked for."""
    (root,) = structure.roots
    named = nodes[root]
    if named.variable:
        return nodes
    return (*nodes[:root], dataclasses.replace(named, variable=name), *nodes[root + 1 :])


def _series(leaf: Leaf) -> ParameterSeries:
    return ParameterSeries(
        leaf.name, leaf.shape, leaf.dtype, leaf.numel, leaf.is_parameter, leaf.requires_grad, True,  # noqa: FBT003
        leaf.owner, array("f"), 0,
    )  # fmt: skip


def _kept(found: Walk) -> Kept:
    """Count what is saved; storages by identity, each once."""
    sizes: dict[int, int] = {}
    of_leaves = set(_storages_of_leaves(found))
    counts = {"ok": 0, "freed": 0, "changed in place": 0}
    unread = 0
    for node in found.nodes:
        for state, tensor in live_saved(node):
            counts[state] = counts.get(state, 0) + 1
            try:
                if tensor is not None:
                    storage = tensor.untyped_storage()
                    sizes[storage._cdata] = number(storage.nbytes())
            except (RuntimeError, NotImplementedError):
                unread += 1
    known = sum(counts[state] for state in ("ok", "freed", "changed in place"))
    return Kept(
        slots=counts["ok"], storages=len(sizes), nbytes=sum(sizes.values()),
        leaf_bytes=sum(size for key, size in sizes.items() if key in of_leaves),
        freed=counts["freed"], changed=counts["changed in place"], unread=sum(counts.values()) - known + unread,
    )  # fmt: skip


def _storages_of_leaves(found: Walk) -> Iterator[int]:
    for node in found.nodes:
        if is_accumulate(node):
            try:
                yield node.variable.untyped_storage()._cdata
            except (RuntimeError, NotImplementedError):
                continue
