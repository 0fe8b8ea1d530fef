"""A seeded sample of ``make sweep``: tracing changes no output, gradient, random number or exception."""

from __future__ import annotations

import copy
import random
import weakref
from contextlib import nullcontext

import pytest
import torch
from torch.nn.utils._per_sample_grad import call_for_per_sample_grads

import tensormagic as tm
from tests.sweeps import transparency
from tests.sweeps.transparency import LEVELS, SEED, Call, WriteTotal

OPERATORS, MODULES = {"grad": 40, "ops": 16, "memory": 12}, {"grad": 8, "ops": 4, "memory": 4}
# What once differed, or goes through Python code of torch's that asks who overrides it.
ALWAYS = {
    "nn.functional.max_pool1d", "nn.functional.adaptive_max_pool2d", "nn.functional.dropout", "einsum", "norm",
    # What torch computes otherwise while a dispatch mode is on.
    "prod", "cumprod", "amax", "max", "median", "masked_fill", "linalg.eigh", "linalg.svd", "pinverse",
    "nn.functional.ctc_loss", "nn.functional.cross_entropy",
}  # fmt: skip


def _sampled_operators(level):
    drawn = random.Random(SEED).sample(transparency.operators(), OPERATORS[level])
    every = drawn + [op for op in transparency.operators() if op.name in ALWAYS and op not in drawn]
    return [pytest.param(level, op, id=f"{level}-{op.formatted_name}") for op in every]


def _sampled_modules(level):
    drawn = random.Random(SEED).sample(transparency.modules(), MODULES[level])
    return [pytest.param(level, info, id=f"{level}-{info.formatted_name}") for info in drawn]


@pytest.mark.corpus
@pytest.mark.parametrize(("level", "op"), [case for level in LEVELS for case in _sampled_operators(level)])
def test_operators(level, op):
    """Every call of the operator, and every one it refuses, is the same under a trace."""
    tally = WriteTotal(level)
    for call in transparency.operator_calls(op, torch.float32, samples=2):
        tally.add(call)
    assert tally.same
    assert not tally.different


@pytest.mark.parametrize(("level", "info"), [case for level in LEVELS for case in _sampled_modules(level)])
def test_modules(level, info):
    """Every call of the module is the same under a trace."""
    tally = WriteTotal(level)
    for call in transparency.module_calls(info, torch.float32, training=True):
        tally.add(call)
    assert tally.same
    assert not tally.different


def test_a_difference_is_found(monkeypatch):
    """The check can fail: a call that sees the tracer's mode, and answers otherwise, is reported."""

    def run(given):
        return given[0] * (1 + torch._C._len_torch_function_stack())

    monkeypatch.setattr(transparency, "TRIES", 60)
    tally = WriteTotal()
    tally.add(Call("mode-sensitive", lambda: (torch.ones(3, requires_grad=True),), run))
    assert tally.same == 0
    assert tally.different == ["mode-sensitive: outputs, gradients"]


def test_what_changes_by_itself_now_and_then_is_counted_apart():
    """A result that comes under the tracer, and after many calls without it too, is no difference that it made."""
    calls = []

    def run(given):
        calls.append(given)
        return given[0] * (2 if len(calls) in (3, 40) else 1)

    tally = WriteTotal()
    tally.add(Call("now and then", lambda: (torch.ones(3, requires_grad=True),), run))
    assert tally.restless == ["now and then"]
    assert not tally.different


every_follower = pytest.mark.parametrize("follow", [
    nullcontext, tm.trace, lambda: tm.trace(level="ops"), tm.track_memory, tm.watch_writes, tm.track_rng,
    lambda: tm.trace(memory=True, writes=True, draws=True),
])  # fmt: skip
solve, pseudoinverse = torch.linalg.lstsq, torch.linalg.pinv  # as ``from torch.linalg import pinv`` has them


@every_follower
def test_what_linear_algebra_conjugates_inside(follow):
    """Under any dispatch mode torch takes it as it lies: another matrix, and other gradients (pytorch#198118)."""
    torch.manual_seed(0)
    a, b = torch.randn(5, 3, dtype=torch.complex128, requires_grad=True), torch.randn(5, 2, dtype=torch.complex128)

    def run():
        inverse = pseudoinverse(a)
        given = solve(a, b, driver="gelsd").solution
        return inverse.detach(), given.detach(), *torch.autograd.grad(inverse.abs().sum() + given.abs().sum(), a)

    expected = run()
    with follow():
        seen = run()
    assert [torch.view_as_real(x).tolist() for x in seen] == [torch.view_as_real(x).tolist() for x in expected]
    assert torch.allclose(a @ seen[0] @ a, a)


@every_follower
def test_tangents_of_zero(follow):
    """Under any dispatch mode torch reads their memory, which is not there: Python crashed."""
    x, exponents = torch.arange(5.0), torch.full((5,), 2.0)

    def scaled(x):
        return torch.ldexp(x, exponents)

    with follow():
        value, tangent = torch.func.jvp(scaled, (x,), (torch.ones(5),))
        with torch.autograd.forward_ad.dual_level():
            dual = scaled(torch.autograd.forward_ad.make_dual(x, torch.ones(5)))
            by_hand = torch.autograd.forward_ad.unpack_dual(dual).tangent
    assert (value.tolist(), tangent.tolist()) == ([0, 4, 8, 12, 16], [4] * 5)
    assert by_hand.tolist() == [4] * 5


@every_follower
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
def test_singular_values_without_vectors(follow, dtype):
    """Under any dispatch mode torch computes the vectors, too: by another algorithm, in more memory."""
    torch.manual_seed(0)
    a = torch.randn(30, 30, dtype=dtype)
    run = {
        "svdvals": lambda: torch.linalg.svdvals(a), "eigvalsh": lambda: torch.linalg.eigvalsh(a @ a.mH),
        "eigvals": lambda: torch.linalg.eigvals(a), "cond": lambda: torch.linalg.cond(a),
        "spectral norm": lambda: torch.linalg.matrix_norm(a, 2), "norm": lambda: torch.linalg.norm(a, ord=-2),
        "nuclear norm": lambda: torch.norm(a, "nuc"), "method": lambda: a.norm("nuc"),
        "without recording": lambda: torch.no_grad()(torch.linalg.svdvals)(a.clone().requires_grad_()),
    }  # fmt: skip
    expected = {name: one().tolist() for name, one in run.items()}
    with follow():
        seen = {name: one() for name, one in run.items()}
    assert {name: one.tolist() for name, one in seen.items()} == expected
    assert torch._C._len_torch_dispatch_stack() == 0


def test_the_memory_of_singular_values_is_that_of_the_values():
    """The result is there, and vectors that nobody asked for are not."""
    a = torch.randn(200, 200)
    with tm.track_memory(namespace={"a": a}) as run:
        values = torch.linalg.svdvals(a)
    (timeline,) = run.report.timelines
    assert timeline.live[-1] - timeline.live[0] == values.nbytes
    assert max(timeline.live) < timeline.live[0] + a.nbytes


@every_follower
def test_parameters_can_be_swapped(follow):
    """Torch refuses to swap tensors that are held weakly: by the user, but not by what follows the run, or did."""
    net, x = torch.nn.Linear(3, 2), torch.ones(4, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        with follow() as run:
            for _ in range(2):
                net(x).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            net.double()
            net.load_state_dict({name: 2 * value for name, value in net.state_dict().items()})
        net.float()
        assert run is None or run.report.state == "finished"
        reference = weakref.ref(net.weight)
        with pytest.raises(RuntimeError, match="swap Linear") as refused:
            net.double()
        assert "weakref" in str(refused.value.__cause__)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert (reference().dtype, net.bias.dtype) == (torch.float32, torch.float32)


@every_follower
def test_functions_that_a_class_handles_by_name_are_its_own(follow):
    """A class with ``__torch_function__`` finds torch's functions in the table that it made before the run."""
    handled = {torch.Tensor.norm: "norm", torch.svd: "svd"}

    class Named(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return handled[func]

    with follow():
        assert torch.ones(2).as_subclass(Named).norm("nuc") == "norm"


@every_follower
def test_an_argument_that_torch_hands_to_no_mode(follow):
    """``dim_order`` would not be told to look for other orders."""
    x = torch.empty(2, 1, 1, 3)
    with follow(), pytest.raises(RuntimeError, match="unique dim order"):
        x.dim_order(ambiguity_check=True)


class CountsSizes(torch.Tensor):
    """A wrapper that tells its sizes itself: torch keeps them in its ``__dict__``."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dispatch_sizes_strides_policy="sizes")

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        def unwrap(x):
            return x.inner if isinstance(x, CountsSizes) else x

        result = func(*map(unwrap, args), **(kwargs or {}))
        return cls(result) if isinstance(result, torch.Tensor) else result


@every_follower
def test_a_wrapper_that_tells_its_sizes_can_be_copied(follow):
    """Its ``__dict__`` is gone over as what lies in it is copied: nobody may ask for its sizes meanwhile."""
    x = CountsSizes(torch.ones(3, 2))
    with follow():
        made = copy.deepcopy(x)
    assert made.inner.tolist() == [[1, 1]] * 3


@every_follower
def test_leaves_whose_class_refuses_to_be_asked(follow):
    """The weights that torch puts in for gradients of each sample answer a few functions, and no attribute at all."""
    net, x = torch.nn.Linear(3, 2), torch.ones(5, 3)

    def run():
        net.weight.grad_sample = net.bias.grad_sample = None
        call_for_per_sample_grads(net, batch_size=5)(x).sum().backward()
        return net.weight.grad_sample.tolist(), net.bias.grad_sample.tolist()

    expected = run()
    with follow() as followed:
        seen = run()
    assert seen == expected
    assert followed is None or not [gap for gap in followed.report.gaps if gap.section != "names"]


@every_follower
def test_versions_of_tensors_in_a_list_are_counted(follow):
    """An optimizer that writes to all weights at once spoils what was saved of them, and autograd still refuses it."""
    weight, halves = torch.nn.Parameter(torch.ones(3)), torch.ones(4)
    optimizer = torch.optim.AdamW([weight], foreach=True)
    with follow():
        weight.square().sum().backward()
        loss = weight.square().sum()
        optimizer.step()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
        torch.split_copy(halves, 2, out=[halves[:2], halves[2:]])
        torch._foreach_zero_([halves])
        with pytest.raises(RuntimeError, match="The size of tensor a"):
            torch._foreach_add_([halves], [torch.ones(3)])
    assert (weight._version, halves._version, torch._C._dispatch_tls_local_exclude_set().has(_COUNTS)) == (2, 3, False)


_COUNTS = torch._C.DispatchKey.ADInplaceOrView
