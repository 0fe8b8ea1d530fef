"""One call of a custom Function against differences of its forward; nothing that is given is another after it."""

from __future__ import annotations

import pytest
import torch

import tensormagic as tm
from tensormagic.errors import TensorMagicError


class Scale(torch.autograd.Function):
    """As it should be; the factor gets its gradient too."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x, factor)
        return x * factor

    @staticmethod
    def backward(ctx, grad_output):
        x, factor = ctx.saved_tensors
        return grad_output * factor, (grad_output * x).sum()


class Ignoring(torch.autograd.Function):
    """Forgets the chain rule."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad_output):
        return torch.full_like(grad_output, 2.0)


class Cubed(torch.autograd.Function):
    """A wrong derivative, with a context that is set up apart."""

    @staticmethod
    def forward(x, power):
        return x**power

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 2 * x * grad_output, None


class Squared(torch.autograd.Function):
    """Squares what arrives."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.square()


class Silent(torch.autograd.Function):
    """Has a gradient, and returns none."""

    @staticmethod
    def forward(ctx, x, y):
        return x + y

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None


class Narrow(torch.autograd.Function):
    """Computes in float32 whatever it is given."""

    @staticmethod
    def forward(ctx, x):
        return x.float() * 2

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 2


class Failing(torch.autograd.Function):
    """Raises."""

    @staticmethod
    def forward(ctx, x):
        raise ValueError("no such thing")


def states(report):
    """Return the state of each question."""
    return {probe.question: probe.state for probe in report.probes}


def test_a_function_that_is_right():
    """Each argument with a gradient is asked, the class and its apply are the same."""
    x, factor = torch.randn(3, 2), torch.tensor(2.0)
    for given in (Scale, Scale.apply):
        report = tm.check(given, x, factor)
        assert states(report) == {"what arrives": "fine", "gradient of x": "fine", "gradient of factor": "fine"}
        assert (report.findings, report.model, report.parameters) == ((), "Scale", 2)
        assert "3 questions found nothing wrong" in str(report)


def test_a_function_that_ignores_what_arrives():
    """It is an error, at the line that returns."""
    report = tm.check(Ignoring, torch.randn(3))
    (found,) = report.findings
    assert (found.code, found.severity, found.subject) == ("TM318", "error", "Ignoring")
    assert "twice that gradient changed nothing" in found.message
    assert found.location.text == "return torch.full_like(grad_output, 2.0)"
    assert states(report)["what arrives"] == "wrong"


@pytest.mark.parametrize(
    ("kind", "given", "words"),
    [
        (Cubed, (torch.randn(4), 3), "for x, differences give"),
        (Squared, (torch.randn(4),), "is not proportional to the gradient that it is given: twice that gives 4 times"),
        (Silent, (torch.randn(4), torch.randn(4)), "for y, differences give"),
        (Cubed, (torch.randn(600), 3), "for x, differences give"),
    ],
    ids=["derivative", "not linear", "none", "large"],
)
def test_functions_that_are_wrong(kind, given, words):
    """A warning: an estimate may be meant to differ."""
    (found,) = tm.check(kind, *given).findings
    assert (found.code, found.severity) == ("TM318", "warning")
    assert words in found.message


def test_only_what_asks_is_asked_where_something_does():
    """A tensor that requires a gradient says which arguments are meant."""
    x, y = torch.randn(3, requires_grad=True), torch.randn(3)
    assert set(states(tm.check(Silent, x, y))) == {"what arrives", "gradient of x"}


@pytest.mark.parametrize(("kind", "words"), [(Narrow, "float32"), (Failing, "no such thing")])
def test_what_cannot_be_asked_is_said(kind, words):
    """Differences of what is computed in float32 say nothing; what a forward raises is the answer."""
    report = tm.check(kind, torch.randn(3))
    assert words in report.error
    assert (report.findings, {probe.state for probe in report.probes}) == ((), {"unknown"})


def test_nothing_that_is_given_changes():
    """Tensors, their gradients and flags, and random numbers are as before."""
    x = torch.randn(3, requires_grad=True)
    x.square().sum().backward()
    before, gradient, version = x.detach().clone(), x.grad.clone(), x._version
    state = torch.get_rng_state()
    tm.check(Scale, x, torch.tensor(2.0))
    assert torch.equal(x, before)
    assert torch.equal(x.grad, gradient)
    assert (x._version, x.requires_grad, x.dtype) == (version, True, torch.float32)
    assert torch.equal(torch.get_rng_state(), state)


def test_arguments_without_a_tensor_are_refused():
    """There is nothing to be varied."""
    with pytest.raises(TensorMagicError, match="a floating-point tensor"):
        tm.check(Scale, 1, 2)


class Raising(torch.autograd.Function):
    """A backward that does not come to its end."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad_output):
        raise ValueError("no such size")


@pytest.mark.parametrize(
    ("kind", "x", "words"),
    [
        (Raising, torch.ones(2), "backward raised ValueError: no such size"),
        (Ignoring, torch.tensor([1.0, float("nan")]), "holds NaN or inf"),
    ],
)
def test_what_cannot_be_compared_is_not_called_fine_or_wrong(kind, x, words):
    """It is not known, with the reason; and no finding comes of it."""
    report = tm.check(kind, x)
    assert [(probe.question, probe.state) for probe in report.probes] == [("call", "unknown")]
    assert words in report.probes[0].answer
    assert report.findings == ()
    assert "Nothing could be asked." in str(report)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((), "given: nothing"),
        ((torch.arange(3), 2.0), "given: torch.int64 of 3 elements and float"),
        ((torch.ones(2, dtype=torch.complex64),), "given: torch.complex64 of 2 elements"),
    ],
)
def test_arguments_of_which_none_can_be_varied_are_named(given, words):
    """What was given, and what is needed."""
    with pytest.raises(TensorMagicError, match=words):
        tm.check(Scale, *given)


class Dropped(torch.autograd.Function):
    """Draws what it keeps."""

    @staticmethod
    def forward(ctx, x):
        mask = (torch.rand_like(x) > 0.5).to(x)
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.saved_tensors[0]


class Kinked(torch.autograd.Function):
    """Has a kink at zero, and a wrong slope where that is asked for."""

    @staticmethod
    def forward(ctx, x, slope):
        ctx.save_for_backward(x)
        ctx.slope = slope
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, grad_output):
        return ctx.slope * grad_output * (ctx.saved_tensors[0] > 0), None


class Few(Scale):
    """Returns one gradient of two."""

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


class Strict(Dropped):
    """Takes float32 alone."""

    @staticmethod
    def forward(ctx, x):
        if x.dtype is not torch.float32:
            raise TypeError("float32 only")
        return x * 2


def test_what_a_forward_draws_is_the_same_in_each_call():
    assert set(states(tm.check(Dropped, torch.randn(6))).values()) == {"fine"}


@pytest.mark.parametrize(("slope", "state"), [(1.0, "fine"), (2.0, "wrong")])
def test_a_kink_is_asked_beside_it(slope, state):
    report = tm.check(Kinked, torch.tensor([-1.0, 0.0, 2.0]), slope)
    assert states(report)["gradient of x"] == state
    assert report.function.arguments[0].kink == (state == "fine")


def test_remedies_of_a_call_that_fails():
    (few,) = tm.check(Few, torch.randn(3), torch.tensor(2.0)).probes
    assert (few.state, few.remedy) == ("wrong", "One gradient for each argument of forward: None for what has none")
    (strict,) = tm.check(Strict, torch.randn(3)).probes
    assert (strict.state, strict.answer) == ("unknown", "forward raised TypeError: float32 only in float64")
