"""Objects that raise at whatever they are asked lie beside what is looked at: that is told in full all the same."""

from __future__ import annotations

import contextlib

import pytest
import torch

import tensormagic as tm
from tests.support.raising import KINDS, raising

WEIGHT = torch.ones(1000, requires_grad=True)
VIEW = WEIGHT.detach()[2:]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_what_is_beside_them_is_told(kind):
    """No question ends, and what has a name is there."""
    objects = {f"odd_{name}": made for name, made in raising(kind)}
    assert len(objects) > 50
    names = {"weight": WEIGHT, "view": VIEW, **objects, "held": list(objects.values())}
    assert any("weight" in group.members[0].names for group in tm.aliases(names).groups)
    assert {"weight"} <= {storage.name for storage in tm.memory(names).storages}
    assert tm.why(WEIGHT, namespace=names).name == "weight"
    assert tm.check(names).tensors
    assert tm.rng(names).generators


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_asked_for_themselves(kind):
    """A question about one of them is answered, or refused in plain words."""
    for _, made in raising(kind):
        with contextlib.suppress(tm.TensorMagicError):
            tm.inspect(made, "odd", namespace={"odd": made})
        with contextlib.suppress(tm.TensorMagicError):
            tm.why(made, "odd", namespace={"odd": made})
    assert torch.vmap(torch.func.grad(torch.sum))(torch.ones(2, 2)).tolist() == [[1.0, 1.0], [1.0, 1.0]]
