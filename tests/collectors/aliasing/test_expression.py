"""The evaluation of an expression: its value, the verdict on it, and that nothing shows that somebody looked."""

from __future__ import annotations

import gc
import sys
import traceback
import weakref

import numpy as np
import pytest
import torch
from torch import nn

from tensormagic.collectors.aliasing.expression import MOST_STEPS, evaluate


def names() -> dict:
    """Return a namespace with tensors, arrays, containers and a module."""
    x = torch.arange(12.0).reshape(3, 4)
    whole = np.arange(4)
    return {
        "x": x, "a": x.numpy(), "whole": whole, "mask": x > 3, "batch": {"x": [x[0], x]}, "xs": [x, x[0]],
        "net": nn.Linear(4, 2), "tail": lambda t: t[1:], "double": lambda t: t * 2, "torch": torch, "np": np,
        "F": nn.functional,
    }  # fmt: skip


def verdict(expression: str, space: dict | None = None):
    """Return the verdict on an expression over those names."""
    return evaluate(expression, space or names()).verdict


def outcomes(expression: str) -> list[tuple[str, str]]:
    """Return each step's code and outcome."""
    return [(step.code, step.outcome) for step in verdict(expression).steps]


@pytest.mark.parametrize(
    ("expression", "outcome", "shares"),
    [
        ("x[1:, ::2]", "view", {"x": 4}),
        ("x[1]", "view", {"x": 4}),
        ("x[[0, 2]]", "copy", {"x": 0}),
        ("x[mask]", "copy", {"x": 0, "mask": 0}),
        ("x[0:0]", "same storage", {"x": 0}),
        ("x.T", "view", {"x": 12}),
        ("x.reshape(4, 3)", "view", {"x": 12}),
        ("x.t().reshape(12)", "copy", {"x": 0}),
        ("x.t().flatten(0)", "copy", {"x": 0}),
        ("x.contiguous()", "same object", {"x": 12}),
        ("x.t().contiguous()", "copy", {"x": 0}),
        ("x.to(torch.float32)", "same object", {"x": 12}),
        ("x.float()", "same object", {"x": 12}),
        ("x.type(torch.float64)", "copy", {"x": 0}),
        ("x.to(torch.float32, copy=True)", "copy", {"x": 0}),
        ("x.expand(2, 3, 4)", "view", {"x": 12}),
        ("x[:1].expand(5, 4)", "view", {"x": 4}),
        ("x.repeat(2, 1)", "copy", {"x": 0}),
        ("x[None].squeeze(0)", "view", {"x": 12}),
        ("x.data", "view", {"x": 12}),
        ("x.detach()", "view", {"x": 12}),
        ("x.clone()", "copy", {"x": 0}),
        ("x.numpy()", "view", {"x": 12}),
        ("torch.from_numpy(a)", "view", {"a": 12}),
        ("torch.as_tensor(a)", "view", {"a": 12}),
        ("torch.as_tensor(whole, dtype=torch.float32)", "copy", {"whole": 0}),
        ("torch.tensor(a)", "copy", {"a": 0}),
        ("torch.Tensor(a)", "view", {"a": 12}),
        ("torch.Tensor(whole)", "copy", {"whole": 0}),
        ("x.flip(0)", "copy", {"x": 0}),
        ("x.diagonal()", "view", {"x": 3}),
        ("x.unfold(1, 2, 1)", "view", {"x": 12}),
        ("x.chunk(2)[0]", "view", {"x": 8}),
        ("x.max(0).values", "new", {"x": 0}),
        ("torch.cat([x, x])", "copy", {"x": 0}),
        ("torch.stack([row for row in x])", "copy", {"x": 0}),
        ("torch.broadcast_tensors(x, x[0])[1]", "view", {"x": 4}),
        ("x + 1", "new", {"x": 0}),
        ("-x", "new", {"x": 0}),
        ("tail(x)", "view", {"x": 8}),
        ("double(x)", "separate", {"x": 0}),
        ("net.weight.t()", "view", {"net.weight": 8}),
        ("batch['x'][0].view(2, 2)", "view", {"batch['x'][0]": 4}),
        ("xs[0].t()", "view", {"xs[0]": 12}),
        ("torch.zeros(3)", "new", {}),
        ("x if True else a", "same object", {"x": 12, "a": 12}),
        ("(lambda t: t[0])(x)", "view", {"x": 4}),
        ("x.add_(0)", "same object", {"x": 12}),
        ("F.dropout(x, training=False)", "view", {"x": 12}),
    ],
)
def test_verdict_and_elements_shared(expression, outcome, shares):
    """What the result is, and how many different elements of each operand it reaches."""
    found = verdict(expression)
    if expression.startswith("F.dropout"):  # an alias or the input itself, as this torch has it
        assert found.outcome in {"view", "same object"}
    else:
        assert found.outcome == outcome
    assert {operand.name: operand.elements for operand in found.operands} == shares


def test_a_chain_is_told_call_by_call():
    """Each call of the chain with what it gave, the bytes copied, and why."""
    found = verdict("x.t().contiguous().view(-1)")
    assert [(step.code, step.outcome, step.nbytes) for step in found.steps] == [
        ("x.t()", "view", 0), (".contiguous()", "copy", 48), (".view(-1)", "view", 0)]  # fmt: skip
    assert found.copied_bytes == 48
    assert "the stride was `(1, 4)`, contiguous is `(3, 1)`" in found.steps[1].reason


def test_a_memory_format_that_was_asked_for_is_not_told_as_the_plain_one():
    """What ``channels_last`` has copied need not have had another stride than the plain format."""
    space = {"x": torch.zeros(2, 3, 4, 5).transpose(2, 3)}
    assert "the stride was" in verdict("x.contiguous()", space).steps[0].reason
    assert verdict("x.contiguous(memory_format=torch.channels_last)", {**space, "torch": torch}).steps[0].reason == ""


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("x.t().reshape(2, 6)", "dims 0 and 1 cannot merge: the stride of dim 0 is 1, merging needs 3·4 = 12"),
        ("x.t().reshape(4, 3, 1)", "the strides allow the new shape"),
        ("x.contiguous()", "it already was"),
        ("x.to(torch.float64)", "float32 → float64"),
        ("x.double().double()", "it already is float64 on cpu"),
        ("x[[0]]", "advanced indexing"),
        ("x[0]", "basic indexing"),
        ("x.data", "autograd does not notice writes"),
        ("torch.Tensor(whole)", "int64 → float32"),
        ("x.flip(0)", "no negative strides"),
        ("x.roll(1)", "enters at the other"),
        ("F.pad(x, (-1, -1))", "pad always makes new memory"),
        ("torch.Tensor(x)", "another object over the same elements"),
        ("torch.from_dlpack(x)", "another object over the same elements"),
        ("torch.from_dlpack(a)", "the array and the tensor share memory"),
        ("np.ascontiguousarray(a)", "ascontiguousarray() returned the array itself"),
        ("np.array(a)", "array() copies"),
        ("x.t_()", "other sizes or strides"),
        ("x.add_(1)", "it wrote into its input"),
    ],
)
def test_reasons(expression, words):
    """Why it copied, or why it need not."""
    assert words in verdict(expression).steps[-1].reason


def test_data_and_detach_differ_in_the_version_counter():
    """Both share memory; only detach shares the counter by which autograd notices writes."""
    shared = {attribute: verdict(f"x.{attribute}").operands[0].shares_version for attribute in ("data", "detach()")}
    assert shared == {"data": False, "detach()": True}


@pytest.mark.parametrize(
    "expression",
    ["torch.frombuffer(bytearray(16), dtype=torch.float32)", "torch.func.functional_call(net, {}, x)", "double(x)",
     "torch.autograd.grad((w * w).sum(), w)[0]", "x.grad"],
)  # fmt: skip
def test_memory_is_called_new_only_where_that_is_known(expression):
    """A buffer's memory, and what a function of the user's own returns, may have been there before."""
    x = torch.ones(3, 4, requires_grad=True)
    (x * x).sum().backward()
    found = verdict(expression, {**names(), "x": x, "w": torch.ones(2, requires_grad=True)})
    assert found.outcome == "separate"


def test_writing_in_place_is_told_from_returning_the_same():
    """``add_`` gives its input back, changed; ``contiguous`` unchanged."""
    assert outcomes("x.add_(1)") == [("x.add_(1)", "written in place")]
    assert outcomes("x.contiguous()") == [("x.contiguous()", "same object")]


def test_a_plain_name_needs_no_verdict():
    """Nothing was made, so there is nothing to say."""
    assert verdict("x") is None
    assert verdict("3") is None
    assert verdict("x.shape") is None


def test_a_long_chain_shows_its_end():
    """The last steps are shown, and how many are left out."""
    found = verdict("x" + ".t()" * (MOST_STEPS + 5))
    assert (len(found.steps), found.more_steps) == (MOST_STEPS, 5)


def test_an_expression_with_very_many_parts_is_evaluated_plainly():
    """It has its value; the verdict is left out."""
    found = evaluate(" + ".join(["x"] * 300), names())
    assert float(found.value[0, 1]) == 300
    assert found.verdict is None


def test_values_are_those_of_eval():
    """Keyword arguments, stars, lambdas, comprehensions, walrus, slices, conditions, strings: all as in eval."""
    for expression in (
        "torch.cat([*xs[:1], x], dim=0)",
        "[r.sum().item() for r in x if r[0] > 0]",
        "(y := x + 1)[y > 3]",
        "x[..., 1:, None]",
        "(lambda *a, **k: (a, k))(1, *[2], b=3, **{'c': 4})",
        "{**batch}['x'][0].tolist()",
        "f'{x.sum():.1f}'",
        "x[1:3][0][0].item() if x is not None else 0",
        "not x.is_contiguous()",
        "1 < x[0, 2].item() < 3",
        "{k for k in 'ab'}",
    ):
        found, plain = evaluate(expression, names()).value, eval(expression, names())
        same = torch.equal(found, plain) if isinstance(found, torch.Tensor) else found == plain
        assert same, expression


def test_a_walrus_binds_and_nothing_else_does():
    """The namespace has the name that the expression binds, and no other new one."""
    space = names()
    before = set(space) | {"__builtins__"}
    evaluate("(y := x + 1).t()", space)
    assert set(space) - before == {"y"}


def test_each_part_runs_once_and_in_order():
    """Calls are counted, in the order in which Python makes them."""
    made = []

    def note(value):
        made.append(value)
        return torch.full((2,), float(value))

    evaluate("note(1) + note(2) * note(3)", {"note": note})
    assert made == [1, 2, 3]


def test_the_error_is_the_expressions_own():
    """Type, message and the frames behind ours are those of eval; the line of the user's function is the last."""

    def fail(_):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as caught:
        evaluate("x + fail(x.t())", {**names(), "fail": fail})
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [frame.name for frame in frames[-2:]] == ["<module>", "fail"]
    assert frames[-2].filename == "<string>"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="notes came with Python 3.11")
@pytest.mark.parametrize(
    ("expression", "note"),
    [
        ("x.t().view(-1)", "tensormagic: dims 0 and 1 cannot merge: the stride of dim 0 is 1, merging needs 3·4 = 12"),
        ("x.t().view(-1)", "; .reshape(-1) would copy 48 B"),
        ("x.t().view((2, 6))", "; .reshape(2, 6) would copy 48 B"),
    ],
)  # fmt: skip
def test_a_view_that_fails_says_which_dimensions_cannot_merge(expression, note):
    """The error is torch's; a note below it has the dimensions and what would work."""
    with pytest.raises(RuntimeError, match="view size is not compatible") as caught:
        evaluate(expression, names())
    assert note in caught.value.__notes__[0]


@pytest.mark.parametrize("expression", ["x.view(5)", "x.t().matmul(x.t())", "double(x).view(7)"])
def test_other_errors_get_no_note(expression):
    """Only strides are explained, and only where they are the reason."""
    with pytest.raises(RuntimeError) as caught:
        evaluate(expression, names())
    assert not getattr(caught.value, "__notes__", [])


def test_nothing_is_kept_alive():
    """When the evaluation is dropped, the result and what was made on the way are gone."""
    space = names()
    kept = []
    space["keep"] = lambda t: kept.append(weakref.ref(t)) or t
    found = evaluate("keep(keep(x + 1).clone())", space)
    result = weakref.ref(found.value)
    assert kept[0]() is None
    del found
    gc.collect()
    assert result() is None
    assert kept[1]() is None


def test_the_run_is_bit_for_bit_the_same():
    """A fused module computes what it computes without us; version counters and random state are untouched."""
    layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, batch_first=True).eval()
    x = torch.linspace(-1, 1, 32).reshape(1, 4, 8)
    state = torch.get_rng_state()
    with torch.no_grad():
        plain, watched = layer(x), evaluate("layer(x)", {"layer": layer, "x": x}).value
    assert torch.equal(plain, watched)
    assert x._version == 0
    assert torch.equal(state, torch.get_rng_state())


class Loud(torch.Tensor):
    """A subclass whose attributes and operators raise."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "") in {"clone", "as_subclass"}:
            return super().__torch_function__(func, types, args, kwargs or {})
        raise RuntimeError("do not touch")


def test_a_tensor_that_must_not_be_touched_is_looked_at_all_the_same():
    """A subclass's own code is not run by the probes."""
    loud = torch.arange(3.0).as_subclass(Loud)
    found = evaluate("loud.clone()", {"loud": loud}).verdict
    assert [(operand.name, operand.relation) for operand in found.operands] == [("loud", "separate")]


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
def test_what_has_no_storage_is_said_to_be_unknown():
    """A tensor whose memory torch does not show is not guessed at."""
    found = verdict("x.to_mkldnn()")
    assert (found.outcome, found.operands[0].elements) == ("unknown", None)


def test_sparse_and_meta_tensors():
    """Components of sparse tensors and storages without memory are compared as well."""
    sparse = torch.eye(3).to_sparse()
    assert verdict("s.values()", {"s": sparse.coalesce()}).outcome == "view"
    meta = torch.empty(3, 4, device="meta")
    assert verdict("m.t()", {"m": meta}).outcome == "view"
    assert verdict("m.clone()", {"m": meta}).outcome == "copy"


@pytest.mark.parametrize("expression", ["torch.empty(3)", "torch.empty_like(x)", "x.new_empty(2, 2)"])
def test_memory_that_nobody_wrote_to_is_said_to_be_such(expression):
    """The numbers in it are from before: ``empty`` copies nothing, and fills nothing."""
    (step,) = verdict(expression).steps
    assert (step.outcome, step.reason) == (
        "new",
        "nothing was written to this memory: its values are left over from earlier use",
    )


def test_the_old_constructor_takes_sizes():
    """``torch.Tensor(3)`` is three numbers that nobody wrote; ``torch.Tensor([3])`` is the number 3."""
    (sizes,), (values,) = verdict("torch.Tensor(3)").steps, verdict("torch.Tensor([3])").steps
    assert sizes.reason.startswith("it was given sizes, not values: nothing was written")
    assert values.reason == ""


@pytest.mark.parametrize("expression", ["net.weight", "batch['x'][0]", "xs[0]"])
def test_the_way_to_a_tensor_does_nothing_to_it(expression):
    """An attribute or an item that is a tensor was not made by the expression: there is nothing to be told."""
    assert verdict(expression) is None
