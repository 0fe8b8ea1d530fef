"""What memory is for: from the roles in which a storage was met to one category.

One storage may play several roles: a weight is what a graph saved for backward, too, and an optimizer's state may be a
view into it. The first line of `PRECEDENCE` that fits counts.

- *parameter*: an ``nn.Parameter``, or what an optimizer updates.
- *gradient*: the ``.grad`` of a tensor.
- *optimizer state*: what an optimizer holds besides its parameters: moments, momentum buffers, steps.
- *buffer*: registered as a buffer of a module.
- *input*: what a data set or loader holds; and what has a name, was not computed with gradients, and was saved by a
  graph that is still alive: the batch that a model was given. Once a backward has freed the graph, nothing tells a
  batch from another tensor.
- *saved for backward*: what a live graph keeps for its backward, and is none of these.
- *other*: everything else.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from tensormagic.reports import Category

Role = Literal["parameter", "gradient", "optimizer state", "buffer", "data", "saved"]

PRECEDENCE: tuple[tuple[Role, Category], ...] = (
    ("parameter", "parameter"),
    ("gradient", "gradient"),
    ("optimizer state", "optimizer state"),
    ("buffer", "buffer"),
    ("data", "input"),
    ("saved", "saved for backward"),
)


def category_of(roles: Collection[Role]) -> Category:
    """Return what a storage is for."""
    return next((category for role, category in PRECEDENCE if role in roles), "other")
