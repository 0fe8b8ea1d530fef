"""What is inside the wrappers of ``torch.func``, and which of them are around."""

from __future__ import annotations

import torch
from torch.func import grad, jacrev, vmap

from tensormagic.collectors.quiet import functorch_levels, unwrap


def test_nothing_is_wrapped_outside():
    """No level, and a tensor is itself."""
    x = torch.ones(2)
    assert functorch_levels() == ()
    assert unwrap(x) is x
    assert unwrap(None) is None


def test_the_batch_inside_two_levels():
    """Under vmap and grad the bare tensor is the whole batch, the very one that was given."""
    batch, seen = torch.arange(6.0).reshape(3, 2), []

    def loss(x):
        seen.append((functorch_levels(), unwrap(x) is batch, tuple(x.shape)))
        return x.square().sum()

    vmap(grad(loss))(batch)
    assert seen == [(("vmap", "grad"), True, (2,))]


def test_batched_gradients_of_autograd():
    """The older vmap behind is_grads_batched is a level too; all rows are inside."""
    seen = []
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    y.register_hook(lambda gradient: seen.append((functorch_levels(), unwrap(gradient).tolist())))
    torch.autograd.grad(y, x, torch.eye(3), is_grads_batched=True)
    assert seen == [(("is_grads_batched",), torch.eye(3).tolist())]


def test_a_jacobian_is_one_vmap():
    """Jacrev goes backwards once for all rows."""
    seen = []

    def function(x):
        y = x.sin()
        y.register_hook(lambda gradient: seen.append((functorch_levels(), tuple(unwrap(gradient).shape))))
        return y

    jacrev(function)(torch.ones(2))
    assert seen == [(("vmap",), (2, 2))]
