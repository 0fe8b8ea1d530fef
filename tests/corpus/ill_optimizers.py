"""Training in which the optimizer holds other parameters than those that get gradients (TM602, TM604)."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import ill
from tests.corpus.data import batches, mlp

# -- TM602: in no optimizer -------------------------------------------------------------------------------------------


class Classifier(nn.Module):
    """A body and a head, named as in torchvision."""

    def __init__(self, classes=10):
        super().__init__()
        self.body, self.fc = nn.Sequential(nn.Linear(64, 32), nn.ReLU()), nn.Linear(32, classes)

    def forward(self, x):
        return self.fc(self.body(x))


def _train(net, optimizer, steps=4):
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(steps, 32):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
    return trace.report


@ill(
    "TM602", severity="warning", line="og.step()", says=("og holds the same parameters as od", "(gen.parameters(), …)")
)
def two_optimizers_of_the_critic_and_none_of_its_generator():
    gen, dis, ones = nn.Linear(8, 64), nn.Linear(64, 1), torch.ones(32, 1)
    od, og = torch.optim.Adam(dis.parameters()), torch.optim.Adam(dis.parameters())
    with tm.trace(namespace=locals()) as trace:
        for images, _ in batches(4, 32):
            fake = gen(torch.randn(32, 8))
            od.zero_grad()
            real = F.binary_cross_entropy_with_logits(dis(images.flatten(1)), ones)
            (real + F.binary_cross_entropy_with_logits(dis(fake.detach()), 1 - ones)).backward()
            od.step()
            og.zero_grad()
            F.binary_cross_entropy_with_logits(dis(fake), ones).backward()
            og.step()
    return trace.report


@ill("TM602", severity="warning", line="optimizer.step()", subject="net.0.weight", says=(
    "net.0 gets gradients but is in no optimizer", "add_param_group"))  # fmt: skip
def a_layer_that_is_unfrozen_after_the_optimizer_was_made():
    net = mlp(64, 16, 10)
    net[0].requires_grad_(False)
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for at, (images, classes) in enumerate(batches(6, 8)):
            if at == 2:
                net[0].requires_grad_(True)
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
    return trace.report


@ill("TM602", severity="warning", line="optimizer.step()", subject="net.fc.weight", says=(
    "net.fc gets gradients but is in no optimizer", "2 of the 4 parameters of net, and still holds 2 "))  # fmt: skip
def the_head_is_replaced_after_the_optimizer_was_made():
    """Fine-tuning: the new head stays as random as it was made."""
    net = Classifier(1000)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    net.fc = nn.Linear(32, 10)
    return _train(net, optimizer)


@ill("TM602", severity="warning", line="optimizer.step()", subject="net.fc.weight", says=(
    "net.fc gets gradients but is in no optimizer: optimizer holds only frozen parameters of net, and still holds 2 ",
    "`optimizer = torch.optim.SGD(net.parameters(), …)`"))  # fmt: skip
def the_head_of_a_frozen_model_is_replaced_after_the_optimizer_was_made():
    """No step changes anything: what the optimizer was made with is all frozen."""
    net = Classifier(1000).requires_grad_(False)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    net.fc = nn.Linear(32, 10)
    return _train(net, optimizer)


@ill("TM604", severity="warning", line="optimizer.step()", says=("optimizer steps 2 parameters that never had",))
def a_head_that_is_replaced_after_its_optimizer_was_made():
    """The body is not frozen, but no optimizer was to train it."""
    net = Classifier(1000)
    optimizer = torch.optim.Adam(net.fc.parameters())
    net.fc = nn.Linear(32, 10)
    return _train(net, optimizer)


class Autoencoder(nn.Module):
    """Narrow in the middle."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = mlp(64, 32, 8), mlp(8, 32, 64)

    def forward(self, x):
        return self.decoder(self.encoder(x))


@ill("TM602", severity="warning", line="optimizer.step()", says=("net.decoder gets gradients but is in no optimizer",))
def an_autoencoder_of_which_half_is_trained():
    """Only the encoder's parameters were handed over."""
    net = Autoencoder()
    optimizer = torch.optim.Adam(net.encoder.parameters())
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, _ in batches(4, 32):
            x = images.flatten(1)
            optimizer.zero_grad()
            F.mse_loss(net(x), x).backward()
            optimizer.step()
    return trace.report


class Growing(nn.Module):
    """Makes its last layer when it sees the first batch, as it does not know the width before."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten())
        self.classifier = None

    def forward(self, x):
        x = self.features(x)
        if self.classifier is None:
            self.classifier = nn.Linear(x.shape[1], 10)
        return self.classifier(x)


def train_epoch(model, optimizer, steps):
    """Train, as a function."""
    for images, classes in batches(steps, 32):
        optimizer.zero_grad()
        F.cross_entropy(model(images), classes).backward()
        optimizer.step()


@ill("TM602", severity="warning", line="optimizer.step()", says=("net.classifier gets gradients",))
def a_layer_that_forward_makes():
    """By then the optimizer is made: the first layers learn, the last does not."""
    net = Growing()
    optimizer = torch.optim.Adam(net.parameters())
    with tm.trace(namespace={"net": net}) as trace:
        train_epoch(net, optimizer, 3)
    return trace.report


class Anew(Classifier):
    """Its scale is registered, and made anew in each forward."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(10))

    def forward(self, x):
        self.scale = nn.Parameter(torch.ones(10))
        return super().forward(x) * self.scale


@ill("TM602", severity="warning", line="optimizer.step()", subject="net.scale", says=(
    "net.scale gets gradients but is in no optimizer", "create in `__init__` what `forward` creates again",
))  # fmt: skip
def a_parameter_that_forward_makes_anew():
    """It gets gradients in each step, and begins again at one."""
    net = Anew()
    return _train(net, torch.optim.Adam(net.parameters()), 5)


@ill("TM602", severity="warning", line="opt.step()", says=("model.scale gets gradients", "add_param_group"))
def a_parameter_that_came_later():
    """A temperature is added to the model in a later cell; the optimizer does not know it."""
    model = Classifier()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model.scale = nn.Parameter(torch.ones(()))
    with tm.trace(namespace={"model": model, "opt": opt}) as trace:
        for images, classes in batches(3, 32):
            opt.zero_grad()
            F.cross_entropy(model(images.flatten(1)) * model.scale, classes).backward()
            opt.step()
    return trace.report


# -- TM604: of parameters that are not used ----------------------------------------------------------------------------


@ill("TM604", severity="error", line="optimizer.step()", subject="optimizer",
     says=("4 parameters that never had a gradient", "4 parameters of net get gradients"))  # fmt: skip
def the_model_is_made_anew():
    """The cell with the model was run again, the one with the optimizer was not."""
    net = Classifier()
    optimizer = torch.optim.Adam(net.parameters())
    net = Classifier()
    return _train(net, optimizer)


@ill("TM604", severity="warning", line="optimizer.step()", says=("`torch.optim.Adam(net.fc.parameters(), …)`",))
def a_probe_that_is_made_anew():
    """The body is frozen, and the optimizer holds the head that was there before."""
    net = Classifier()
    net.body.requires_grad_(False)
    optimizer = torch.optim.Adam(net.fc.parameters())
    net.fc = nn.Linear(32, 11)
    return _train(net, optimizer)


@ill("TM604", severity="error", line="optimizer.step()", says=("in no optimizer",))
def the_copy_is_trained():
    """The best model so far is kept by deepcopy, and the copy goes on."""
    base = Classifier()
    optimizer = torch.optim.SGD(base.parameters(), lr=0.1)
    return _train(copy.deepcopy(base), optimizer)


@ill("TM604", severity="error", line="optimizer.step()", says=("4 parameters of net",))
def a_checkpoint_is_loaded_by_assignment():
    """load_state_dict(assign=True) puts new parameters in place of those that the optimizer holds."""
    net = Classifier()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net.load_state_dict(Classifier().state_dict(), assign=True)
    return _train(net, optimizer)


@ill("TM604", severity="warning", line="optimizer.step()", says=("2 parameters of linear that never had a gradient",))
def another_architecture_is_tried():
    """The new model is deeper; the optimizer is still that of the linear one, which the notebook keeps."""
    linear = nn.Linear(64, 10)
    optimizer = torch.optim.SGD(linear.parameters(), lr=0.1)
    net = mlp(64, 16, 10)
    with tm.trace(namespace={"linear": linear, "net": net, "optimizer": optimizer}) as trace:
        train_flat(net, optimizer)
    return trace.report


def train_flat(net, optimizer):
    """Three steps on flat images."""
    for images, classes in batches(3, 32):
        optimizer.zero_grad()
        F.cross_entropy(net(images.flatten(1)), classes).backward()
        optimizer.step()


@ill("TM602", severity="note", line="optimizer.step()", subject="encoder.weight",
     says=("encoder gets gradients in every step", "`encoder.requires_grad_(False)`"))  # fmt: skip
def a_second_model_that_nobody_trains():
    """The optimizer was made of the decoder alone."""
    encoder, decoder = nn.Linear(64, 8), nn.Linear(8, 64)
    optimizer = torch.optim.Adam(decoder.parameters())
    with tm.trace(namespace={"encoder": encoder, "decoder": decoder, "optimizer": optimizer}) as trace:
        for images, _ in batches(4):
            x = images.flatten(1)
            optimizer.zero_grad()
            F.mse_loss(decoder(encoder(x)), x).backward()
            optimizer.step()
    return trace.report


@ill("TM604", severity="error", line="optimizer.step()",
     says=("4 parameters of encoder", "[*encoder.parameters(), *decoder.parameters()]"))  # fmt: skip
def two_models_that_are_made_anew():
    """The cell that makes both ran again, the one that makes the optimizer did not."""
    encoder, decoder = nn.Linear(64, 8), nn.Linear(8, 64)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()])
    encoder, decoder = nn.Linear(64, 8), nn.Linear(8, 64)
    with tm.trace(namespace={"encoder": encoder, "decoder": decoder, "optimizer": optimizer}) as trace:
        for images, _ in batches(4):
            x = images.flatten(1)
            optimizer.zero_grad()
            F.mse_loss(decoder(encoder(x)), x).backward()
            optimizer.step()
    return trace.report


@ill("TM604", severity="error", line="optimizer.step()", subject="optimizer", says=(
    "4 parameters of teacher that never had a gradient; 4 parameters of student",
    "`torch.optim.Adam(student.parameters(), …)`"))  # fmt: skip
def the_optimizer_of_the_teacher():
    """Distillation: the student gets the gradients, and nothing steps it."""
    teacher, student = mlp(64, 16, 10), mlp(64, 16, 10)
    optimizer = torch.optim.Adam(teacher.parameters())
    with tm.trace(namespace={"teacher": teacher, "student": student, "optimizer": optimizer}) as trace:
        for images, _ in batches(4, 32):
            with torch.no_grad():
                wanted = teacher(images.flatten(1))
            optimizer.zero_grad()
            F.mse_loss(student(images.flatten(1)), wanted).backward()
            optimizer.step()
    return trace.report


@ill("TM602", severity="note", line="critics.step()", subject="second.0.weight", says=("none of its 4 parameters",))
def the_second_of_two_critics_beside_an_actor():
    """The actor gets gradients from one loss of two, both critics from both."""
    actor, first, second = mlp(8, 16, 2), mlp(10, 16, 1), mlp(10, 16, 1)
    critics, actors = torch.optim.Adam(first.parameters()), torch.optim.Adam(actor.parameters())
    with tm.trace(namespace=locals()) as trace:
        for _ in range(5):
            states, chosen, target = torch.randn(32, 8), torch.randn(32, 2), torch.randn(32, 1)
            x = torch.cat([states, chosen], 1)
            critics.zero_grad()
            (F.mse_loss(first(x), target) + F.mse_loss(second(x), target)).backward()
            critics.step()
            y = torch.cat([states, actor(states)], 1)
            actors.zero_grad()
            (-torch.min(first(y), second(y)).mean()).backward()
            actors.step()
    return trace.report
