"""What lies inside the folded boxes, as the viewer reads it: columns, one entry a part.

The first parts of `graph_hierarchy.hierarchy` are the drawn boxes; the document has those already, so that the columns
here begin with the part whose place is the number of boxes. Nodes and leaves are listed of whole parts alone: those of
the others are what lies inside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from tensormagic.renderers.basics.text_metrics import fitted
from tensormagic.renderers.document.document_columns import steps
from tensormagic.renderers.graph.graph_drawing import DETAIL_SIZE, LABEL_SIZE, Badge, box_size
from tensormagic.renderers.graph.graph_words import leaf_label

if TYPE_CHECKING:
    from tensormagic.renderers.document.document_columns import Interned
    from tensormagic.renderers.graph.graph_drawing import Drawing
    from tensormagic.renderers.graph.graph_folding import Group
    from tensormagic.reports import Graph


def part_columns(graph: Graph, drawing: Drawing, strings: Interned) -> dict[str, list[Any]]:
    """Return the parts inside the boxes of ``drawing``; texts are places in ``strings``, sizes are pixels.

    Returns:
        ``parent`` (place of the part it lies in), ``label``, ``detail``, ``kind``, ``module``, ``width``, ``nodes`` and
        ``leaves`` (empty where further parts lie inside; each number is the step from the one before it in the column,
        which packs to a third).
    """
    inner = drawing.parts[len(drawing.boxes) :]
    groups = [part.group for part in inner]
    widths = [_width(graph, group) for group in groups]
    text = strings.index
    return {
        "parent": [part.parent for part in inner],
        "label": [
            text(fitted(group.label, width - 8, LABEL_SIZE, bold=True))
            for group, width in zip(groups, widths, strict=True)
        ],
        "detail": [
            text(fitted(group.detail, width - 6, DETAIL_SIZE)) for group, width in zip(groups, widths, strict=True)
        ],
        "kind": [text(group.kind) for group in groups],
        "module": [text(group.module) for group in groups],
        "width": widths,
        "nodes": _steps([part.group.nodes if part.whole else () for part in inner]),
        "leaves": _steps([part.group.leaves if part.whole else () for part in inner]),
    }


def _steps(rows: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """Return the rows with every number as its difference from the one before, over all rows."""
    every = iter(steps(chain.from_iterable(rows)))
    return [list(islice(every, len(row))) for row in rows]


def _width(graph: Graph, group: Group) -> int:
    badges = tuple(Badge(leaf, leaf_label(graph.nodes[leaf])) for leaf in group.leaves)
    return round(box_size(group, badges)[0])
