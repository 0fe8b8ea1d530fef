"""Steps, gradients and transforms that torch refuses: run for real, what is told is so, and the way works."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tensormagic.diagnoses.mismatches import mismatch_of
from tensormagic.reports import FailureReport
from tests.diagnoses.test_everyday_errors import explained

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch about schedulers and steps in an unusual order
LEAF = "w = torch.ones(3, requires_grad=True)"
LAYER = "net = nn.Linear(2, 1); opt = torch.optim.SGD(net.parameters(), lr=0.1)"
SPARSE = "net = nn.Embedding(5, 2, sparse=True); opt = torch.optim.Adam(net.parameters())"
HALF = f"{LAYER}; net.half(); scaler = torch.amp.GradScaler('cpu')"
SCALER = f"{LAYER}; scaler = torch.amp.GradScaler('cpu'); loss = net(torch.ones(1, 2)).sum()"
SCALED = f"{SCALER}; scaler.scale(loss).backward()"
DATA = """
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, TensorDataset, random_split
class Plain(Dataset):
    def __getitem__(self, index): return index
class Stream(IterableDataset):
    def __iter__(self): yield 1
data = TensorDataset(torch.ones(4, 2)); loader = DataLoader(data)
"""
UNUSED = (
    "Nothing that was differentiated was computed from x: it has no gradient, and allow_unused=True gives None for it. "
    "What was computed from the same values in another way does not count."
)
DEVICE = "A device is a kind that torch knows, with a number where there are several, as in cuda:1"
CHECKPOINT = """
from torch.utils.checkpoint import checkpoint
x = torch.ones(3, requires_grad=True)
y = checkpoint(torch.sin, x, use_reentrant=True)
"""
WORKER = (
    "A worker process ended without an error of Python's: with num_workers=0 the samples are made here, where the "
    "error is seen"
)
BOOTSTRAPPING = (
    "An attempt has been made to start a new process before the\n        current process has finished its "
    "bootstrapping phase."
)
VIEWS = "Autograd cannot follow a write into one of several views that one call returned"
# What is before the line, the line, the rule, and ways with the line on which they are used.
CASES = (
    (f"{LEAF}; x = torch.ones(3); y = (w * x).sum()", "torch.autograd.grad(y, [w, x])",
     "Nothing was recorded that leads back to x, which does not require a gradient.",
     {"x.requires_grad_()  # before it is used": "{way}\ntorch.autograd.grad((w * x).sum(), [w, x])"}),
    (f"{LEAF}; b = torch.ones(3, requires_grad=True); y = w.sum()", "torch.autograd.grad(y, [w, b])",
     "Nothing that was differentiated was computed from b: it has no gradient",
     {"torch.autograd.grad(y, [w, b], allow_unused=True)": "{way}"}),
    (f"{LEAF}; x = torch.ones(3, requires_grad=True)", "torch.autograd.grad((w * x.detach()).sum(), x)",
     "Nothing that was differentiated was computed from x: `.detach()` (", {}),
    ("net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)); y = net[0](torch.ones(1, 2)).sum()",
     "torch.autograd.grad(y, net.parameters())", "Nothing that was differentiated was computed from net.1.weight: it",
     {"torch.autograd.grad(y, net.parameters(), allow_unused=True)": "{way}"}),
    ("xy = torch.ones(3, 2, requires_grad=True); y = xy.sum(); x = xy[:, 0]", "torch.autograd.grad(y, x)",
     UNUSED,
     {"torch.autograd.grad(y, x, allow_unused=True)": "{way}"}),
    ("net = nn.Linear(2, 1); p = net.parameters(); list(p); y = net(torch.ones(1, 2)).sum()",
     "torch.autograd.grad(y, p)", "The list of tensors to differentiate by is empty: a generator", {}),
    ("x = torch.ones(3)", "x.retain_grad()", "No gradient will come to x, which does not require one.",
     {"x.requires_grad_()  # before it is used": "{way}\nx.retain_grad()"}),
    ("x = torch.ones(3)", "x.register_hook(print)", "No gradient will come to x, which does not require one.", None),
    (f"{LEAF}; x = torch.ones(3)", "(w * x).sum().backward(inputs=[w, x])", "No gradient will come to x, which", None),
    ("z = torch.ones(2, dtype=torch.complex64, requires_grad=True); y = z.sum()", "y.backward()",
     "A loss is a real number, and y is complex64: take its absolute value or its real part.",
     {"y.abs()": "{way}.backward()", "y.real": "{way}.backward()"}),
    (f"{LEAF}; loss = w.sum().item()", "loss.backward()",
     "Backward starts from a tensor, and loss is a float: .item() and float() take a number out of its graph.", {}),
    ("loss = None", "loss.backward()", "Backward starts from a tensor, and loss is None (a function", {}),
    (f"{LEAF}; losses = [w.sum(), w.mean()]", "losses.backward()", "Backward starts from a tensor, and losses is a",
     {"sum(losses).backward()": "{way}"}),
    ("z = torch.ones(2, dtype=torch.complex64)", "z > 0", "The call Tensor.gt takes real numbers, and z is complex64.",
     {"z.abs()": "{way} > 0", "z.real": "{way} > 0"}),
    (LAYER, "nn.utils.clip_grad_norm_(net.parameters, 1.0)",
     "The function torch.nn.utils.clip_grad_norm_ takes parameters, and what it was given is a method.", {}),
    (LAYER, "net.load_state_dict(net.state_dict)", "A model loads a dictionary of its weights, not a method.",
     {"net.load_state_dict(net.state_dict())": "{way}"}),
    (LAYER, "nn.Sequential([net, nn.ReLU()])", "An nn.Sequential takes its layers one by one, not in a list", {}),
    (LAYER, "nn.Sequential(net, F.relu)", "An nn.Sequential holds modules, and F.relu is a function", {}),
    (LAYER, "nn.Sequential(net, nn.ReLU)", "An nn.Sequential holds modules, and ReLU is a class", {}),
    (f"{LEAF}; y = w * 2", "y.requires_grad = False", "Only a leaf can be told to require no gradient, and y", None),
    (f"{LEAF}; y = w * 2", "copy.deepcopy(y)", "A deep copy has no place for the graph that y was computed in: copy",
     {"y.detach().clone()": "assert torch.equal({way}, y)"}),
    (f"{LEAF}; x, y = (w * 2).view(3, 1).expand(3, 2).unbind(1)", "x += 1", f"{VIEWS} (unbind, split, chunk, a", {}),
    (f"{LEAF}; x, y = torch.stack([w * 2, w]).split(1)", "x.mul_(2)", VIEWS, {}),
    (f"{LEAF}; x, y = torch.stack([w * 2, w]).chunk(2)", "x[0] = 0", VIEWS, {}),
    (f"{LEAF}\nwith torch.inference_mode():\n    x = torch.ones(3)", "w * x",
     "A layer or operation that learns saves its operands for backward, and one of these was made under",
     {"x.clone()": "(w * {way}).sum().backward()"}),
    ("with torch.inference_mode():\n    x = torch.ones(3)", "x.add_(1)",
     "A tensor made under torch.inference_mode(), as x was, can only be changed there", {"x.clone()": "{way}.add_(1)"}),
    # optimizers and schedulers
    (LEAF, "torch.optim.SGD(w, lr=0.1)", "An optimizer takes a list of parameters, and w is one tensor.",
     {"[w]": "torch.optim.SGD({way}, lr=0.1)"}),
    (LAYER, "torch.optim.SGD([{'params': net.parameters()}, {'params': net.weight}], lr=0.1)",
     "A parameter can be in only one group, and one of these is in two", {}),
    ("net = nn.Linear(2, 1); opt = torch.optim.LBFGS(net.parameters())", "opt.step()", "LBFGS computes the loss", {}),
    (f"{SPARSE}\nnet(torch.tensor([1])).sum().backward()", "opt.step()",
     "The optimizer Adam does not take sparse gradients: SparseAdam does.", {}),
    (LAYER, "opt.load_state_dict(net.state_dict())", "An optimizer loads what its own state_dict() returned, and", {}),
    (LAYER, "torch.optim.lr_scheduler.StepLR(opt)", "The call of StepLR also needs step_size.", {}),
    (f"{LAYER}; s = torch.optim.lr_scheduler.ReduceLROnPlateau(opt)", "s.step()",
     "The call of ReduceLROnPlateau.step also needs metrics.", {}),
    (LAYER, "torch.optim.lr_scheduler.StepLR(opt, 3, last_epoch=5)",
     "A scheduler that goes on after last_epoch=5 needs the optimizer's state at that point", None),
    (f"{LAYER}; s = torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, total_steps=2); s.step(); s.step()", "s.step()",
     "This schedule was made for 2 steps, and all are used up", {}),
    (LAYER, "torch.optim.lr_scheduler.OneCycleLR(opt, 0.1)", "The schedule has to know its length: give it", {}),
    # scalers
    (f"{SCALED}; scaler.unscale_(opt)", "scaler.unscale_(opt)", "These gradients are unscaled already: unscale_", {}),
    (f"{SCALED}; scaler.step(opt)", "scaler.unscale_(opt)", "The step of scaler has unscaled these gradients", {}),
    (f"{SCALED}; scaler.step(opt)", "scaler.step(opt)", "A step ends with scaler.update(), and there was none since",
     {"scaler.update()": "{way}\nscaler.step(opt)"}),
    (f"{SCALER}; scaler.scale(loss)", "scaler.step(opt)", "No parameter of this optimizer had a gradient that", {}),
    (SCALED, "scaler.update()", "A call of scaler.update() ends a step, and none was made since the last one.", None),
    (f"{SCALER}; loss.backward()", "scaler.step(opt)", "Nothing was scaled yet: backward has to be called on the loss",
     {"scaler.scale(loss).backward()": "loss = net(torch.ones(1, 2)).sum()\n{way}\nscaler.step(opt)"}),
    (f"{HALF}\nscaler.scale(net(torch.ones(1, 2).half()).sum()).backward()", "scaler.step(opt)",
     "A GradScaler is for parameters in float32, and these are float16", {}),
    # transforms
    ("x = torch.ones(3)", "torch.vmap(lambda each: each + torch.rand(1))(x)", "Under torch.vmap a random number may",
     {f'torch.vmap(…, randomness="{how}")': f"torch.vmap(lambda each: each + torch.rand(1), randomness='{how}')(x)"
      for how in ("different", "same")}),
    ("x = torch.ones(3)", "torch.vmap(lambda each: each.item())(x)", "Inside torch.vmap a tensor stands for those", {}),
    ("x = torch.ones(3)", "torch.vmap(lambda each: each if each > 0 else -each)(x)", "Inside torch.vmap a", {}),
    ("x = torch.ones(3)", "torch.func.grad(lambda each: each * 2)(x)",
     "The function that torch.func.grad takes returns one number, and this one returns a tensor of 1 dimension", {}),
    ("f = torch.compile(lambda x: x if x.sum() > 0 else -x, fullgraph=True, backend='eager')", "f(torch.ones(3))",
     "A compiled graph has no `if` on the values of a tensor, and fullgraph=True allows no break", {}),
    ("f = torch.compile(lambda x: print(x), fullgraph=True, backend='eager')", "f(torch.ones(3))",
     "The graph may not break here (fullgraph=True, or an export), and torch.compile cannot follow. Dynamo does", {}),
    ("fc = nn.Linear(4, 2); f = torch.compile(lambda x: fc(x), backend='eager', dynamic=False)", "f(torch.ones(2, 3))",
     "The dimensions that are summed over must be equal: 2 × 3 times 4 × 2 sums 3 against 4.", {}),
    (CHECKPOINT, "torch.autograd.grad(y.sum(), x)",
     "A checkpoint with use_reentrant=True only supports backward() without inputs", {}),
    ("class Old(torch.autograd.Function):\n    def forward(self, x): return x", "Old()(torch.ones(3))",
     "The forward and backward of an autograd.Function are static methods: put @staticmethod above each", {}),
    ("net, x = nn.Linear(2, 2), torch.ones(1, 2)", "torch.export.export(net, x)",
     "An example of the inputs is a tuple of them, and x is a Tensor.", {"(x,)": "torch.export.export(net, {way})"}),
    # samples and loaders
    (DATA, "DataLoader(Plain(), shuffle=True)", "What samples are drawn from has to say how many there are", {}),
    (DATA, "DataLoader(TensorDataset(torch.ones(0, 2)), shuffle=True)", "The dataset is empty: no samples can be", {}),
    (DATA, "DataLoader(data, shuffle=True, sampler=RandomSampler(data))", "The argument sampler replaces shuffle", {}),
    (DATA, "DataLoader(Stream(), shuffle=True)", "An IterableDataset gives its samples in its own order, so there", {}),
    (DATA, "random_split(data, [3, 2])", "The lengths of the parts must add up to that of the dataset; fractions", {}),
    (DATA, "DataLoader(data, prefetch_factor=2)", "Only worker processes load batches ahead: give num_workers", {}),
    (DATA, "loader[0]", "A DataLoader gives batches in a loop, and is not a list or iterator itself.",
     {"next(iter(loader))": "{way}"}),
    (DATA, "next(loader)", "A DataLoader gives batches in a loop, and is not a list or iterator itself.", None),
    (f"{LAYER}; net = net.load_state_dict(net.state_dict())", "net.eval()", "The method load_state_dict changes", {}),
    (f"{LAYER}; net = net.load_state_dict(net.state_dict())", "net(torch.ones(1, 2))", "The method", {}),
    # arrays, devices, groups, sequences
    ("x = torch.ones(3, dtype=torch.bfloat16)", "x.numpy()", "NumPy has no bfloat16: x must have another dtype.",
     {"x.float().numpy()": "{way}"}),
    ("import numpy as np; a = np.arange(3)[::-1]", "torch.from_numpy(a)", "A tensor cannot go backwards through memory",
     {"torch.from_numpy(a.copy())": "{way}"}),
    ("a = [1, 2]", "torch.from_numpy(a)", "The function torch.from_numpy takes an array, not a list.",
     {"torch.tensor(a)": "{way}"}),
    ("x = torch.ones(3)", "x.to('gpu')", f"{DEVICE}. There is no kind gpu: write cuda (or mps, xpu).", {}),
    ("x = torch.ones(3)", "x.to('cuda0')", f"{DEVICE}. There is no kind cuda0.", {}),
    ("import torch.distributed as dist", "dist.get_rank()", "No process group was made in this process", {}),
    ("p = torch.tensor([0.5, 0.5])", "torch.multinomial(p, 3)", "Without replacement each category is drawn once",
     {"torch.multinomial(p, 3, replacement=True)": "{way}"}),
    ("p = torch.tensor([-1.0, 2.0])", "torch.multinomial(p, 1)",
     "The weights of categories are finite and not negative, and one of p is not.", {}),
    ("x, n = torch.ones(3, 5, 2), torch.tensor([2, 5, 3])", "nn.utils.rnn.pack_padded_sequence(x, n, batch_first=True)",
     "The samples are not in the order of their lengths, the longest first.",
     {"nn.utils.rnn.pack_padded_sequence(x, n, batch_first=True, enforce_sorted=False)": "{way}"}),
    ("x, n = torch.ones(3, 5, 2), torch.tensor([5, 3, 0])", "nn.utils.rnn.pack_padded_sequence(x, n, batch_first=True)",
     "Each sequence of a batch must have one element at least, and one length is 0", {}),
    ("x = torch.ones(3)", "x[0] = torch.tensor([1.0, 2.0])",
     "What is assigned must fit into the place that the index selects, one number: it is 2.", {}),
    ("x = torch.ones(3)", "x[:2] = [1, 2]", "What is assigned to a part of a tensor is a number or a tensor, not", {}),
    ("items, i = [1, 2, 3], torch.tensor([1, 2])", "items[i]", "Python takes one whole number here, and i is", {}),
    ("y = torch.ones(2, dtype=torch.bfloat16, requires_grad=True)", "y.numpy()", "NumPy does not support gradients",
     {"y.detach().float().numpy()": "{way}"}),
    (LEAF, "w.grad = torch.ones(3).double()", "A gradient must have the dtype of its tensor: this one is float64", {}),
)  # fmt: skip


def made(source: str) -> dict[str, Any]:
    """Return the names that a piece of code binds."""
    space: dict[str, Any] = {"torch": torch, "nn": nn, "F": F, "copy": copy}
    exec(source, space)
    return space


@pytest.mark.parametrize(("before", "line", "rule", "ways"), CASES, ids=[f"{line}, {at}" for at, (_, line, *_)
                         in enumerate(CASES)])  # fmt: skip
def test_what_is_told_is_so_and_the_way_works(before, line, rule, ways):
    """Ways that are None are code with a gap, or what another case has run."""
    clash = explained(line, made(before)).mismatch
    assert clash is not None
    if "computed from one of" in clash.rule and torch.__version__ < "2.13":
        pytest.skip("which of the tensors it is, torch says from 2.13 on")
    assert clash.rule.startswith(rule)
    if ways is not None:
        assert (*clash.works, *clash.maybe) == tuple(ways)
        for way, use in ways.items():
            exec(use.format(way=way), made(before))


def test_what_cut_off_a_tensor_that_is_differentiated_by_is_named(cell_of):
    """It is read from the source, as that of a loss without a graph is."""
    report = cell_of("w = torch.ones(3, requires_grad=True)", "v = w.detach()", "y = (w * v).sum()",
                     "torch.autograd.grad(y, v)")  # fmt: skip
    assert report.mismatch.rule == (
        "Nothing was recorded that leads back to v, which `.detach()` cut off from what it was made of."
    )
    assert report.findings == ()


PLAIN = (
    "class Net(nn.Module):",
    "    def __init__(self):",
    "        super().__init__()",
    "        self.layers = [nn.Linear(2, 2) for _ in range(3)]",
    "        self.extra = {'a': nn.Linear(2, 2)}",
    "model = Net()",
)


@pytest.mark.parametrize(
    ("lines", "says", "ways"),
    [
        ((*PLAIN, "torch.optim.Adam(model.parameters())"),
         "model.extra is a plain dict of 1 module and model.layers is a plain list of 3 modules, which model does",
         ("self.extra = nn.ModuleDict({'a': nn.Linear(2, 2)})",
          "self.layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])")),
        (("net = nn.Linear(3, 2).requires_grad_(False)",
          "torch.optim.SGD([p for p in net.parameters() if p.requires_grad])"),
         "net has 2, and none of them requires a gradient.", ()),
        (("net = nn.Linear(3, 2)", "torch.optim.SGD(filter(lambda p: p.ndim > 4, net.parameters()))"),
         "net has 2, and none of them was chosen.", ()),
        (("net = nn.ReLU()", "torch.optim.SGD(net.parameters())"), "net, a ReLU, has none.", ()),
        (("given = nn.Linear(3, 2).parameters()", "list(given)", "torch.optim.SGD(given)"),
         "a generator such as net.parameters() is empty after its first use, and a module", ()),
    ],
)  # fmt: skip
def test_an_optimizer_without_parameters_says_which_module_has_none_and_why(cell_of, lines, says, ways):
    mismatch = cell_of(*lines).mismatch
    assert mismatch.rule.startswith(f"There is no parameter to train: {says}")
    assert mismatch.maybe == ways


@pytest.mark.parametrize(
    ("error", "says"),
    [
        ("DataLoader worker (pid 7) is killed by signal: Killed. ", f"{WORKER}. The system kills processes when"),
        (
            "DataLoader worker (pid(s) 7) exited unexpectedly",
            "A worker process ended by itself; what it printed may tell why: with num_workers=0 the samples are made",
        ),
        (BOOTSTRAPPING, "A process that is started imports the program again"),
        ("Cannot re-initialize CUDA in forked subprocess. To use", "A process that is forked cannot use CUDA after"),
        ("Function 'SqrtBackward0' returned nan values in its 0th output.", "Anomaly detection stops at the first"),
        ("Expected to have finished reduction in the prior iteration before starting a new one. This error indicates",
         "Parameters of the DistributedDataParallel model got no gradient in the step before"),
        ("Could not guard on data-dependent expression Eq(u0, 1) ", "The graph would have to decide"),
        ("parameter group didn't specify a value of required optimization parameter lr", "The optimizer also needs"),
        ("CUDA error: device-side assert triggered\nCUDA kernel errors might be", "A value on the GPU was out"),
    ],
)  # fmt: skip
def test_what_cannot_be_had_on_every_machine_is_told_by_its_words(error, says):
    assert mismatch_of(FailureReport(error_type="RuntimeError", error=error)).rule.startswith(says)


@pytest.fixture
def cell_of():
    """Return a function that runs lines of which the last fails, and returns what is known of it."""
    return lambda *lines: explained("\n".join(lines), made(""))
