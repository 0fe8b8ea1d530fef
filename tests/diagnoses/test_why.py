"""Why a gradient is what it is: every reason by a real program, and the answer it must give."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn

import tensormagic as tm
from tensormagic.diagnoses.why import explain


class Net(nn.Module):
    """A body that is cut off, a middle, a head, a spare part, a frozen part."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 1)
        self.spare, self.fixed = nn.Linear(2, 2), nn.Linear(2, 2).requires_grad_(False)

    def forward(self, x):
        return self.head(self.body(x).detach())


def ask(x, namespace, name="", **more):
    return tm.why(x, name, namespace=namespace, trace=more.pop("trace", tm.trace().report), **more)


def leaf(*shape):
    return torch.ones(*(shape or (3,)), requires_grad=True)


def labels(report):
    return [step.label for step in report.path]


# -- without a traced run -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "reason", "words"),
    [
        (lambda: torch.ones(3), "does not require grad", "x does not require a gradient (`requires_grad=False`)"),
        (lambda: torch.arange(3), "integers", "x is int64: only floating-point and complex tensors have gradients"),
        (lambda: nn.Parameter(torch.ones(3), requires_grad=False), "frozen", "the parameter is frozen"),
        (leaf, "nothing known", "no backward has reached x since it was made"),
    ],
    ids=["plain", "integers", "frozen", "untouched"],
)
def test_a_tensor_alone(make, reason, words):
    """What the tensor itself says is enough."""
    x = make()
    report = ask(x, {"x": x})
    assert report.reason == reason
    assert report.answer.startswith("x.grad is None because")
    assert words in report.answer


def test_code_that_it_gives_can_be_typed():
    """A parameter of a list of modules has its number in brackets, as in Python."""
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    net[0].weight.requires_grad_(False)
    names = {"net": net, "out": [net(torch.ones(2, 4))]}
    assert ask(net[0].weight, names).remedy == ("net[0].weight.requires_grad_()",)
    retained, asked = ask(names["out"][0], names, "out[0] * 1.5").remedy
    assert retained.startswith("(out[0] * 1.5).retain_grad()")
    assert asked.startswith("torch.autograd.grad(loss, out[0] * 1.5)")


def test_what_was_detached_was_made_from_something_that_requires_a_gradient():
    """A copy that was cut off says nothing of where: the answer leaves no way out."""
    x = leaf()
    copy = (x * 2).detach()
    (rests,) = ask(copy, {"x": x, "copy": copy}).evidence
    assert "`.detach()`" in rests
    assert "detach()" in tm.inspect(copy, "copy", namespace={"x": x}).autograd.details.because


def test_an_inference_tensor():
    """Autograd never follows it."""
    with torch.inference_mode():
        x = torch.ones(3)
    assert ask(x, {"x": x}).reason == "inference tensor"


def test_memory_without_history():
    """A detached name is told whose memory it has."""
    w = leaf()
    d = w.detach()
    report = ask(d, {"w": w, "d": d})
    assert report.reason == "cut off"
    assert "d shares the memory of w, but not its history" in report.answer


def test_no_leaf():
    """Who made it, where its gradient goes on to, and how to keep it."""
    w = leaf()
    y = w * 2
    report = ask(y, {"w": w, "y": y}, "y")
    assert (
        report.answer == "y.grad is None because y is not a leaf: mul made it, and torch keeps .grad only for leaves."
    )
    assert report.evidence == ("The gradient goes on to w.",)
    assert report.remedy[0] == "y.retain_grad()  # before backward()"


def test_what_backward_begins_with():
    """Of a loss the gradient is 1: no code is given that computes just that; of a number on the way to one, it is."""
    w = leaf()
    part = (w * w).sum()
    loss = part * 2
    names = {"w": w, "part": part, "loss": loss}
    report = ask(loss, names, "loss")
    assert report.evidence[0] == "`loss.backward()` begins with loss: its gradient there is 1, whatever loss is."
    assert report.remedy == ("Ask about what loss was computed from, such as `%why w`.",)
    assert ask(part, names, "part").remedy[0] == "part.retain_grad()  # before backward()"


def test_a_layer_that_forward_does_not_use():
    """Without a traced run nothing is known of it: the commonest reasons stand first."""
    net = nn.ModuleDict({"used": nn.Linear(2, 2), "extra": nn.Linear(2, 2)})
    net["used"](torch.ones(3, 2)).sum().backward()
    report = explain(ask(net["extra"].weight, {"net": net}).facts)  # without a run that another test left
    said = "Most often `forward` does not use it, or no `backward()` has run yet: check these two first."
    assert (report.reason, report.path, report.remedy[0]) == ("nothing known", (), said)


def test_no_backward_yet():
    """What was computed from it, by the names on the way."""
    w = leaf()
    y = w * 2
    loss = y.pow(2).sum()
    report = ask(w, {"w": w, "y": y, "loss": loss})
    assert report.answer == (
        "w.grad is None because no backward has reached w since it was made or cleared: loss leads back to it, through "
        "y and pow."
    )
    assert (labels(report), report.remedy) == (["w", "y", "pow", "loss"], ("loss.backward()",))


def test_one_of_several_views_that_was_written_to():
    """Torch refuses to say what made it: the tensor that it is a view of leads back, and others are no worse for it."""
    x = torch.ones(4, requires_grad=True)
    whole = x * 2
    part = whole.chunk(2)[0]
    with torch.no_grad():
        part.mul_(2)
    names = {"x": x, "part": part, "whole": whole}
    assert "whole leads back to it" in ask(x, names).answer
    assert "part leads back to it" in ask(x, names, loss=part).answer


def test_a_result_that_is_no_number():
    """Backward on it needs a sum."""
    w = leaf()
    y = w * 2
    assert ask(w, {"w": w, "y": y}).remedy == ("y.sum().backward()",)


def test_cleared_since():
    """The graph was gone through, and nothing is there."""
    w = leaf()
    loss = (w * w).sum()
    loss.backward()
    w.grad = None
    report = ask(w, {"w": w, "loss": loss})
    assert report.reason == "cleared"
    assert "a backward went through loss: it was cleared afterwards" in report.answer


def test_a_gradient_that_was_returned():
    """Untraced, it may have been cleared as well; a trace has seen that ``autograd.grad`` was called."""
    w = leaf()
    names = {"w": w}
    with tm.trace(namespace=names) as trace:
        names["loss"] = (w * w).sum()
        torch.autograd.grad(names["loss"], w)
    assert "it was cleared afterwards, or the gradients were returned by `autograd.grad`" in ask(w, names).answer
    found = ask(w, names, trace=trace)
    assert found.reason == "returned"
    assert found.answer.startswith("w.grad is None because its gradient was returned: `autograd.grad` (")


def test_a_parameter_that_was_replaced():
    """The gradient went to the one that the loss was computed from."""
    net = nn.Linear(3, 1)
    names = {"net": net}
    with tm.trace(namespace=names) as trace:
        loss = net(torch.ones(2, 3)).sum()
        net.weight = nn.Parameter(torch.zeros(1, 3))
        loss.backward()
    found = ask(net.weight, names, "net.weight", trace=trace)
    assert found.reason == "replaced"
    assert "the gradients went to the tensor before it; or it was cleared since" in found.answer


class Product(torch.autograd.Function):
    """Forgets one of its two gradients."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(w)
        return x * w

    @staticmethod
    def backward(ctx, grad_output):
        (w,) = ctx.saved_tensors
        return grad_output * w, None


def test_a_function_that_returns_none():
    """Untraced, it may be that or cleared since; a trace has seen which."""
    w, x = leaf(), leaf()
    loss = Product.apply(x, w).sum()
    loss.backward()
    names = {"w": w, "x": x, "loss": loss}
    assert "Product.backward returned None for it, or it was cleared afterwards" in ask(w, names).answer
    with tm.trace(namespace=names) as trace:
        Product.apply(x, w).sum().backward()
    found = tm.why(w, trace=trace, namespace=names)
    assert found.answer == "w.grad is None because Product.backward returns None for it."


def test_what_a_function_returns_none_for_is_told_of_that_alone():
    """The other weight, whose name is a part of many words, was cleared."""
    w, x, a = leaf(), leaf(), leaf()
    names = {"w": w, "x": x, "a": a}
    with tm.trace(namespace=names) as trace:
        (Product.apply(x, w) * a).sum().backward()
        a.grad = None
    assert tm.why(w, trace=trace, namespace=names).reason == "cut off"
    assert tm.why(a, trace=trace, namespace=names).reason == "cleared"


def test_not_part_of_the_loss():
    """The loss that was given does not depend on it."""
    w, v = leaf(), leaf()
    loss = (v * v).sum()
    report = ask(w, {"w": w, "v": v, "loss": loss}, loss=loss)
    assert report.answer == "w.grad is None because loss was not computed from w."


def test_a_gradient_that_is_there():
    """Nothing is wrong with it."""
    w = leaf()
    (w * w).sum().backward()
    report = ask(w, {"w": w})
    assert (report.reason, report.facts.norm) == ("fine", pytest.approx(2 * 3**0.5))


def test_zeros_without_a_trace():
    """Honest: either backward brought them, or they were set, in one of two ways."""
    w = leaf()
    (w * 0).sum().backward()
    report = ask(w, {"w": w})
    assert report.reason == "zero"
    assert report.answer == "Every element of w.grad is exactly zero."
    assert report.evidence[0] == (
        "Either backward brought zeros (a dead ReLU, a mask, a factor of zero, a hook), or it was set to zero: "
        "`zero_grad(set_to_none=False)` and `grad.zero_()` do that."
    )


def wipe(grad):
    return grad * 0


def wipe_late(w):
    w.grad.zero_()


@pytest.mark.parametrize("late", [False, True], ids=["tensor hook", "post-accumulate hook"])
def test_a_hook_on_the_tensor_may_have_made_the_zeros(late, request):
    """It is named first, as `%tensor` lists it, and what else could be follows."""
    w = leaf()
    w.register_post_accumulate_grad_hook(wipe_late) if late else w.register_hook(wipe)
    (w * 2).sum().backward()
    report = ask(w, {"w": w})
    function = wipe_late if late else wipe
    place = f"test_why.py, line {function.__code__.co_firstlineno}"
    listed = f"`{function.__name__}` {request.node.callspec.id} ({place})"
    assert report.answer == f"Every element of w.grad is exactly zero: a hook on w may have made zeros of it, {listed}."
    assert report.facts.hooks == tm.inspect(w, "w", namespace={"w": w}).autograd.details.hooks
    assert report.evidence[0].startswith("Otherwise backward brought zeros")
    assert report.remedy[0].startswith("Look at what the hook returns")


def test_a_hook_that_a_run_met():
    """No op is blamed alone whose gradient a hook erased: one on the leaf, one on the way, one after the leaf."""
    w, v, u = leaf(), leaf(), leaf()
    w.register_hook(wipe)
    u.register_post_accumulate_grad_hook(wipe_late)
    names = {"w": w, "v": v, "u": u}
    with tm.trace(namespace=names) as trace:
        made = v * 3
        made.register_hook(wipe)
        ((w * 2) + made + u).sum().backward()
    on_leaf, on_way, after = (ask(each, names, name, trace=trace.report) for name, each in names.items())
    assert "exactly zero: a hook on w, `wipe` tensor hook (test_why.py, line " in on_leaf.answer
    assert "may have made zeros of what mul " in on_leaf.answer
    assert "a hook (test_why.py, line " in on_way.answer
    assert "may have made zeros of what add " in on_way.answer
    assert (on_leaf.reason, on_way.reason, after.reason) == ("zero", "zero", "cleared")
    assert after.evidence[0].startswith("A hook may have done that: `wipe_late` post-accumulate hook (test_why.py")


# -- with one -------------------------------------------------------------------------------------------------------


@pytest.fixture(name="net")
def traced_net():
    """A net after two traced passes, the report of these, and its namespace."""
    torch.manual_seed(0)
    net = Net()
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(2):
            net(torch.ones(3, 4)).sum().backward()
    return net, trace.report


def test_a_cut(net):
    """The call, its line, both sides of it, and what to write."""
    net, trace = net
    report = ask(net.body.weight, {"net": net}, trace=trace)
    assert report.reason == "cut off"
    assert report.answer.startswith("net.body.weight.grad is None because `.detach()` (test_why.py, line ")
    assert report.location.text == "return self.head(self.body(x).detach())"
    assert labels(report) == ["net.body.weight", "addmm", ".detach()", "addmm", "sum", "backward"]
    assert [step.kind for step in report.path if step.bad] == ["cut"]
    assert "`return self.head(self.body(x))`" in report.remedy[0]


def test_the_parameters_of_a_module_by_reason(net):
    """Each group once, with what it is, and modules that are wholly in it as such."""
    net, trace = net
    report = ask(net, {"net": net}, trace=trace)
    assert {group.reason: (group.names, group.count) for group in report.groups} == {
        "cut off": (("net.body",), 2),
        "accumulated": (("net.head",), 2),
        "unused": (("net.spare",), 2),
        "frozen": (("net.fixed",), 2),
    }
    assert report.answer == "6 of the 8 parameters of net have no gradient, or a faulty one."


def test_a_module_whose_gradients_add_up():
    """Where that is all that is wrong, the sentence says it, and what to do is there."""
    net = torch.nn.Linear(2, 1)
    net.bias.requires_grad_(False)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            net(torch.ones(4, 2)).sum().backward()
    report = ask(net, {"net": net}, trace=trace.report)
    assert report.answer == "1 of the 2 parameters of net holds the gradients of several passes."
    assert "zero" in " ".join(report.remedy)


def test_two_passes_without_clearing(net):
    """Twice what one pass brings."""
    net, trace = net
    report = ask(net.head.bias, {"net": net}, trace=trace)
    assert "net.head.bias.grad is 2 times what one pass gives" in report.answer


def test_an_unused_parameter(net):
    """No path leads to it."""
    net, trace = net
    assert ask(net.spare.weight, {"net": net}, trace=trace).reason == "unused"


def test_zeros_that_came():
    """The operation that got a gradient and sent zeros on."""
    w = torch.full((3,), -1.0, requires_grad=True)
    with tm.trace(namespace={"w": w}) as trace:
        torch.relu(w * 2).sum().backward()
    report = ask(w, {"w": w}, trace=trace.report)
    assert report.answer.startswith("Every element of w.grad is exactly zero because relu (test_why.py, line ")
    assert "all of its input lies where its slope is zero" in report.answer
    assert [(step.label, step.norm) for step in report.path if step.bad] == [("relu", pytest.approx(3**0.5))]


def test_zeros_that_were_set():
    """A pass brought more, so somebody set it."""
    w = leaf()
    with tm.trace(namespace={"w": w}) as trace:
        (w * w).sum().backward()
    w.grad.zero_()
    report = ask(w, {"w": w}, trace=trace.report)
    assert "it was set to zero: the last pass gave it a gradient of norm 3.46" in report.answer


def test_a_gradient_taken_away():
    """How many passes brought one, and the last norm."""
    w = leaf()
    with tm.trace(namespace={"w": w}) as trace:
        (w * w).sum().backward()
    w.grad = None
    report = ask(w, {"w": w}, trace=trace.report)
    assert "1 pass brought it a gradient, the last of norm 3.46, and it was set to None since" in report.answer


def test_a_birth_of_infinity():
    """The first operation that made one, and the diagnosis's own words besides."""
    w, other = torch.zeros(3, requires_grad=True), leaf()
    with tm.trace(namespace={"w": w, "other": other}) as trace:
        other.sum().backward()
        w.sqrt().sum().backward()
    report = ask(w, {"w": w}, trace=trace.report)
    assert "w.grad holds infinity (all 3 elements) because sqrt (test_why.py, line " in report.answer
    assert report.answer.endswith("produced the first in pass 2.")
    assert "torch.sqrt(w + 1e-8)" in report.remedy[0]


def test_a_forward_that_was_not_finite_already():
    """Where the forward went wrong is the answer; what backward made of it comes second."""
    w, x = torch.zeros(3, requires_grad=True), torch.ones(3)
    with tm.trace(namespace={"w": w, "x": x}) as trace:
        scores = (w * x).log()  # the forward
        torch.log_softmax(scores, 0)[0].backward()
    report = ask(w, {"w": w}, trace=trace.report)
    (fault,) = [one for one in trace.report.findings if one.code == "TM401"]
    assert report.answer == f"w.grad holds NaN (all 3 elements): {fault.message}"
    assert report.location.text.endswith("# the forward")
    assert report.evidence[0].startswith("The first NaN of the backward: log_softmax (test_why.py, line ")
    assert report.remedy == (fault.remedy,)


def test_clipping():
    """Less than what came: something scaled it down."""
    w = leaf()
    with tm.trace(namespace={"w": w}) as trace:
        (10 * w).sum().backward()
        torch.nn.utils.clip_grad_norm_([w], 1.0)
    report = ask(w, {"w": w}, trace=trace.report)
    assert report.reason == "scaled down"
    assert "clip_grad_norm_" in report.answer


def test_a_scaler_s_factor():
    """Gradients before unscale_ carry the scale."""
    w, scaler = leaf(), torch.amp.GradScaler("cpu", init_scale=1024.0)
    with tm.trace(namespace={"w": w}) as trace:
        scaler.scale((w * w).sum()).backward()
    report = ask(w, {"w": w, "scaler": scaler}, trace=trace.report)
    assert report.answer.startswith("w.grad is 1024 times the gradient of the loss")
    optimizer = torch.optim.SGD([w], lr=0.1)
    scaler.unscale_(optimizer)
    assert ask(w, {"w": w, "scaler": scaler}, trace=trace.report).reason == "fine"


def test_asked_for_others():
    """autograd.grad leads past it."""
    w, v = leaf(), leaf()
    with tm.trace(namespace={"w": w, "v": v}) as trace:
        torch.autograd.grad((w * v).sum(), [v])
    report = ask(w, {"w": w, "v": v}, trace=trace.report)
    assert report.reason == "not asked for"


def test_a_refused_backward():
    """Torch refused, and TM306 says why."""
    w = leaf()
    trace = tm.trace(namespace={"w": w})
    with pytest.raises(RuntimeError), trace:
        (w * 2).detach().sum().backward()
    report = ask(w, {"w": w}, trace=trace.report)
    assert "`.detach()`" in report.answer


def test_a_tensor_in_between_has_its_norm():
    """What came to it in the last pass is told, although nothing keeps it."""
    w = leaf()
    names = {"w": w}
    with tm.trace(namespace=names) as trace:
        names["y"] = y = w * 2
        (y * y).sum().backward()
    report = ask(y, names, "y", trace=trace.report)
    assert "In the last pass its gradient had norm 6.93." in report.evidence


# -- the call -------------------------------------------------------------------------------------------------------


def test_the_last_trace_is_found():
    """A script need not hand it over; it is not kept for that."""
    w = leaf()
    with tm.trace(namespace={"w": w}) as trace:
        (w * w).sum().backward()
    w.grad = None
    assert "1 pass brought it a gradient" in tm.why(w, namespace={"w": w}).answer
    del trace
    gc.collect()
    assert tm.why(w, namespace={"w": w}).reason == "nothing known"


def test_nothing_is_kept_and_nothing_changed():
    """The tensor may go, and its flags, gradient and version are what they were."""
    w = leaf()
    loss = (w * w).sum()
    before = w._version, w.requires_grad, w.grad, loss.grad_fn.next_functions
    tm.why(w, loss=loss, namespace={"w": w, "loss": loss})
    assert (w._version, w.requires_grad, w.grad, loss.grad_fn.next_functions) == before
    watched = weakref.ref(w)
    del w, loss, before
    gc.collect()
    assert watched() is None


@pytest.mark.parametrize(
    ("given", "name", "words"),
    [(None, "x.grad", r"ask about the tensor itself: why\(x\)"), (3, "n", "n is an int, not a tensor")],
)
def test_what_has_no_gradient(given, name, words):
    """Refused with what would work."""
    with pytest.raises(tm.NotATensorError, match=words):
        tm.why(given, name)
    with pytest.raises(tm.TensorMagicError, match="a trace or its report"):
        tm.why(leaf(), trace=3)


def test_a_module_without_parameters():
    """There is nothing to ask about."""
    assert "has no parameters" in tm.why(nn.ReLU(), "act").answer


# -- what no traced run saw -----------------------------------------------------------------------------------------


@pytest.fixture(name="other_run")
def traced_without_w():
    """A run in which a NaN is born, none of which has to do with ``w``."""
    x = torch.zeros(3, requires_grad=True)
    with tm.trace(namespace={"x": x}) as trace:
        (x.sqrt() * 0).sum().backward()
    return trace


@pytest.mark.parametrize("name", ["w", "x"])
def test_a_tensor_that_the_run_did_not_see(other_run, name):
    """Another tensor's line is not blamed, be it that both have the same name."""
    w = torch.zeros(3, requires_grad=True)
    (w.sqrt() * 0).sum().backward()
    report = ask(w, {name: w}, trace=other_run)
    assert report.answer == f"{name}.grad holds NaN (all 3 elements)."
    assert report.evidence == (f"The last traced run did not see {name}.",)
    assert (report.location, report.path, report.source) == (None, (), "")
    assert report.remedy == ("Run the cell under `%%tracegrad`: it finds the line that made the first.",)


def test_a_model_made_anew_after_the_run(net):
    """Its parameters have the names of the old one's, and nothing that the run saw is told of them."""
    fresh, (old, trace) = Net(), net
    assert ask(fresh, {"net": fresh}, trace=trace).groups[0].reason == "nothing known"
    assert ask(old, {"net": old}, trace=trace).groups[0].reason == "cut off"


def test_a_refused_run_that_did_not_see_it():
    """Torch's refusal is about another tensor."""
    v, w = leaf(), leaf()
    trace = tm.trace(namespace={"v": v})
    with pytest.raises(RuntimeError), trace:
        (v * 2).detach().sum().backward()
    report = ask(w, {"w": w}, trace=trace)
    assert (report.reason, report.evidence[-1]) == ("nothing known", "The last traced run did not see w.")


def test_what_was_frozen_while_the_forward_ran():
    """It took part, and what was recorded leads not back to it: it is not said to be unused, and is to run again."""
    net, x = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)), torch.ones(3, 2)
    net[0].weight.requires_grad_(False)
    with tm.trace(namespace={"net": net, "x": x}) as trace:
        loss = net(x).sum()
        net[0].weight.requires_grad_(True)
        x.requires_grad_(True)
        loss.backward()
    for name, each in {"net.0.weight": net[0].weight, "x": x}.items():
        report = ask(each, {"net": net, "x": x}, name, trace=trace)
        assert any("only after the forward" in rests for rests in report.evidence)
        assert "took part in nothing" not in report.answer


def test_a_birth_beside_the_way():
    """A NaN born on another branch of the same graph did not come here."""
    w, other = leaf(), torch.zeros(3, requires_grad=True)
    with tm.trace(namespace={"w": w, "other": other}) as trace:
        (w * 2 + other.sqrt()).sum().backward()
    w.grad.fill_(float("nan"))
    report = ask(w, {"w": w}, trace=trace)
    assert report.answer == "w.grad holds NaN (all 3 elements)."


def test_a_model_of_which_a_part_is_frozen():
    """Nothing is amiss, and the answer does not say that all have gradients."""
    net = nn.Sequential(nn.Linear(2, 2).requires_grad_(False), nn.Linear(2, 1))
    with tm.trace(namespace={"net": net}) as trace:
        net(torch.ones(3, 2)).sum().backward()
    assert ask(net, {"net": net}, trace=trace).answer == (
        "Nothing is wrong with the gradients of net that are there; 2 parameters are frozen: net.0."
    )


def test_a_model_whose_gradients_are_in_order_and_whose_training_is_not():
    """What else the run found is said: here, that it trains in eval mode."""
    net = nn.Sequential(nn.Linear(2, 2), nn.Dropout(), nn.Linear(2, 1)).eval()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for _ in range(3):
            optimizer.zero_grad()
            net(torch.ones(3, 2)).sum().backward()
            optimizer.step()
    report = ask(net, {"net": net}, trace=trace)
    assert report.answer == "Nothing is wrong with the gradients of net."
    assert [line.partition(":")[0] for line in report.evidence] == ["TM606"]
    assert "eval" in report.evidence[0]
    assert "TM606" in str(report)


@pytest.mark.parametrize(("scale", "reason", "size"), [(0.05, "vanishing", "small"), (30.0, "exploding", "large")])
def test_a_gradient_that_vanishes_or_explodes(scale, reason, size):
    """What the run found is the answer: a gradient is not fine that the same notebook warns of."""
    squash = nn.Sigmoid if reason == "vanishing" else nn.Identity
    net = nn.Sequential(*(part for _ in range(8) for part in (nn.Linear(8, 8, bias=False), squash())))
    with torch.no_grad():
        for layer in net[::2]:
            layer.weight.copy_(torch.eye(8) * scale)
    with tm.trace(namespace={"net": net}) as trace:
        net(torch.ones(3, 8)).sum().backward()
    code, message = next((one.code, one.message) for one in trace.report.findings if one.code in {"TM403", "TM404"})
    report = ask(net[0].weight, {"net": net}, trace=trace)
    assert (report.reason, code) == (reason, "TM403" if reason == "vanishing" else "TM404")
    assert report.answer.startswith(f"net.0.weight.grad is very {size} (norm ")
    assert report.answer.endswith(message)
    assert report.remedy
    whole = ask(net, {"net": net}, trace=trace)
    assert "Nothing is wrong" not in whole.answer
    assert f"a gradient that {'vanishes' if reason == 'vanishing' else 'explodes'}." in whole.answer
    assert not any(line.startswith(code) for line in whole.evidence), "it is said already"


def test_a_model_of_which_all_is_amiss_for_one_reason():
    """What to do about it is said once, by what holds it: the model, or the tensor itself."""
    net = nn.Linear(2, 1)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(2):
            net(torch.ones(3, 2)).sum().backward()
    report = ask(net, {"net": net}, trace=trace)
    assert report.reason == "accumulated"
    assert report.remedy[0].startswith("net.zero_grad()"), "no optimizer is there that would clear it"
    with tm.trace(namespace={"net": net}) as trace:
        net(torch.full((1, 2), 3.0)).sum().backward()
    says = ask(net.bias, {"net": net}, trace=trace).answer
    several = "net.bias.grad holds the sum of several passes (norm 7; the last one alone gave 1)"
    assert says == f"{several}: it was not zeroed in between."
    w = leaf()
    with tm.trace(namespace={"w": w}) as trace:
        for _ in range(2):
            w.sum().backward()
    assert ask(w, {"w": w}, trace=trace).remedy[0].startswith("w.grad = None")


def test_the_optimizer_has_its_own_name():
    """What to do about gradients is said with the optimizer that holds them, with or without a traced run."""
    net, other = nn.Linear(2, 1), nn.Linear(2, 1)
    names = {"net": net, "adam": torch.optim.Adam(other.parameters()), "sgd": torch.optim.SGD(net.parameters())}
    for _ in range(2):
        net(torch.ones(3, 2)).sum().backward()
    with tm.trace(namespace=names) as trace:
        net(torch.ones(3, 2)).sum().backward()
    assert ask(net.weight, names, trace=trace).remedy[0].startswith("sgd.zero_grad()")
    names["sgd"].zero_grad(set_to_none=False)
    assert "`sgd.zero_grad()`" in ask(net.weight, names, trace=trace).remedy[0]


def test_a_loop_variable_is_no_name_of_a_parameter_of_the_model():
    """What a loop over the parameters leaves behind is a name of the last one; it is called by its way in the model."""
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    for p in net.parameters():
        p.grad = torch.ones_like(p)
    report = ask(net, {"net": net, "p": p}, "net")
    assert [group.names for group in report.groups] == [("net",)]


def test_hooks_saw_a_gradient_first():
    w = torch.ones(3, requires_grad=True)
    for _ in range(20):
        w.register_hook(lambda gradient: gradient / 2)
    (w * 2).sum().backward()
    (seen,) = [words for words in tm.why(w, "w", namespace={"w": w}).evidence if "hook" in words.lower()]
    assert seen.startswith("Hooks of w saw it first: `<lambda>` tensor hook (test_why.py, line ")
    assert seen.endswith("put there 12 times or more.")
