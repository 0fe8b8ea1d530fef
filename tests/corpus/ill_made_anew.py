"""Optimizers of what is gone: a model, a head or an image that was made anew, or the model that teaches."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import ill
from tests.corpus.data import batches, mlp


def _fit(net, optimizer, steps=4):
    for images, classes in batches(steps, 16):
        optimizer.zero_grad()
        F.cross_entropy(net(images.flatten(1)), classes).backward()
        optimizer.step()


@ill("TM604", severity="error", line="optimizer.step()", says=(
    "steps 4 parameters that never had a gradient", "the model was made again"))  # fmt: skip
def a_model_that_each_fold_makes_anew():
    """Cross-validation: the optimizer was made before the folds, and holds a model that never runs."""
    net = mlp(64, 16, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace() as trace:
        for _ in range(3):
            net = mlp(64, 16, 10)
            _fit(net, optimizer)
    return trace.report


@ill("TM604", severity="error", line="optimizer.step()", says=("steps 4 parameters that no model has any more",))
def a_model_that_is_made_anew_after_the_first_fold():
    """The first fold learns."""
    net = mlp(64, 16, 10)
    optimizer = torch.optim.Adam(net.parameters())
    with tm.trace() as trace:
        for _ in range(3):
            _fit(net, optimizer)
            net = mlp(64, 16, 10)
    return trace.report


@ill("TM604", severity="warning", line="optimizer.step()", says=(
    "steps 4 parameters of teacher that never had a gradient",
    "`torch.optim.SGD(student.parameters(), …)`"))  # fmt: skip
def the_optimizer_of_a_larger_teacher():
    """Knowledge distillation: the student is smaller than what the optimizer holds."""
    teacher, student = mlp(64, 32, 10), mlp(64, 16, 10)
    optimizer = torch.optim.SGD(teacher.parameters(), lr=0.1)
    with tm.trace(namespace={"teacher": teacher, "student": student}) as trace:
        for images, classes in batches(5, 16):
            x = images.flatten(1)
            with torch.no_grad():
                soft = teacher(x)
            logits = student(x)
            near = F.kl_div(F.log_softmax(logits / 2, -1), F.softmax(soft / 2, -1), reduction="batchmean")
            optimizer.zero_grad()
            (F.cross_entropy(logits, classes) + 4 * near).backward()
            optimizer.step()
    return trace.report


class Tuned(nn.Module):
    """A body and a head."""

    def __init__(self):
        super().__init__()
        self.body, self.fc = nn.Sequential(nn.Linear(64, 32), nn.ReLU()), nn.Linear(32, 1000)

    def forward(self, x):
        return self.fc(self.body(x))


@ill("TM604", severity="warning", line="optimizer.step()", says=("steps 2 parameters that never had a gradient",))
def the_optimizer_of_a_frozen_head():
    """The old head was frozen with all the rest when its optimizer was made."""
    net = Tuned().requires_grad_(False)
    optimizer = torch.optim.SGD(net.fc.parameters(), lr=0.1)
    net.fc = nn.Linear(32, 10)
    with tm.trace() as trace:
        _fit(net, optimizer)
    return trace.report


@ill("TM602", severity="warning", line="optimizer.step()", subject="net.fc.weight", says=(
    "still holds 2 parameters that no model uses any more",))  # fmt: skip
def a_head_that_is_replaced_in_the_midst():
    """It trained for some steps: the new one stays as random as it was made."""
    net = Tuned()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        _fit(net, optimizer)
        net.fc = nn.Linear(32, 10)
        _fit(net, optimizer)
    return trace.report


def _sharpen(change, *, frozen=True):
    """Change an image until a network takes it for a one; ``change`` gives the image of the next step."""
    names = {"net": mlp(64, 16, 10).requires_grad_(not frozen), "image": torch.rand(1, 64, requires_grad=True)}
    names["optimizer"] = torch.optim.Adam([names["image"]], 0.1)
    with tm.trace(namespace=names) as trace:
        for _ in range(6):
            names["optimizer"].zero_grad()
            (-names["net"](names["image"])[0, 1]).backward()
            names["optimizer"].step()
            names["image"] = change(names["image"])
    return trace.report


def _clamped_without_a_graph(image):
    with torch.no_grad():
        image = image.clamp(0, 1)
    return image  # noqa: RET504  (the line above is what the finding is about)


def _clamped_and_detached(image):
    image = image.detach().clamp(0, 1).requires_grad_()
    return image  # noqa: RET504  (the line is what the finding is about)


@ill("TM303", severity="warning", line="image = image.clamp(0, 1)", subject="image", says=(
    "optimizer keeps stepping the old one", "`image.clamp_(0, 1)`"), related=("step()",))  # fmt: skip
def an_image_that_is_clamped_into_a_new_tensor():
    return _sharpen(lambda image: _clamped_without_a_graph(image).requires_grad_())


@ill("TM303", severity="warning", line="image = image.clamp(0, 1)", subject="image", says=("`image.clamp_(0, 1)`",))
def an_image_that_asks_for_no_gradient_any_more():
    """The network is not frozen, so that backward goes on."""
    return _sharpen(_clamped_without_a_graph, frozen=False)


@ill("TM303", severity="warning", line="image = image.detach()", subject="image", says=(
    "in the last 5 of its 6 steps", "`with torch.no_grad(): image.clamp_(0, 1)`"))  # fmt: skip
def an_image_that_is_detached_and_made_a_leaf_again():
    return _sharpen(_clamped_and_detached)


class Trainer:
    """Holds the model and its optimizer; the model is copied once more."""

    def __init__(self):
        self.model = mlp(64, 16, 10)
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.model = copy.deepcopy(self.model)

    def fit(self):
        for images, classes in batches(4):
            loss = F.cross_entropy(self.model(images.flatten(1)), classes)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


@ill("TM604", severity="error", line="self.optimizer.step()", says=(
    "4 parameters of trainer.model", "torch.optim.Adam(trainer.model.parameters()",
))  # fmt: skip
def a_trainer_that_copies_its_model():
    trainer = Trainer()
    with tm.trace(namespace={"trainer": trainer}) as trace:
        trainer.fit()
    return trace.report


@ill(
    "TM606", severity="warning", line="optimizer.step()", says=("Sequential is trained in eval mode", "`model.train()`")
)
def an_evaluation_in_a_function_that_leaves_eval_mode():
    """All is local to a function: the model is known by its class, and code calls it a model."""

    def main():
        model = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 10))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            for images, classes in batches(3):
                optimizer.zero_grad()
                F.cross_entropy(model(images.flatten(1)), classes).backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                model(images.flatten(1))

    with tm.trace(namespace={}) as trace:
        main()
    return trace.report
