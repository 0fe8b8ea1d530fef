"""What is looked at in single calls: which, how often, and what their operands are called."""

from __future__ import annotations

import gc
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

import tensormagic as tm
from tensormagic.collectors.calls.call_notes import CLOSELY, operand_texts
from tensormagic.collectors.calls.call_watch import WATCHED, LoopNotes
from tensormagic.collectors.detachment.detachment_facts import ROLES

LARGE = torch.zeros(256, 256)
NAMED = sys.version_info >= (3, 11)  # before that, Python does not say which part of a line is running


def observed(trace, kind):
    """Return what a trace saw of one kind."""
    return [one for one in trace.report.observations if one.kind == kind]


def test_a_line_is_looked_at_closely_at_first_and_then_ever_more_rarely():
    """Of a hundred calls the first four and then those that are powers of two are looked at, all are counted."""
    with tm.trace() as trace:
        for _ in range(100):
            LARGE.t().reshape(-1)
    (one,) = observed(trace, "copy")
    assert (one.calls, one.looked, one.seen) == (100, CLOSELY + 4, CLOSELY + 4)
    assert one.nbytes == LARGE.nbytes
    assert trace.report.locations[one.location].text == "LARGE.t().reshape(-1)"


def test_calls_of_library_code_belong_to_the_person_s_lines():
    """Two layers of torch's share one place in torch's code, and are told apart by the lines that call them."""
    flatten = nn.Flatten(0)
    with tm.trace() as trace:
        flatten(LARGE.t())
        for _ in range(3):
            flatten(LARGE.t())
    first, second = observed(trace, "copy")
    assert (first.calls, second.calls) == (1, 3)
    assert second.location != first.location


@pytest.mark.parametrize("called", ["Ratio()", "ratio"])
def test_what_a_library_computes_inside_has_none_of_the_line_s_names(called):
    """The two operands of its division are not the two that it was given."""
    code = "def ratio(a, b):\n    return ((b.double() * 2) / (a + 1)).sum()\n"
    code += "class Ratio(nn.Module):\n    def forward(self, a, b):\n        return ratio(a, b)\n"
    names = {"nn": nn, "__name__": "some_library"}
    exec(compile(code, str(Path(torch.__file__).parents[1] / "some_library.py"), "exec"), names)
    compare, a, b = eval(called, names), torch.ones(60, 40, requires_grad=True), torch.ones(60, 40)
    with tm.trace() as trace:
        compare(a, b).backward()
    (one,) = (one for one in trace.report.observations if one.kind == "promoted")
    assert [(operand.name, operand.dtype) for operand in one.operands] == [("", "float64"), ("", "float32")]


def test_draws_of_library_code_are_counted_one_by_one_at_their_own_line():
    """Two lines draw by turns through one place in torch's code, more often than any sample would show."""
    torch.seed()
    with tm.trace() as trace:
        for _ in range(21):
            F.dropout(LARGE, 0.5)
            for _ in range(2):
                F.dropout(LARGE, 0.5)
    first, second = observed(trace, "draw")
    assert (first.calls, second.calls) == (21, 42)


@pytest.mark.skipif(not NAMED, reason="Python 3.10 does not say which part of a line is running")
def test_an_operand_is_called_what_stands_in_the_line():
    """Names come from the source of the very call that is running, not of another on its line."""
    turned = LARGE.t()
    with tm.trace() as trace:
        both = (turned.reshape(-1), torch.flatten(LARGE.t()))
        torch.t(LARGE).reshape(LARGE.numel())
    assert len(both) == 2
    assert [one.operands[0].name for one in observed(trace, "copy")] == ["turned", "LARGE.t()", "torch.t(LARGE)"]


@pytest.mark.skipif(not NAMED, reason="Python 3.10 does not say which part of a line is running")
def test_the_operands_of_both_sides_of_an_operator_are_found():
    """A binary operator has two, whatever stands around it; another number is not guessed."""

    class Asked:
        def __sub__(self, other):
            return operand_texts(sys._getframe(1), 2), operand_texts(sys._getframe(1), 3)

    left, right = Asked(), [1]
    assert [left - right[0]][0] == (["left", "right[0]"], ["", "", ""])


def test_what_is_watched_includes_every_call_that_ends_a_gradient():
    """One table serves all: each function with a role has it there."""
    assert {function: WATCHED[function].role for function in ROLES} == ROLES


def test_what_was_seen_keeps_nothing_alive():
    """A tensor that a watched call was given goes when its last name goes."""
    with tm.trace() as trace:
        x = torch.zeros(256, 256)
        x.t().reshape(-1)
        gone = weakref.ref(x)
        del x
        gc.collect()
        assert gone() is None
    assert len(observed(trace, "copy")) == 1


class Beside(TorchFunctionMode):
    """A mode of the user's own, as ``torch.set_default_device`` puts one there: it changes nothing."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def test_calls_are_seen_beside_a_mode_of_the_person_s():
    """Then torch hands over its losses and layers as wholes: what is found in them is the same."""
    torch.seed()
    net, x, y = nn.Sequential(nn.Linear(3, 1), nn.Dropout(0.5), nn.Softmax(0)), torch.ones(4, 3), torch.ones(4)

    def step():
        out = net(x)
        nn.MSELoss()(out, y)
        nn.CrossEntropyLoss()(out, y[:, None])
        nn.CrossEntropyLoss()(net[0].eval()(x), y[:, None])

    with tm.trace() as alone:
        step()
    with Beside(), tm.trace() as beside:
        step()
    torch.manual_seed(0)
    kinds = [("draw", "dropout"), ("both broadcast", "mse_loss"), ("normalised", "cross_entropy")]
    for trace in (alone, beside):
        assert [(one.kind, one.op) for one in trace.report.observations] == kinds
        grown = observed(trace, "both broadcast")[0]
        assert [one.shape for one in (*grown.operands, grown.result)] == [(4, 1), (4,), (4, 4)]


def test_dropout_that_is_off_draws_nothing_however_it_is_called():
    """The share and the switch come by place and by name."""
    torch.seed()
    x = torch.ones(8)
    with tm.trace() as trace:
        nn.functional.dropout(x, training=False)
        torch.dropout(x, 0.5, train=False)
        nn.functional.dropout(x, p=0.0)
        torch.dropout(x, 0.0, True)
    assert observed(trace, "draw") == []
    with Beside(), tm.trace() as trace:
        nn.functional.dropout(x, training=False)
        nn.functional.dropout(x, 0.0)
        nn.functional.alpha_dropout(x)
        nn.functional.dropout(x)
    assert [one.op for one in observed(trace, "draw")] == ["dropout"]
    torch.manual_seed(0)


def test_shapes_are_asked_of_the_person_s_own_lines_alone():
    """A library's own views and indices are right by themselves; what a line of the user's regroups is noted."""
    library, own = nn.Unflatten(1, (4, 8)), torch.zeros(2, 8, 4)
    with tm.trace() as trace:
        library(torch.zeros(2, 32))
        own.view(2, 4, 8)
    assert [one.op for one in observed(trace, "regrouped")] == ["view"]
    assert (WATCHED[torch.Tensor.view].anywhere, len(WATCHED[torch.Tensor.view].looks)) == ((), 1)


@pytest.mark.parametrize(
    ("x", "y", "kind"),
    [
        (torch.ones(3, 1), torch.ones(3, dtype=torch.float64), "promoted"),
        (torch.ones(3, 2), torch.ones(3, 2, dtype=torch.float64), "promoted"),
        (torch.ones(3, 2, dtype=torch.uint8), torch.full((3, 2), 255, dtype=torch.uint8), "wrapped"),
        (torch.ones(2, 2, 3, 3), torch.ones(2, 2, 3, 3).contiguous(memory_format=torch.channels_last), "mixed formats"),
    ],
    ids=["other shapes", "other dtypes", "bytes", "other formats"],
)
def test_two_tensors_that_differ_are_asked(x, y, kind):
    """Only two of one shape and of float32, in few dimensions, go by unasked."""
    with tm.trace() as trace:
        _ = x + y
        _ = x.float() + x.float()
    assert [one.seen for one in observed(trace, kind)] == [1]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("make", [
    lambda: nn.Parameter(torch.zeros(3), requires_grad=False).add_(torch.ones(3, requires_grad=True)),
    lambda: nn.Parameter(torch.eye(3).to_sparse()),
])  # fmt: skip
def test_a_parameter_that_is_no_plain_leaf_is_asked_for_no_gradient(make):
    """One that was written to warns where its gradient is read; a sparse one has no memory that begins anywhere."""
    weight = make()
    with tm.trace() as trace:
        for _ in range(2):
            (weight + weight).sum().backward()
            weight + weight
    assert trace.report.gaps == ()
    assert observed(trace, "update lost") == []


@pytest.mark.parametrize(("written", "lost"), [(True, 0), (False, 2)])
def test_other_memory_at_the_same_address_is_no_parameter_that_stayed(written, lost):
    """An allocator gives the address of what was let go to what is asked for next: an update that was written."""
    memory = np.ones(3, dtype=np.float32)
    weight = nn.Parameter(torch.from_numpy(memory))

    def drop(weight):
        weight = weight - 0.1 * weight.grad

    with tm.trace() as trace:
        for _ in range(3):
            weight.grad = None
            weight.pow(2).sum().backward()
            drop(weight)
            if written:
                weight.data = torch.from_numpy(memory)
    assert sum(one.seen for one in observed(trace, "update lost")) == lost


@pytest.mark.parametrize(
    "add",
    [lambda x, i, y: exec("x[i] += y"), lambda x, i, y: x.__setitem__(i, x[i] + y)],
    ids=["without source", "another form"],
)
def test_a_sum_that_no_statement_shows_is_left_alone(add):
    """Only what the code says is known to add to what was there."""
    with tm.trace() as trace:
        add(torch.zeros(4), torch.tensor([1, 1, 2]), torch.arange(3.0))
    assert trace.report.gaps == ()
    assert observed(trace, "index repeats") == []


def test_sums_of_repeated_indices():
    """Lists, negative numbers and several indices name places too; masks, orders and equal values lose nothing."""
    x, i, y = torch.zeros(4, 4), torch.tensor([1, -3, 2]), torch.arange(3.0)
    with tm.trace() as trace:
        x[i, 0] += y
        x[[0, 0, 1], [1, 1, 1]] = y + x[[0, 0, 1], [1, 1, 1]]
        x[0][i] -= 2 * y
        x[:, i] += y
        x[i] *= 2
        x[i, 0] = 1 - x[i, 0]
        x[i, 0] = y
        x[i, 0] += 0.5
        x[torch.tensor([2, 0, 1])] += y[:, None]
        x[torch.ones(4, 4, dtype=torch.bool)] += 1
        x[1, 2] += 1
        x[:, None, i] += y
    assert trace.report.gaps == ()
    assert [one.detail for one in observed(trace, "index repeats")] == [
        "1 3 sure x[i, 0] += y", "1 3 sure x[[0, 0, 1], [1, 1, 1]] += y", "1 3 sure x[0][i] -= 2 * y",
        "4 12 sure x[:, i] += y",
    ]  # fmt: skip


def test_what_is_added_may_come_from_the_place():
    """Also by a name that another line has bound; a count may be meant as a mark."""
    x, i, y, n = torch.zeros(4), torch.tensor([1, 1, 2]), torch.arange(3.0), torch.zeros(4, dtype=torch.long)
    with tm.trace() as trace:
        step = y - x.index_select(0, i)
        x[i] += 0.1 * step
        x[i] += torch.randn(3)
        n[i] += 1
        n[i] += torch.ones_like(i)
    assert [one.detail.split()[2] for one in observed(trace, "index repeats")] == [
        "perhaps", "perhaps", "counts", "counts"
    ]  # fmt: skip


def test_norms_of_one_value():
    """Whoever calls them, and however."""
    x = torch.randn(3, 4, 1)
    with tm.trace() as trace:
        nn.LayerNorm(1)(x)
        nn.functional.layer_norm(x, normalized_shape=(1,))
        nn.functional.group_norm(x, num_groups=4)
        nn.GroupNorm(2, 4)(x)
        nn.LayerNorm((4, 1))(x)
    assert [one.op for one in observed(trace, "normalised alone")] == ["layer_norm", "layer_norm", "group_norm"]


def test_changes_that_nothing_can_use():
    """A statement alone, or a name that its loop gives something else; the last line of a cell would be shown."""
    net = nn.Linear(2, 2)
    net(torch.ones(1, 2)).sum().backward()
    with tm.trace() as trace:
        for p in net.parameters():
            p = torch.clamp(p, -1, 1)  # noqa: PLW2901
        for p in net.parameters():
            p.grad.mul(0.5)
        for p in net.parameters():
            p = p * 2  # noqa: PLW2901
            p.norm()
        for p in (torch.ones(2), torch.ones(3)):
            p = p * 2  # noqa: PLW2901
        p = net.weight
        for _ in range(2):
            p = p * 2
    assert [one.detail for one in observed(trace, "change lost")] == [
        "with torch.no_grad(): p = torch.clamp(p, -1, 1)", "p.grad.mul(0.5)",
    ]  # fmt: skip


def test_a_list_of_indices_into_an_output_is_looked_at():
    """It has no one truth value, as the last step's number has."""
    cell = torch.nn.LSTM(2, 3)
    with tm.trace() as trace:
        output, _ = cell(torch.ones(4, 2, 2))
        output[:, torch.tensor([0, 1])].sum().backward()
    assert trace.report.gaps == ()


def test_the_habit_of_clearing_is_that_of_one_optimizer():
    """A new one in the place of one that has gone has none yet, although its `id` may be the same."""
    notes = LoopNotes()
    for _ in range(6):
        optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], 0.1)
        assert notes.clears.of(optimizer) is None
        notes.clears.put(optimizer, (1, 7))
        del optimizer
        gc.collect()


X, Y = torch.ones(16, 1, requires_grad=True), torch.tensor([[-1.0], [1.0]]).repeat(8, 1)


def with_nan():
    """Return labels of which one is NaN."""
    labels = Y.clone()
    labels[0] = float("nan")
    return labels


@pytest.mark.parametrize(
    ("loss", "detail"),
    [(lambda: F.binary_cross_entropy_with_logits(X, Y), "values -1 1"),
     (lambda: nn.BCEWithLogitsLoss(reduction="none")(input=X, target=Y), "values -1 1"),
     (lambda: F.binary_cross_entropy_with_logits(X, Y * 3, reduction="none"), ""),
     (lambda: F.binary_cross_entropy_with_logits(X, Y * 3, reduction="sum"), "values -3 3"),
     (lambda: F.binary_cross_entropy_with_logits(X, Y, weight=(Y > 0).float()), ""),
     (lambda: F.binary_cross_entropy_with_logits(X.bfloat16(), Y.bfloat16()), "values -1 1"),
     (lambda: F.binary_cross_entropy_with_logits(X, with_nan()), ""),
     (lambda: F.binary_cross_entropy_with_logits(X, Y / 0), ""),
     (lambda: F.binary_cross_entropy_with_logits(X, Y.clamp(min=-0.2)), ""),
     (lambda: F.binary_cross_entropy_with_logits(X[:0], Y[:0]), ""),
     (lambda: F.binary_cross_entropy_with_logits(X, nn.Parameter(Y)), ""),
     (lambda: torch.func.vmap(F.binary_cross_entropy_with_logits)(X, Y), ""),
     (lambda: torch.compile(F.binary_cross_entropy_with_logits, backend="eager")(X, Y), ""),
     (lambda: F.multilabel_soft_margin_loss(X, Y), "values -1 1"),
     (lambda: F.multilabel_soft_margin_loss(X, Y * 2, reduction="none"), ""),
     (lambda: nn.MultiLabelSoftMarginLoss(weight=torch.zeros(1))(X, Y), ""),
     (lambda: F.soft_margin_loss(X, Y > 0), "values 0 1"),
     (lambda: F.soft_margin_loss(X[:6], Y[:6] > 0), ""),
     (lambda: F.soft_margin_loss(X, Y.clamp(min=0) / 2), ""),
     (lambda: F.hinge_embedding_loss(X, Y), ""),
     (lambda: F.margin_ranking_loss(X, -X, target=(Y > 0).to(torch.uint8)), "values 0 1"),
     (lambda: F.poisson_nll_loss(X, Y), "values -1 1"),
     (lambda: F.poisson_nll_loss(X, Y, reduction="none"), ""),
     (lambda: F.cross_entropy(Y.repeat(1, 2), X.repeat(1, 2)), ""),
     (lambda: F.cross_entropy(X.repeat(1, 2), Y.repeat(1, 2) * 2), "values -2 2"),
     (lambda: F.cross_entropy(X.repeat(1, 2), Y.repeat(1, 2).clamp(min=0) - 1), ""),
     (lambda: F.cross_entropy(X.repeat(1, 2), Y.repeat(1, 2).abs() * 4), ""),
     (lambda: F.cross_entropy(X.repeat(1, 2), Y.long().squeeze().abs()), ""),
     (lambda: F.cross_entropy(X.repeat(1, 2), Y.repeat(1, 2) * 2, reduction="none"), ""),
     (lambda: F.cross_entropy(Y.repeat(1, 2), -X.repeat(1, 2)), "exchanged"),
     (lambda: F.binary_cross_entropy(Y.clamp(min=0), X.sigmoid()), "exchanged")],
)  # fmt: skip
def test_a_target_is_read_where_it_cannot_be_meant(loss, detail):
    """Values outside what a loss takes are noted, unless they may not count, or are no plain numbers on the CPU."""
    with tm.trace() as trace:
        loss()
    assert [one.detail for one in observed(trace, "unfit target")] == [detail] * bool(detail)
    assert not trace.report.gaps


def test_labels_of_a_line_are_taken_together():
    """No single call shows what all do; and one that has both signs takes back what was noted before."""
    with tm.trace() as trace:
        for at in range(16):
            F.soft_margin_loss(X[at], Y[at] > 0)
        for labels in (Y > 0, Y > 0, Y):
            F.soft_margin_loss(X, labels)
    (one,) = observed(trace, "unfit target")
    assert trace.report.locations[one.location].text == "F.soft_margin_loss(X[at], Y[at] > 0)"


@pytest.mark.skipif(not NAMED, reason="Python 3.10 does not say which part of a line is running")
def test_a_loss_of_a_model_is_given_what_stands_in_its_call():
    """What holds the loss is no operand of it, and what is passed by name has its place."""
    model = nn.ModuleDict({"loss": nn.BCEWithLogitsLoss()})
    with tm.trace() as trace:
        model.loss = model["loss"]
        model.loss(X, Y)
        F.binary_cross_entropy_with_logits(target=Y, weight=None, input=X)
    assert [[x.name for x in one.operands] for one in observed(trace, "unfit target")] == [["X", "Y"]] * 2
