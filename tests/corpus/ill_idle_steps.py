"""Training whose layers, freezing, optimizer or clipping are not what they seem (TM315, TM614 to TM619)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import ill
from tests.corpus.data import batches, mlp, train_classifier

# TM614: one module several times


@ill("TM614", severity="note", subject="net.1", says=("Linear 3 times in a row", "nn.Sequential(*[make()"))
def a_list_multiplied_into_a_sequential():
    hidden = nn.Linear(16, 16)
    net = nn.Sequential(nn.Linear(64, 16), nn.Sequential(*[hidden] * 3), nn.Linear(16, 10))
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True)
    return trace.report


class Tower(nn.Module):
    """A tower of blocks that are one block."""

    def __init__(self, depth=4):
        super().__init__()
        self.first, self.head = nn.Linear(64, 16), nn.Linear(16, 10)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(16, 16), nn.ReLU())] * depth)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


@ill(
    "TM614",
    severity="note",
    subject="net.blocks",
    line="self.blocks = nn.ModuleList(",
    says=("nn.ReLU()) for _ in range(depth)])`",),
)
def blocks_that_are_one_block():
    net = Tower()
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True)
    return trace.report


@ill("TM614", severity="note", subject="net.blocks", says=("3 times in a row", "share 2 parameters"))
def a_layer_that_is_made_before_the_loop():
    net = Tower(0)
    layer = nn.Linear(16, 16)
    for _ in range(3):
        net.blocks.append(layer)
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True)
    return trace.report


# TM615: an attribute that freezes nothing


@ill(
    "TM615", severity="warning", subject="net.0.requires_grad", says=("2 parameters of net.0", "net[0].requires_grad_(")
)
def a_module_that_is_frozen_by_an_attribute():
    net = mlp(64, 16, 10)
    net[0].requires_grad = False
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(3):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
    return trace.report


@ill("TM615", severity="warning", subject="net.0.weight.require_grad", says=("freezes nothing", "updates it"))
def a_parameter_that_is_frozen_by_a_misspelt_name():
    net = mlp(64, 16, 10)
    net[0].weight.require_grad = False
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(3):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
    return trace.report


@ill("TM615", severity="warning", subject="net.2.trainable", says=("a module has no such switch",))
def a_layer_that_is_frozen_as_in_keras():
    net = mlp(64, 16, 10)
    net[2].trainable = False
    optimizer = torch.optim.Adam(net.parameters())
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(3):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
    return trace.report


# TM616: an optimizer made anew


@ill("TM616", severity="warning", line="optimizer.step()", says=("5 Adam optimizers of the same 4 parameters",))
def an_adam_in_the_loop():
    net = mlp(64, 16, 10)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(5):
            optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
    return trace.report


def _fit_batch(net, images, classes, rate):
    optimizer = torch.optim.RMSprop(net.parameters(), lr=rate)
    F.cross_entropy(net(images.flatten(1)), classes).backward()
    optimizer.step()
    optimizer.zero_grad()


@ill("TM616", severity="warning", line="optimizer.step()", says=("4 RMSprop optimizers",))
def an_optimizer_in_the_function_of_a_batch():
    net = mlp(64, 16, 10)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4):
            _fit_batch(net, images, classes, 0.01)
    return trace.report


@ill("TM616", severity="note", line="optimizer.step()", says=("SGD optimizers",))
def an_sgd_that_is_made_to_change_its_rate():
    net = mlp(64, 16, 10)
    with tm.trace(namespace={"net": net}) as trace:
        for step, (images, classes) in enumerate(batches(4)):
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1 / (step + 1), momentum=0.9)
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
    return trace.report


# TM617: steps that change nothing


@ill("TM617", severity="warning", line="optimizer.step()", says=("bfloat16 keeps 8 binary digits", "float32"))
def weights_in_bfloat16_and_a_small_rate():
    """pytorch/ao#1124."""
    net = mlp(64, 16, 10).bfloat16()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-6)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(5):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1).bfloat16()), classes).backward()
            optimizer.step()
    return trace.report


@ill("TM617", severity="warning", line="optimizer.step()", says=("has fallen from 0.1 to (almost) zero",))
def a_scheduler_for_epochs_that_is_stepped_every_batch():
    net = mlp(64, 16, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=5)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(12):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
            scheduler.step()
    return trace.report


@ill("TM617", severity="warning", line="optimizer.step()", says=("The last 16 of 24 steps",))
def a_rate_that_is_divided_by_ten_in_every_step():
    net = mlp(64, 16, 10)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(24):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
            scheduler.step()
    return trace.report


@ill("TM617", severity="warning", line="optimizer.step()", says=("float16 keeps 11 binary digits",))
def weights_in_float16_and_plain_sgd():
    net = mlp(64, 16, 10).half()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(5):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1).half()).float(), classes).backward()
            optimizer.step()
    return trace.report


# TM618: clipping


def _clipped(order, parameters=None):
    net = mlp(64, 16, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    parameters = net.parameters() if parameters == "generator" else parameters
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(images.flatten(1)), classes)
            for deed in order:
                if deed == "clip":
                    torch.nn.utils.clip_grad_norm_(net.parameters() if parameters is None else parameters, 0.1)
                elif deed == "backward":
                    loss.backward()
                else:
                    optimizer.step()
    return trace.report


@ill("TM618", severity="warning", line="torch.nn.utils.clip_grad_norm_(", says=("had used the gradients already",))
def clipping_after_the_step():
    return _clipped(("backward", "step", "clip"))


@ill("TM618", severity="warning", line="torch.nn.utils.clip_grad_norm_(", says=("no parameter had a gradient",))
def clipping_before_the_backward():
    return _clipped(("clip", "backward", "step"))


@ill("TM618", severity="warning", line="torch.nn.utils.clip_grad_norm_(", says=("3 of 4 calls", "used up"))
def clipping_of_a_generator():
    """pytorch#148259: the second call finds nothing in it."""
    return _clipped(("backward", "clip", "step"), "generator")


# TM315: create_graph


def _second_order(net, backward, steps=4):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(steps):
            optimizer.zero_grad()
            backward(F.cross_entropy(net(images.flatten(1)), classes))
            optimizer.step()
    return trace.report


@ill(
    "TM315",
    severity="warning",
    line="loss.backward(create_graph=True)",
    says=("all 4 steps of optimizer", "create_graph=True"),
)
def a_create_graph_that_was_left_in():
    return _second_order(mlp(64, 16, 10), lambda loss: loss.backward(create_graph=True))


@ill("TM315", severity="warning", line="loss.backward(create_graph=True)", says=("reference cycle",))
def a_create_graph_in_a_loop_with_adam():
    net = mlp(64, 16, 10)
    optimizer = torch.optim.Adam(net.parameters())
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(5):
            loss = F.cross_entropy(net(images.flatten(1)), classes)
            loss.backward(create_graph=True)
            optimizer.step()
            optimizer.zero_grad()
    return trace.report


@ill("TM315", severity="warning", line="torch.autograd.backward(loss, create_graph=True)", says=("all 3 steps",))
def a_create_graph_of_an_old_experiment():
    net = nn.Linear(64, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(images.flatten(1)).tanh(), classes)
            torch.autograd.backward(loss, create_graph=True)
            optimizer.step()
    return trace.report


@ill("TM315", severity="warning", line="loss.backward(create_graph=True)", says=("all 6 backward passes",))
def a_create_graph_with_updates_by_hand():
    w, target = torch.zeros(4, requires_grad=True), torch.tensor([1.0, -2.0, 0.5, 3.0])
    with tm.trace(namespace={"w": w}) as trace:
        for _ in range(6):
            x = torch.randn(16, 4)
            loss = (x @ w - x @ target).square().mean()
            loss.backward(create_graph=True)
            with torch.no_grad():
                w -= 0.05 * w.grad
            w.grad = None
    return trace.report


# TM619: frozen normalisations


class Backbone(nn.Module):
    """Convolutions with normalisations, and a head."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)
        )
        self.head = nn.Linear(4, 10)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


def _tune(net):
    optimizer = torch.optim.SGD([one for one in net.parameters() if one.requires_grad], lr=0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4):
            optimizer.zero_grad()
            F.cross_entropy(net(images), classes).backward()
            optimizer.step()
    return trace.report


@ill(
    "TM619",
    severity="note",
    line="optimizer.step()",
    subject="net.body.1",
    says=("2 batch normalisations", "4 batches"),
)
def a_frozen_backbone_in_train_mode():
    net = Backbone()
    net.body.requires_grad_(False)
    return _tune(net)


@ill("TM619", severity="note", line="optimizer.step()", subject="net.body.1", says=("1 batch normalisation",))
def a_frozen_stem():
    net = Backbone()
    net.body[:2].requires_grad_(False)
    return _tune(net)


@ill("TM619", severity="note", line="optimizer.step()", says=("`net.body[1].eval()`",))
def frozen_normalisations_alone():
    net = Backbone()
    net.body[1].requires_grad_(False)
    net.body[4].requires_grad_(False)
    return _tune(net)


# TM625: a scaled loss and a plain step


def _scaled(make, *, accumulate=1, steps=4):
    net = mlp(64, 16, 10)
    optimizer, scaler = make(net.parameters()), torch.amp.GradScaler("cpu", init_scale=1024.0)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for number, (images, classes) in enumerate(batches(steps * accumulate)):
            loss = F.cross_entropy(net(images.flatten(1)), classes)
            (scaler.scale(loss) / accumulate).backward()
            if number % accumulate == accumulate - 1:
                optimizer.step()
                optimizer.zero_grad()
    return trace.report


@ill("TM625", severity="warning", line="optimizer.step()", subject="optimizer", says=("4 of 4", "scaler.update()"))
def a_scaled_loss_and_an_optimizer_that_steps_by_itself():
    return _scaled(lambda parameters: torch.optim.SGD(parameters, lr=1e-4))


@ill("TM625", severity="warning", line="optimizer.step()", subject="optimizer", says=("3 of 3", "scaler.step"))
def scaled_gradients_of_two_batches_with_adam():
    return _scaled(torch.optim.Adam, accumulate=2, steps=3)


@ill("TM625", severity="warning", line="optimizer.step()", subject="optimizer", says=("1 of 1 step",))
def one_step_with_scaled_gradients():
    return _scaled(torch.optim.AdamW, steps=1)


@ill("TM617", severity="warning", line="optimizer.step()", says=("its learning rate is 0", "warms up from 0"))
def a_warm_up_that_nobody_steps():
    """The rate is 0 at the beginning, and stays there."""
    net = mlp(64, 16, 10)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(step / 10, 1))
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(5):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
    return trace.report
