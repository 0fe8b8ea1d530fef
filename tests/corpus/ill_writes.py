"""Programs with one write that does more, or something else, than its line says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

import tensormagic as tm
from tensormagic.reports import WritesReport


@dataclass(frozen=True)
class IllWrite:
    """A program, and what must be said of it: the worst finding."""

    run: Callable[[], WritesReport]
    code: str
    severity: str
    line: str
    says: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.run.__name__


ILL_WRITES: list[IllWrite] = []


def ill(code: str, severity: str, line: str, *says: str) -> Callable[[Callable[[], WritesReport]], object]:
    """Declare a program with one illness, and how its worst finding must name it."""

    def declare(run):
        ILL_WRITES.append(IllWrite(run, code, severity, line, says))
        return run

    return declare


# -- TM201 ----------------------------------------------------------------------------------------------------------


@ill("TM201", "warning", "optimizer.step()", "items of history share one memory")
def weights_appended_without_a_copy():
    net, history = nn.Linear(3, 2), []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.watch_writes() as watch:
        for _ in range(4):
            optimizer.zero_grad()
            net(torch.ones(2, 3)).sum().backward()
            optimizer.step()
            history.append(net.weight.detach())
    return watch.report


@ill("TM201", "warning", "observation.mul_(0.9)", "3 items of memory share one memory")
def transitions_that_hold_one_observation():
    """Tuples in a list: the environment writes to the tensor that it gave before."""
    observation, memory = torch.ones(4), []
    with tm.watch_writes() as watch:
        for reward in range(4):
            observation.mul_(0.9)
            memory.append((observation, reward))
    return watch.report


@ill("TM201", "warning", "frame += 1", "2 items of frames share one memory")
def dictionaries_that_hold_one_frame():
    frame, frames = torch.zeros(3), []
    with tm.watch_writes() as watch:
        for number in range(3):
            frame += 1
            frames.append({"frame": frame, "number": number})
    return watch.report


@ill(
    "TM201",
    "warning",
    "state += 0.1 * velocity",
    "items of path share one memory",
    "path.append(state.detach().clone())",
)
def a_path_of_one_point():
    state, velocity, path = torch.zeros(2), torch.ones(2), []
    with tm.watch_writes() as watch:
        for _ in range(5):
            state += 0.1 * velocity
            path.append(state)
    return watch.report


@ill("TM201", "warning", "w.data.mul_(10)", "all 3 elements of w", "without autograd noticing", "without an error")
def a_wrong_gradient_through_data():
    s = torch.ones(3, requires_grad=True)
    with tm.watch_writes() as watch:
        w = s * 2
        q = w.pow(2)
        w.data.mul_(10)
        q.sum().backward()
    assert s.grad.tolist() == [80, 80, 80]
    return watch.report


@ill("TM201", "warning", "left.mul_(0.5)", "2 of the 5 elements of right", "overlap in part")
def windows_that_overlap():
    signal = torch.arange(8.0)
    left, right = signal[:5], signal[3:]
    with tm.watch_writes() as watch:
        left.mul_(0.5)
    assert right[0] == 1.5
    return watch.report


@ill("TM201", "note", "flat[mask] = 0", "2 of the 6 elements of images, the first is images[0, 2]")
def flatten_makes_no_copy_here():
    images = torch.tensor([[0.1, 0.2, 0.9], [0.3, 0.8, 0.1]])
    with tm.watch_writes() as watch:
        flat = images.flatten()
        mask = flat > 0.5
        flat[mask] = 0
    return watch.report


@ill("TM201", "note", "optimizer.step()", "best['weight'] and best['bias']")
def the_best_weights_that_are_always_the_latest():
    net = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    best = net.state_dict()
    with tm.watch_writes() as watch:
        net(torch.ones(2, 3)).sum().backward()
        optimizer.step()
    assert torch.equal(best["weight"], net.weight)
    return watch.report


@ill("TM201", "note", "optimizer.step()", "the same tensor: net and best are one object", "best = copy.deepcopy(net)")
def the_best_model_that_is_the_model():
    net = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    best = net
    with tm.watch_writes() as watch:
        net(torch.ones(2, 3)).sum().backward()
        optimizer.step()
    assert best is net
    return watch.report


def _normalised(x):
    x -= x.mean()
    return x


@ill("TM201", "note", "x -= x.mean()", "all 4 elements of batch, which was passed in as an argument")
def a_function_that_changes_its_argument():
    batch = torch.arange(4.0)
    with tm.watch_writes() as watch:
        normal = _normalised(batch)
    assert normal is batch
    return watch.report


@ill("TM201", "note", "out = net(x)", "The call on this line changes its argument: all 6 elements of x", "x.clone()")
def a_network_that_begins_with_an_inplace_layer():
    net, x = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 1)), torch.randn(2, 3)
    with tm.watch_writes() as watch:
        out = net(x)
    assert out.shape == (2, 1)
    assert x.min() >= 0
    return watch.report


# -- TM202 ----------------------------------------------------------------------------------------------------------


@ill("TM202", "warning", "table[0] = 1", "Writing 3 elements of table changes 12 of its elements")
def one_row_of_an_expanded_tensor():
    table = torch.zeros(3).expand(4, 3)
    with tm.watch_writes() as watch:
        table[0] = 1
    assert table[3, 0] == 1
    return watch.report


@ill("TM202", "warning", "windows -= windows.mean", "windows holds elements several times", "come out wrong")
def windows_of_unfold():
    signal = torch.arange(6.0)
    windows = signal.unfold(0, 3, 1)
    with tm.watch_writes() as watch:
        windows -= windows.mean(1, keepdim=True)
    return watch.report


@ill("TM202", "error", "bias.add_(1)", "torch refuses that", "bias = bias.clone()")
def adding_to_an_expanded_tensor():
    bias = torch.zeros(3).expand(4, 3)
    with tm.watch_writes() as watch:
        try:
            bias.add_(1)
        except RuntimeError:
            return watch.report
    raise AssertionError


# -- TM203 ----------------------------------------------------------------------------------------------------------


@ill("TM203", "error", "x -= x[:, :1]", "6 elements come out wrong", "x[1, 1] as 5 instead of 1", "x[:, :1].clone()")
def rows_that_are_to_start_at_zero():
    x = torch.arange(12.0).view(3, 4)
    with tm.watch_writes() as watch:
        x -= x[:, :1]
    return watch.report


@ill("TM203", "error", "x[:, 1:] = x[:, :-1]", "come out wrong", "x[:, :-1].clone()")
def a_shift_to_the_right():
    x = torch.arange(12.0).view(3, 4)
    with tm.watch_writes() as watch:
        x[:, 1:] = x[:, :-1]
    return watch.report


@ill("TM203", "error", "block += block.t()", "come out wrong")
def making_a_block_symmetric():
    matrix = torch.arange(16.0).view(4, 4)
    block = matrix[:3, :3]
    with tm.watch_writes() as watch:
        block += block.t()
    return watch.report


@ill("TM203", "error", "torch.mv(step, state, out=state)", "all 3 elements", "Leave out `out=`")
def a_product_into_its_own_factor():
    step, state = torch.arange(9).view(3, 3), torch.arange(3)  # integers: with BLAS the processor decides
    with tm.watch_writes() as watch:
        torch.mv(step, state, out=state)
    return watch.report


@ill(
    "TM203", "error", "x[0], x[2] = x[2], x[0]", "all 4 elements", "4 elements come out wrong, the first x[2, 0] as 8",
    "instead of 0", "`x[0], x[2] = x[2].clone(), x[0].clone()`",
)  # fmt: skip
def a_swap_of_two_rows():
    x = torch.arange(12.0).view(3, 4)
    with tm.watch_writes() as watch:
        x[0], x[2] = x[2], x[0]
    assert x[0].equal(x[2])
    return watch.report


@ill("TM203", "error", "x[1:] += x[:-1]", "10 of the 11 elements", "torch refuses that")
def a_sum_that_torch_refuses():
    x = torch.arange(12.0)
    with tm.watch_writes() as watch:
        try:
            x[1:] += x[:-1]
        except RuntimeError:
            return watch.report
    raise AssertionError


# -- TM204 ----------------------------------------------------------------------------------------------------------


@ill("TM204", "note", "x.sub_(x.mean())", "all 6 elements of samples")
def an_array_normalised_through_its_tensor():
    samples = np.arange(6.0)
    x = torch.from_numpy(samples)
    with tm.watch_writes() as watch:
        x.sub_(x.mean())
    return watch.report


@ill("TM204", "note", "x[1] = 7", "the one element", "column")
def a_slice_of_an_array_made_from_a_tensor():
    x = torch.zeros(3)
    column = x.numpy()[1:2]
    with tm.watch_writes() as watch:
        x[1] = 7
    assert column[0] == 7
    return watch.report


@ill("TM204", "note", "x.clamp_(max=2)", "all 4 elements of values")
def as_tensor_that_made_no_copy():
    values = np.array([1.0, 2.0, 3.0, 4.0], dtype=np.float32)
    x = torch.as_tensor(values)
    with tm.watch_writes() as watch:
        x.clamp_(max=2)
    return watch.report
