"""Why backwards raise, as collected: which write, which pass, which return; and that nothing is kept or changed."""

from __future__ import annotations

import gc
import traceback
import weakref

import pytest
import torch
from torch import nn

import tensormagic as tm
from tensormagic.collectors.autograd_errors.backward_errors import Culprits
from tensormagic.collectors.graphs.in_place import MOST_WRITES, WriteBook
from tensormagic.collectors.where.source import SourceLines
from tensormagic.reports import Location


def failed(program, **namespace):
    """Return the report of a program that raises under a trace, and what it raised."""
    trace = tm.trace(namespace=namespace)
    with pytest.raises(RuntimeError) as raised, trace:
        program()
    return trace.report, raised.value


def modified(program, **namespace):
    return failed(program, **namespace)[0].failure.backward.modified


def freed(program, **namespace):
    return failed(program, **namespace)[0].failure.backward.freed


def test_of_several_writes_the_first_after_the_saving_is_blamed():
    """What was written before it was saved is not, although it lies at the same address."""

    def program():
        x = torch.randn(3, requires_grad=True)
        y = torch.zeros(3)
        y += 1  # before
        z = x * y
        y += 2  # the first
        y += 3  # the second
        z.sum().backward()

    found = modified(program)
    assert (found.op, found.slot, found.name, found.saved_version, found.version) == ("mul", "other", "y", 1, 3)
    assert [write.location.text for write in found.writes] == ["y += 2  # the first", "y += 3  # the second"]
    assert [write.version for write in found.writes] == [2, 3]


def test_a_write_through_a_view_is_one_to_the_whole():
    """A view counts its writes on the counter of what it looks at."""

    def program():
        x = torch.randn(2, 3, requires_grad=True)
        y = x.exp()
        y[:, 1:].mul_(2)
        y.sum().backward()

    (write,) = modified(program).writes
    assert (write.call, write.version) == ("mul_", 1)


def test_the_node_that_backward_came_to_is_told_and_the_others_are_counted():
    """Three nodes had saved it; backward comes to the last of them first."""

    def program():
        x = torch.randn(3, requires_grad=True)
        y = x.exp()
        loss = (y.sin() + y.square()).sum()
        y.zero_()
        loss.backward()

    found = modified(program)
    assert found.op in {"sin", "pow"}
    assert found.others == 2


def test_memory_of_a_dead_tensor_is_not_taken_for_that_of_another():
    """A tensor that was written to has died; the one that is saved may stand where it stood."""

    def program():
        x = torch.randn(1000, requires_grad=True)
        for _ in range(20):
            torch.zeros(1000).add_(1)
        y = x.exp()
        y.add_(5)
        y.sum().backward()

    assert [write.location.text for write in modified(program).writes] == ["y.add_(5)"]


def test_an_optimizer_that_did_not_move_the_parameter_is_not_blamed():
    """It has the parameter, which had no gradient at its step."""
    net = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1))
    idle, mover = (torch.optim.SGD(net.parameters(), lr=0.1) for _ in range(2))

    def program():
        loss = net(torch.randn(4, 2)).exp().sum()
        idle.step()  # nothing has a gradient yet
        loss.backward(retain_graph=True)
        mover.step()
        loss.backward()

    assert [write.location.text for write in modified(program, net=net).writes] == ["mover.step()"]


def test_a_step_with_a_closure_does_not_hide_what_the_closure_writes():
    """LBFGS runs forward and backward inside its step."""
    weight = nn.Parameter(torch.randn(3))
    optimizer = torch.optim.LBFGS([weight])

    def closure():
        y = weight.exp()
        y += 1  # inside
        loss = y.sum()
        loss.backward()
        return loss

    assert [write.location.text for write in modified(lambda: optimizer.step(closure)).writes] == ["y += 1  # inside"]


def test_a_step_that_failed_does_not_hide_what_comes_after():
    """Torch calls no hook after a step that raised."""
    weight = nn.Parameter(torch.randn(3))

    class Broken(torch.optim.SGD):
        def step(self):
            raise ValueError

    optimizer = Broken([weight], lr=0.1)

    def program():
        with pytest.raises(ValueError):
            optimizer.step()
        (weight * 2).sum().backward()
        y = weight.exp()
        y += 1
        y.sum().backward()

    assert [write.location.text for write in modified(program).writes] == ["y += 1"]


def test_the_book_of_writes_is_bounded_and_keeps_no_tensor():
    """Plain numbers, the oldest forgotten first; lists are taken apart, what has no memory is passed over."""
    book, here = WriteBook(SourceLines()), __import__("sys")._getframe()
    tensor = torch.zeros(3)
    low = tensor.data_ptr()
    for _ in range(MOST_WRITES + 10):
        book.note("add_", [tensor, torch.zeros(0)], 5, here)
    book.note("add_", torch.zeros(3).to_sparse(), 5, here)
    number = torch.autograd._get_sequence_nr()
    assert len(book.since(number - 1, low, low + 12)) == MOST_WRITES // 2
    alive = weakref.ref(tensor)
    del tensor
    assert alive() is None


def test_a_failed_backward_keeps_nothing_alive():
    """Neither the tensors, nor their graph, nor the frame that called."""
    gone = []

    def program():
        x = torch.randn(3, requires_grad=True)
        y = x.exp()
        y += 1
        gone.extend((weakref.ref(x), weakref.ref(y)))
        y.sum().backward()

    report, error = failed(program)
    assert report.failure.backward.modified is not None
    error.__traceback__ = None
    del error
    gc.collect()
    assert [reference() for reference in gone] == [None, None]


@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_names_are_looked_up_without_keeping_what_they_name():
    """A function that runs on frees what it lets go of, although its names were looked up."""
    gone = []

    def program():
        y = torch.ones(3, requires_grad=True) * 2
        y.sum().backward()
        assert y.grad is None or y.grad
        gone.append(weakref.ref(y))
        _ = y.grad
        del y
        assert gone[0]() is None

    with tm.trace(namespace={}) as trace:
        program()
    assert [read.name for read in trace.report.silent_errors.reads] == ["y", "y"]


@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_what_is_raised_is_what_is_raised_without_a_trace():
    """Type, message and the lines of the traceback, for each fault."""
    x = torch.randn(3, requires_grad=True)

    def changed():
        y = x.exp()
        y += 1
        y.sum().backward()

    def twice():
        y = x.exp().sum()
        y.backward()
        y.backward()

    def vector():
        (x * 2).backward()

    def leaf():
        x.add_(1)

    for program in (changed, twice, vector, leaf):
        with pytest.raises(RuntimeError) as plain:
            program()
        _, traced = failed(program, x=x)
        assert (type(traced), str(traced)) == (plain.type, str(plain.value))
        inside = [frame.line for frame in traceback.extract_tb(traced.__traceback__)]
        lines = [frame.line for frame in traceback.extract_tb(plain.value.__traceback__)][1:]
        assert inside[-len(lines) :] == lines


def test_versions_and_results_are_those_of_an_untraced_run():
    """Looking at writes writes nothing, and bumps no version."""

    def program():
        torch.manual_seed(1)
        x = torch.randn(3, requires_grad=True)
        buffer = torch.zeros(3)
        buffer.data.add_(1)
        buffer += 1
        torch.add(buffer, 1, out=buffer)
        y = (x * buffer).clamp_(0, 1)
        y.sum().backward()
        return buffer._version, buffer.tolist(), x.grad.tolist(), y._version

    plain = program()
    with tm.trace() as trace:
        traced = program()
    assert traced == plain
    assert trace.report.gaps == ()


# -- freed graphs -----------------------------------------------------------------------------------------------------


def test_the_pass_that_went_through_the_nodes_is_told_and_not_one_between():
    """A backward of another graph, begun later and ended earlier, is not it."""

    def program():
        x, w = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
        shared = x.exp()
        other = w.exp().sum()
        other.backward()  # another graph
        shared.sum().backward()  # this one
        shared.square().sum().backward()

    found = freed(program)
    assert found.first.text == "shared.sum().backward()  # this one"
    assert (found.joint, found.joint_name, found.shared, found.whole) == ("exp", "shared", 1, False)


def test_a_pass_that_kept_the_graph_is_not_told():
    """It is the second one that freed it."""

    def program():
        x = torch.randn(3, requires_grad=True)
        y = x.exp().sum()
        y.backward(retain_graph=True)
        y.backward()  # frees
        y.backward()

    found = freed(program)
    assert (found.first.text, found.whole, found.root) == ("y.backward()  # frees", True, "y")


def test_an_object_that_refuses_to_be_asked_hides_nothing():
    """It stands among the names, and raises where it is asked for its class."""

    class Odd:
        @property
        def __class__(self):
            raise ValueError("asked")

    def program():
        odd = Odd()
        loss = torch.ones(3, requires_grad=True).exp().sum()
        loss.backward()
        loss.backward()
        return odd

    found = freed(program)
    assert (found.root, found.whole) == ("loss", True)


def test_of_a_state_that_is_handed_on_it_is_told_whether_it_is_a_tuple():
    """As those of LSTM and LSTMCell are, whatever they are called; to a tuple ``.detach()`` is nothing."""

    def program():
        cell, state = nn.LSTMCell(2, 3), None
        for _ in range(2):
            state = cell(torch.ones(1, 2), state)
            state[0].sum().backward()

    found = freed(program)
    assert (found.joint_name, found.joint_again, found.joint_tuples) == ("", True, ("state",))


def test_a_graph_that_was_freed_before_the_trace_is_told_without_a_line():
    """Only what the trace saw has lines."""
    x = torch.randn(3, requires_grad=True)
    y = x.exp().sum()
    y.backward()
    found = freed(y.backward, x=x, y=y)
    assert (found.known, found.first, found.op) == (False, None, "exp")


def test_an_error_that_was_caught_is_not_told_of_another():
    """The run ended by an error of its own."""

    def program():
        y = torch.randn(3, requires_grad=True).exp().sum()
        y.backward()
        with pytest.raises(RuntimeError):
            y.backward()
        raise RuntimeError("mine")

    report, _ = failed(program)
    assert report.failure is None or report.failure.backward is None


# -- custom Functions -------------------------------------------------------------------------------------------------


def returning(make, *, arguments="x, y, z, flag"):
    """Return a custom Function whose backward returns what ``make`` makes of the gradient."""
    names = [name.strip() for name in arguments.split(",")]
    space: dict[str, object] = {}
    exec(f"def forward(ctx, {arguments}): return {names[0]} * 2", space)
    members = {"forward": staticmethod(space["forward"]), "backward": staticmethod(lambda _, grad: make(grad))}
    return type("Made", (torch.autograd.Function,), members)


@pytest.mark.parametrize(
    ("needs", "bad", "argument"),
    [((True, True, True), 1, "y"), ((False, True, True), 2, "z"), ((False, False, True), 2, "z"),
     ((True, False, True), 2, "z"), ((True, True, True), 0, "x")],
)  # fmt: skip
def test_the_argument_is_the_one_whose_gradient_does_not_fit(needs, bad, argument):
    """Torch's index counts tensors alone; numbers, and tensors that need none, stand between."""
    tensors = [torch.randn(3, requires_grad=need) for need in needs]

    def make(grad):
        fitting = (grad[:2] if at == bad else grad if needs[at] else None for at in range(3))
        return (*fitting, None)

    report, _ = failed(lambda: returning(make).apply(*tensors, True).sum().backward())
    found = report.failure.backward.returned
    assert (found.function, found.problem, found.argument) == ("Made", "shape", argument)
    assert (found.got, found.expected) == ("(2,)", "(3,)")
    assert found.arguments == ("x", "y", "z", "flag")


def test_an_error_of_torchs_own_node_is_not_blamed_on_a_function_of_the_persons():
    """Torch complains in the same words where a parameter's data was replaced by some of another shape."""
    made = returning(lambda grad: grad * 2, arguments="x").apply(torch.randn(3, requires_grad=True))
    complaint = "Function {} returned an invalid gradient at index 0 - got [4] but expected shape compatible with [5]"
    blame = Culprits(None, lambda _: (None, ""), lambda _: None, Location)
    for reached in (None, 0):
        _, others = blame.fault(RuntimeError(complaint.format("TBackward0")), [made.grad_fn], [0], reached)
        _, mine = blame.fault(RuntimeError(complaint.format("MadeBackward")), [made.grad_fn], [0], reached)
        assert others is None
        assert (mine.argument, mine.got, mine.expected) == ("x", "(4,)", "(5,)")


# -- writes that autograd cannot see ----------------------------------------------------------------------------------


def unseen(program):
    with tm.trace(namespace={}) as trace:
        program()
    return trace.report.silent_errors.unseen if trace.report.silent_errors is not None else ()


def test_a_write_beside_what_was_saved_is_not_told():
    """Only elements that a node had saved matter; a part of a tensor may be another part."""

    def beside():
        x = torch.randn(4, 2, requires_grad=True)
        y = x * 1.0
        loss = y[:, 0].exp().sum() + y[:, 1].detach().sum()
        y.data[:, 1] = 0
        loss.backward()

    def within():
        x = torch.randn(4, 2, requires_grad=True)
        y = x * 1.0
        loss = y[:, 0].square().sum()
        y.data[:2] = 0
        loss.backward()

    assert unseen(beside) == ()
    assert [one.op for one in unseen(within)] == ["pow"]


def test_a_pass_that_does_not_go_through_the_node_is_not_told():
    """Its gradients do not depend on what was written to."""

    def program():
        x, w = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
        a, b = x.exp(), w.exp()
        loss = (a + b).sum()
        a.data.zero_()
        torch.autograd.grad(loss, w)

    assert unseen(program) == ()


def test_handing_data_back_to_its_owner_is_no_write():
    """`p.data += 1` is a write through `.data`, and then hands the same memory back."""

    def harmless():
        w = nn.Parameter(torch.randn(3))
        loss = w.square().sum()
        w.data = w.data
        loss.backward()

    def harmful():
        w = nn.Parameter(torch.randn(3))
        loss = w.square().sum()
        w.data += 1
        loss.backward()

    assert unseen(harmless) == ()
    (found,) = unseen(harmful)
    assert [(write.call, write.kind) for write in found.writes] == [("add_", "data")]


def test_a_layer_that_needs_no_gradient_for_its_input_does_not_need_its_weight():
    """The first convolution's weight may change: only the gradient of its input would need it."""

    def program(*, asks):
        layer = nn.Conv1d(1, 1, 2)
        loss = layer(torch.randn(1, 1, 5, requires_grad=asks)).sum()
        layer.weight.data.zero_()
        loss.backward()

    assert unseen(lambda: program(asks=False)) == ()
    assert [one.slot for one in unseen(lambda: program(asks=True))] == ["weight"]


# -- without a trace --------------------------------------------------------------------------------------------------


def explained(program):
    told = tm.explain(namespace={})
    with pytest.raises(RuntimeError), told:
        program()
    return told.report.backward


def test_without_a_trace_the_tensor_and_the_node_are_told():
    """From the graph that is still alive; lines nobody noted are not made up."""
    net = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1))

    def program():
        loss = net(torch.randn(4, 3)).sum()
        with torch.no_grad():
            net[2].weight.mul_(2)
        model = net
        loss.backward()
        return model

    found = explained(program).modified
    assert (found.op, found.slot, found.name) == ("addmm", "mat2", "model.2.weight")
    assert (found.version - found.saved_version, found.writes, found.location) == (1, (), None)


def test_without_a_trace_a_freed_graph_and_a_wrong_return_are_told():
    """The node that had lost its tensors, the backward that freed them; the Function, and the line of its return."""
    x = torch.randn(3, requires_grad=True)

    def twice():
        y = x.exp().sum()
        y.backward()
        y.backward()

    freed = explained(twice).freed
    assert (freed.op, freed.whole, freed.first.text) == ("exp", True, "y.backward()")
    wrong = returning(lambda grad: (grad, grad), arguments="x")
    found = explained(lambda: wrong.apply(x).sum().backward()).returned
    assert (found.function, found.problem, found.got, found.expected) == ("Made", "count", "2", "1")
