"""The graph so far: what autograd had recorded of the operands of a call when torch refused it.

No backward will run through it. The refused call itself is added as a last node: that is where the run ended.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tensormagic.collectors.gradients.following import start_nodes
from tensormagic.collectors.graphs.nodes import describe_nodes
from tensormagic.collectors.graphs.skeleton import Walker, is_accumulate, make_skeleton
from tensormagic.collectors.objects.identity import Leaves, ModuleNames
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.where.origins import Origins
from tensormagic.reports import Edge, Graph, Node

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
        starts = start_nodes([operand for operand in operands if operand.requires_grad])
        if all(map(is_accumulate, starts)) or _is_large(starts):
            return None
        known = origins or Origins()
        leaves = Leaves(namespace, ModuleNames(namespace))
        found = Walker(known, leaves).walk(starts)
        skeleton = make_skeleton(1, found)
        nodes = [
            dataclasses.replace(node, location=None)
            for node in describe_nodes(found, skeleton, leaves, known, namespace)
        ]
    last = len(nodes)
    name = function.rsplit(".", 1)[-1].strip("_") or "call"
    into = (Edge(last, root, at, 0) for at, root in enumerate(skeleton.roots))
    refused = Node(index=last, name=name, op=name, kind="custom")
    return Graph(number=1, nodes=(*nodes, refused), edges=(*skeleton.edges, *into), roots=(last,))


def _is_large(starts: Sequence[Any]) -> bool:
    """Return whether there are more nodes than can be drawn, without looking at many more."""
    nodes = list(starts)
    seen = set(map(id, nodes))
    for node in nodes:  # grows while it is walked
        for target, _ in node.next_functions:
            if target is not None and id(target) not in seen:
                seen.add(id(target))
                nodes.append(target)
        if len(nodes) > MOST_NODES:
            return True
    return False
