"""Values and autograd of what every operator of torch's own table makes: counted right, and nothing raises.

Every operator that can be differentiated, on its first sample: the counts are those of `torch.isfinite`, whole and
slice by slice, the way to the leaves is found, and what the node keeps is fine.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

from tensormagic.collectors.tensors.autograd import autograd_details
from tensormagic.collectors.tensors.picture import picture
from tensormagic.collectors.tensors.statistics import values
from tensormagic.views.graph.words import FORMULAS
from tensormagic.views.panels.why import path_svg

pytestmark = pytest.mark.sweep

OPERATORS = [op for op in op_db if op.supports_autograd and torch.float32 in op.supported_dtypes("cpu")]


def outputs(op: Any) -> Iterator[torch.Tensor]:
    """The tensors that an operator makes of its first sample; none where it refuses it."""
    try:
        sample = next(iter(op.sample_inputs("cpu", torch.float32, requires_grad=True)))
        made = op(sample.input, *sample.args, **sample.kwargs)
    except (StopIteration, RuntimeError, NotImplementedError, ImportError, ValueError, TypeError):
        return
    yield from (one for one in (made if isinstance(made, tuple | list) else [made]) if isinstance(one, torch.Tensor))


def check_autograd(x: torch.Tensor) -> None:
    """What saved tensors is fine, the picture can be drawn, and no formula is for another number of inputs."""
    details = autograd_details(x, {}, [], name="x")
    assert {saved.state for saved in details.saved} <= {"fine"}
    if details.path is not None:
        node = details.path.nodes[0]
        assert len(FORMULAS.get(node.node, node.inputs)) == len(node.inputs)
        assert path_svg(details.path, "x").endswith("</svg>")


def check_values(x: torch.Tensor) -> None:
    """Counts whole and slice by slice are those of torch."""
    numbers, by_slice = values(x)
    finite = int((x.abs() if x.is_complex() else x).isfinite().sum())
    assert numbers.finite == finite
    assert {sum(each.cell_bad) for each in by_slice} <= {x.numel() - finite}
    if x.dim() and x.numel():
        assert picture(x).of > 0


def test_every_operator() -> None:
    """All operators, one after the other; how many tensors were looked at is printed."""
    looked = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about what its samples use
        for op in OPERATORS:
            for made in outputs(op):
                check_autograd(made)
                if made.layout == torch.strided and not made.is_nested:
                    check_values(made.detach())
                looked += 1
    print(f"\n    {looked} tensors of {len(OPERATORS)} operators")
    assert looked > len(OPERATORS) // 2
