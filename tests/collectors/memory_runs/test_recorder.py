"""Memory over a run: bytes by line, the peak and what was alive then, to the byte."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest
import torch
from torch import nn

import tensormagic as tm
from tensormagic.collectors.memory_runs import allocations, recorder
from tensormagic.errors import TraceError
from tensormagic.words import count
from tests.support.gaps import own_gaps

WIDTH, BATCH = 1000, 64
WEIGHT, BIAS, ROWS = 4 * WIDTH * WIDTH, 4 * WIDTH, 4 * BATCH * WIDTH


def line_of(report, text):
    """Return the line of the report whose source begins with ``text``."""
    return next(line for line in report.lines if line.location.text.startswith(text))


def linear():
    """Return a linear layer and a batch for it."""
    return nn.Linear(WIDTH, WIDTH), torch.randn(BATCH, WIDTH)


def test_what_is_equally_large_goes_by_its_name():
    """What was there before a run was met in no order that a second run of the program would repeat."""
    known = {name: torch.zeros(300, 300) for name in ("last", "middle", "first")}
    with tm.track_memory(namespace=known) as run:
        made = [torch.ones(300, 300) for _ in range(2)]
    order = ["first", "last", "middle"]
    assert [one.name for one in run.report.at_end if one.name in known] == order
    assert [one.storage.name for one in run.report.peak_blocks if one.storage.name in known] == order
    assert len(made) == 2


def test_a_step_of_sgd_by_line():
    """Each line of a training step allocates what can be reckoned by hand, and the timeline ends with what stays."""
    net, x = linear()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, foreach=False)
    with tm.track_memory() as run:
        y = net(x)
        loss = y.sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        del y
    report = run.report
    forward, total = line_of(report, "y = net"), line_of(report, "loss = ")
    assert (forward.allocated, forward.backward) == (ROWS + WEIGHT + BIAS, WEIGHT + BIAS)
    assert (forward.kept, forward.largest, forward.op) == (0, WEIGHT, "aten.mm.default")
    assert (total.allocated, total.kept) == (4, 4)  # the gradient of a sum is a view of the scalar
    assert not any(line.location.text == "optimizer.step()" for line in report.lines)  # it works in place
    assert line_of(report, "optimizer.zero_grad").freed == WEIGHT + BIAS
    assert line_of(report, "del y").freed == ROWS
    (timeline,) = report.timelines
    assert timeline.live[-1] - timeline.live[0] == 4
    assert max(timeline.live) - timeline.live[0] == ROWS + WEIGHT + BIAS + 8


def test_a_step_of_adam_leaves_two_moments():
    """The first step of Adam keeps two moments and a counter a parameter; a plain parameter step allocates no more."""
    net, x = linear()
    optimizer = torch.optim.Adam(net.parameters(), foreach=False)
    with tm.track_memory() as run:
        net(x).sum().backward()
        optimizer.step()
    step = line_of(run.report, "optimizer.step")
    assert step.kept == 2 * (WEIGHT + BIAS) + 2 * 4
    assert line_of(run.report, "net(x)").kept == WEIGHT + BIAS  # the gradients
    peak = {(block.storage.nbytes, block.op, block.phase) for block in run.report.peak_blocks}
    assert (WEIGHT, "aten.zeros_like.default", "optimizer") in peak
    assert sum(block.storage.nbytes for block in run.report.peak_blocks) == max(run.report.timelines[0].live)


def test_the_backward_of_a_graph_from_before_the_run_is_the_line_of_its_call():
    """Also where the gradient is given, and the line of the last operation before it is another one."""
    net, x = linear()
    y, gradient, other = net(x), torch.ones(BATCH, WIDTH), torch.ones(1)
    with tm.track_memory() as run:
        other.mul_(1)
        torch.autograd.backward(y, gradient)
    assert line_of(run.report, "torch.autograd.backward").backward == WEIGHT + BIAS
    assert not any(line.location.text == "other.mul_(1)" for line in run.report.lines)


def test_a_view_is_looked_at_each_time_its_line_runs():
    """A line that met nothing new the first time is looked for once what it views is new."""
    made = [torch.zeros(WIDTH)]
    with tm.track_memory() as run:
        for _ in range(3):
            view = made[-1].view(-1)
            thread = threading.Thread(target=lambda: made.append(torch.zeros(WIDTH)))  # which is not followed
            thread.start()
            thread.join()
    assert (line_of(run.report, "view = ").allocated, len(view)) == (2 * 4 * WIDTH, WIDTH)


def test_what_a_backward_frees_was_saved_for_it():
    """What the engine lets go of was saved; what it made and left is a gradient; the parts add up at each moment."""
    net, x = nn.Sequential(nn.Linear(10, 10), nn.Tanh(), nn.Linear(10, 1)), torch.randn(4000, 10)
    with tm.track_memory() as run:
        net(x).sum().backward()
        net.zero_grad()
    (timeline,) = run.report.timelines
    timeline.check()
    by_category = dict(timeline.by_category)
    assert max(by_category["saved for backward"]) == 4000 * 10 * 4
    assert max(by_category["gradient"]) == 4 * sum(parameter.numel() for parameter in net.parameters())
    saved = next(block for block in run.report.peak_blocks if block.storage.category == "saved for backward")
    assert (saved.op, saved.storage.module, saved.phase) == ("aten.tanh.default", "Sequential.1", "forward")


def test_views_resizing_and_shared_memory():
    """A view allocates nothing; what grows counts as it grows; an array's memory counts where it became a tensor."""
    array, before = np.zeros(10, dtype=np.float32), torch.zeros(1)
    with tm.track_memory() as run:
        x = torch.zeros(100)
        view = x[10:]
        x.resize_(300)
        del view
        y = torch.from_numpy(array)
        z = torch.empty(0)
        z.set_(torch.ones(7))
    report = run.report
    assert [line_of(report, text).allocated for text in ("x = ", "x.resize_", "z.set_")] == [400, 800, 28]
    assert line_of(report, "x.resize_").op == "aten.resize_.default"
    assert line_of(report, "x = ").kept == 1200
    assert report.timelines[0].live[-1] - report.timelines[0].live[0] == 1200 + 28 + 40
    assert y.nbytes == 40
    assert before.nbytes == 4


def test_what_a_backward_frees_counts_at_the_line_that_calls_it():
    """Also where the backward of a Function calls two others, before what is left of its own is freed."""

    class Nested(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            with torch.enable_grad():
                first, second = (torch.ones(size, requires_grad=True).exp() for size in (100, 200))
                first.sum().backward()
                second.sum().backward()
                del first, second
            return gradient

    x = torch.ones(1000, requires_grad=True)
    with tm.track_memory() as run:
        y = Nested.apply(x.exp()).sum()
        y.backward()
    freed = {text: line_of(run.report, text).freed for text in ("first.sum", "second.sum", "del first", "y.backward")}
    assert freed == {"first.sum": 8, "second.sum": 8, "del first": 3600, "y.backward": 4004}


def test_what_was_there_before_is_told_apart():
    """A tensor from before the run that dies in it makes ``before`` less, and counts as freed where that was."""
    held = [torch.zeros(1000), torch.zeros(50)]
    with tm.track_memory() as run:
        held.pop(0)
        held.append(torch.zeros(10))
    (timeline,) = run.report.timelines
    assert timeline.before[0] - timeline.before[-1] == 4000
    assert line_of(run.report, "held.pop").freed == 4000
    assert line_of(run.report, "held.append").kept == 40


def test_what_dies_while_it_is_taken_down_is_not_alive(monkeypatch):
    """Garbage is collected whenever Python likes, also while what is before the run is looked for."""
    found, held = recorder.alive_now, [torch.zeros(1000)]

    def dying():
        for storage, tensor, is_twin in found():
            ours = bool(held) and tensor is held[0]
            yield storage, tensor, is_twin
            if ours:
                held.clear()

    monkeypatch.setattr(recorder, "alive_now", dying)
    with tm.track_memory() as run:
        torch.zeros(3)
    assert not held
    for timeline in run.report.timelines:
        timeline.check()


def test_two_tensors_over_one_array_count_once():
    """Each ``torch.from_numpy`` makes a storage; the memory below is one, and a write to it changes no size."""
    gc.collect()
    array = np.zeros((600, 1000))
    tensors = [torch.from_numpy(array)]
    begun = []
    for _ in range(2):
        with tm.track_memory() as run:
            tensors[-1].add_(1)
        (timeline,) = run.report.timelines
        begun.append(timeline.live[0])
        assert set(timeline.live) == {timeline.live[0]}
        tensors.append(torch.from_numpy(array))
    assert begun[0] == begun[1] >= array.nbytes


@pytest.mark.parametrize("share", [torch.from_numpy, torch.utils.dlpack.from_dlpack, torch.as_tensor])
def test_memory_that_is_shared_within_a_run_counts_once(share):
    """Nothing grows where every iteration looks at one array anew, and it goes with the last that lies over it."""
    array, w = np.zeros(300_000, dtype=np.float32), torch.ones(3, requires_grad=True)
    with tm.track_memory() as run:
        views = []
        for at in range(40):
            views.append(share(array[at * 10 :])[1:])
            (w * 2).sum().backward()
        x = torch.ones(100)
        same = share(x.numpy())[2:]
        del x
        levels = [run.report.timelines[0].live[-1]]
        del views[0]
        levels.append(run.report.timelines[0].live[-1])
        views.clear()
        levels.append(run.report.timelines[0].live[-1])
        del same
        levels.append(run.report.timelines[0].live[-1])
    report = run.report
    assert line_of(report, "views.append").allocated == array.nbytes
    assert levels == [levels[3] + 400 + array.nbytes, levels[3] + 400 + array.nbytes, levels[3] + 400, levels[3]]
    assert [finding.code for finding in report.findings] == []
    assert own_gaps(report) == []
    report.timelines[0].check()


def test_parts_of_an_array_count_their_bytes_once():
    """What lies beyond the parts that are known is counted besides; the name is that of who is still there."""
    array = np.zeros(100, dtype=np.float32)
    with tm.track_memory() as run:
        first, second = torch.from_numpy(array[:10]), torch.from_numpy(array[5:30])
        every = torch.from_numpy(array)
        del first, second
    assert [(one.storage.name, one.storage.nbytes) for one in run.report.kept] == [
        ("every", 280), ("every", 80), ("every", 40),
    ]  # fmt: skip
    assert sum(line.kept for line in run.report.lines) == every.nbytes


def test_a_second_storage_over_known_memory_is_no_gap():
    """No operation made it, and its memory was seen being allocated."""
    with tm.track_memory() as run:
        x = torch.ones(100)
        same = torch.utils.dlpack.from_dlpack(x)
    assert own_gaps(run.report) == []
    assert same.data_ptr() == x.data_ptr()


def test_a_run_of_many_operations_stays_small():
    """Ten thousand moments become at most two thousand: the first, the last and the peak are among them, exactly."""
    gc.collect()
    x = torch.zeros(100)
    with tm.track_memory() as run:
        for at in range(5000):
            y = x + 1
            if at == 3210:
                large = torch.zeros(100_000)
                del large
    (timeline,) = run.report.timelines
    assert len(timeline.live) <= 2001
    assert timeline.samples > 9000
    said = f"{count(len(timeline.live))} of {count(timeline.samples)} moments kept"
    assert said.replace("\N{NO-BREAK SPACE}", " ") in str(run.report)
    assert max(timeline.live) - timeline.live[0] == 400 + 400_000
    assert timeline.live[-1] - timeline.live[0] == y.nbytes
    assert line_of(run.report, "y = x + 1").allocated == 5000 * 400
    timeline.check()


def test_a_run_of_many_lines_says_how_many_are_told():
    """Beyond the bound the lines that took the most stay, and the others are counted."""
    source = "\n".join(f"x = torch.zeros({at + 1})" for at in range(405))
    with tm.track_memory() as run:
        exec(compile(source, "<ipython-input-77>", "exec"), {"torch": torch})
    assert len(run.report.lines) == 400
    assert run.report.lines[0].allocated == 4 * 405
    assert own_gaps(run.report)[0].reason.startswith("of 405 lines that allocated or freed memory, the 400 with")


def test_a_failing_run_says_how_it_ended():
    """The exception goes on with the user's own frames; what was alive is told all the same."""
    with pytest.raises(RuntimeError, match="shape"), tm.track_memory() as run:
        torch.zeros(3).reshape(2, 2)
    assert (run.report.state, run.report.error[:12]) == ("failed", "RuntimeError")
    assert line_of(run.report, "torch.zeros(3)").allocated == 12


def test_a_run_is_followed_once():
    """A run that ended is not begun again."""
    run = tm.track_memory()
    with run:
        pass
    with pytest.raises(TraceError, match="track_memory"), run:
        pass


def test_what_grew_and_is_freed_at_once():
    """What grows or shrinks, and is freed before its events are added up, takes all its bytes with it."""
    with tm.track_memory() as run:
        x, y = torch.zeros(10), torch.zeros(500)
        x.resize_(1000)
        y.resize_(5)
        del x, y
        z = torch.zeros(5)
    report = run.report
    before = sum(device.live for device in report.before)
    assert report.after[0].live - before == z.nbytes
    assert max(report.timelines[0].live) - before == 4000 + 2000
    assert sum(line.freed for line in report.lines) == 4000 + 2000


def test_a_storage_that_no_operation_resizes():
    """What is given back and taken again through its storage, as sharded training does, counts where that happens."""
    x = torch.zeros(100)
    with tm.track_memory() as run:
        y = torch.zeros(1000)
        y.untyped_storage().resize_(0)
        x.untyped_storage().resize_(4000)
    report = run.report
    assert line_of(report, "y.untyped_storage").freed == 4000
    assert line_of(report, "x.untyped_storage").allocated == 3600
    assert report.timelines[0].live[-1] - report.timelines[0].live[0] == 3600
    assert "resize_" not in vars(torch.UntypedStorage)


def test_where_torch_asks_for_modes_what_comes_out_is_seen():
    """The backward of a product runs with the mode off: its gradient counts, and a gap says what was not seen."""
    x = torch.rand(50, requires_grad=True)
    with tm.track_memory() as run:
        x.prod().backward()
    assert line_of(run.report, "x.prod()").kept == 200
    assert [gap.reason[-13:] for gap in own_gaps(run.report)] == ["ProdBackward0"]


def test_a_compiled_function_stays_compiled():
    """It is compiled once, as a whole, whether or not the run is followed; what its operations allocate is seen."""
    compiled = []

    def backend(graph, _inputs):
        compiled.append(len(graph.graph.nodes))
        return graph.forward

    function = torch.compile(lambda x: (x * 2).relu().sum(), backend=backend)
    x = torch.ones(100)
    function(x)
    with tm.track_memory() as run:
        function(x)
        function(x)
    assert len(compiled) == 1
    assert [gap.reason[:7] for gap in own_gaps(run.report)] == ["2 calls"]
    assert line_of(run.report, "function = torch.compile").allocated == 2 * (400 + 400 + 4)
    torch._dynamo.reset()


def test_nothing_is_kept_alive():
    """When a run has ended, a tensor dies as soon as its last name goes."""
    gc.disable()
    try:
        with tm.track_memory() as run:
            x = torch.zeros(10, requires_grad=True)
            (x * 2).sum().backward()
        gone = weakref.ref(x)
        del x
        assert gone() is None
        assert run.report.state == "finished"
    finally:
        gc.enable()


def test_the_names_of_code_that_has_run_are_let_go_of():
    """What was made by code with globals of its own dies with these, while the run itself is still there."""
    space = {"torch": torch}
    source = "w = torch.ones(3, requires_grad=True)\n(w * 2).sum().backward()\nw.untyped_storage().resize_(0)"
    gc.disable()
    try:
        with tm.track_memory() as run:
            exec(source, space)
        gone = weakref.ref(space["w"])
        space = None
        assert gone() is None
        assert run.report.state == "finished"
    finally:
        gc.enable()


def test_a_model_that_lives_in_a_function():
    """Parameters, gradients and the optimizer's state are told for what they were, although all of it is gone."""

    def train():
        net = nn.Linear(100, 100)
        optimizer = torch.optim.Adam(net.parameters(), foreach=False)
        for _ in range(2):
            optimizer.zero_grad()
            net(torch.randn(5, 100)).square().sum().backward()
            optimizer.step()

    with tm.track_memory() as run:
        train()
    weights = 4 * (100 * 100 + 100)
    highest = {category: max(levels) for category, levels in run.report.timelines[0].by_category}
    assert (highest["parameter"], highest["gradient"]) == (weights, weights)
    assert highest["optimizer state"] == 2 * weights + 2 * 4
    assert run.report.kept == ()


def test_what_is_left_has_its_name():
    """What the run allocated and left is called what a user would write, with its holders."""
    with tm.track_memory() as run:
        losses = [torch.zeros(10 + at) for at in range(3)]
    assert [block.storage.name for block in run.report.kept] == ["losses[2]", "losses[1]", "losses[0]"]
    assert run.report.kept[0].storage.location.text.startswith("losses = [")
    assert len(losses) == 3


def test_what_nobody_saw_being_allocated_is_a_gap():
    """What another thread allocated and left is told with its bytes and its name, not left out in silence."""
    made = []
    with tm.track_memory() as run:
        thread = threading.Thread(target=lambda: made.append(torch.zeros(1000)))
        thread.start()
        thread.join()
    (gap,) = own_gaps(run.report)
    assert gap.reason.startswith("4000 bytes are alive at the end")
    assert "made[0]" in gap.reason


def test_a_number_that_autograd_saved_is_no_memory_of_another_thread():
    """``p * 2.5`` keeps 2.5 as a tensor that no operation allocated."""
    weight, kept = torch.ones(3, requires_grad=True), []
    with tm.track_memory(namespace={"kept": kept}) as run:
        kept.append((weight * 2.5).sum())
    assert not [gap for gap in run.report.gaps if "no operation" in gap.reason]


def test_arrays_that_share_no_memory_are_not_compared_with_each_other():
    """Thousands of small arrays, as a data loader hands on: what is looked at does not grow with all that is alive."""
    arrays = [np.zeros(8, dtype=np.float32) for _ in range(3000)]
    with tm.track_memory() as run:
        kept = [torch.zeros(1) for _ in range(500)]
        tensors = [torch.from_numpy(array) for array in arrays]
        again = torch.from_numpy(arrays[7])
    seen = run._listener._seen
    assert seen._looked <= allocations.MOST_LOOKED + allocations.LOOKED_AN_OPERATION * seen.operations + len(seen.known)
    assert line_of(run.report, "tensors = ").kept == sum(array.nbytes for array in arrays)
    assert line_of(run.report, "again = ").kept == 0, "its memory is one of theirs"
    assert len(kept) + len(tensors) + again.numel() == 3508


def test_memory_that_was_not_looked_for_at_first_counts_no_less_than_nothing(monkeypatch):
    """Torch's own storage below two arrays is found with the second: both lie over it."""
    monkeypatch.setattr(allocations, "MOST_LOOKED", -100)
    monkeypatch.setattr(allocations, "LOOKED_AN_OPERATION", 0)
    with tm.track_memory() as run:
        x = torch.ones(100)
        first = torch.from_numpy(x.numpy())
        monkeypatch.setattr(allocations, "MOST_LOOKED", 1000)
        second = torch.from_numpy(x.numpy())
    timeline = run.report.timelines[0]
    assert all(level >= 0 for level in timeline.live)
    assert line_of(run.report, "first = ").kept == 400, "it was not known then"
    new = timeline.live[-1] - timeline.before[-1]  # another test's tensors may still be alive
    assert new == 800, "the second lies over memory that counts already"
    assert first.data_ptr() == second.data_ptr()


def test_memory_found_late_counts_once_beside_what_was_counted_over_it_before(monkeypatch):
    """A view of torch's own storage is met before that is looked for, and another one, beside it, afterwards."""
    monkeypatch.setattr(allocations, "MOST_LOOKED", -100)
    monkeypatch.setattr(allocations, "LOOKED_AN_OPERATION", 0)
    with tm.track_memory() as run:
        x = torch.ones(100)
        first = torch.from_numpy(x.numpy()[10:90])
        monkeypatch.setattr(allocations, "MOST_LOOKED", 1000)
        beside = torch.from_numpy(x.numpy()[92:])
    assert line_of(run.report, "first = ").kept == 320, "it was not known then"
    assert line_of(run.report, "beside = ").kept == 0, "it lies over memory that counts already"
    assert len(first) + len(beside) == 88
