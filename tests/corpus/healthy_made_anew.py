"""Models, heads and optimizers that are made anew together, and optimizers that hold more than what learns."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.data import batches, mlp
from tests.corpus.ill_made_anew import Tuned, _clamped_and_detached, _fit, _sharpen


@healthy(nearly="TM604")
def each_fold_with_an_optimizer_of_its_own():
    with tm.trace() as trace:
        for _ in range(3):
            net = mlp(64, 16, 10)
            _fit(net, torch.optim.Adam(net.parameters()), 6)
    return trace.report


@healthy(nearly="TM604")
def one_model_that_each_fold_resets_in_place():
    net = mlp(64, 16, 10)
    optimizer, first = torch.optim.SGD(net.parameters(), lr=0.1), copy.deepcopy(net.state_dict())
    with tm.trace() as trace:
        for _ in range(3):
            net.load_state_dict(first)
            _fit(net, optimizer)
    return trace.report


@healthy(nearly="TM604")
def learners_that_a_meta_optimizer_follows():
    """Reptile: each task trains a copy, and the difference is the gradient of what all of them begin with."""
    net = mlp(64, 16, 10)
    meta = torch.optim.SGD(net.parameters(), lr=0.5)
    with tm.trace(namespace={"net": net, "meta": meta}) as trace:
        for _ in range(5):
            learner = copy.deepcopy(net)
            _fit(learner, torch.optim.SGD(learner.parameters(), lr=0.1), 3)
            for mine, theirs in zip(net.parameters(), learner.parameters(), strict=True):
                mine.grad = mine.detach() - theirs.detach()
            meta.step()
    return trace.report


@healthy(nearly="TM623")
def the_best_copy_under_both_names():
    """The training is over when the name of the model gets the best one."""
    net = mlp(64, 16, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    names = {"net": net, "optimizer": optimizer}
    with tm.trace(namespace=names) as trace:
        _fit(net, optimizer, 5)
        names["best"] = names["net"] = copy.deepcopy(net)
    return trace.report


@healthy(nearly="TM303")
def a_larger_teacher_whose_student_is_trained():
    teacher, student = mlp(64, 32, 10), mlp(64, 16, 10)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    with tm.trace(namespace={"teacher": teacher, "student": student}) as trace:
        for images, _ in batches(5, 16):
            with torch.no_grad():
                soft = teacher(images.flatten(1)).softmax(-1)
            optimizer.zero_grad()
            F.kl_div(student(images.flatten(1)).log_softmax(-1), soft, reduction="batchmean").backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM602")
def a_head_that_joins_the_optimizer_in_the_midst():
    net = Tuned()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        _fit(net, optimizer)
        net.fc = nn.Linear(32, 10)
        optimizer.add_param_group({"params": net.fc.parameters()})
        _fit(net, optimizer)
    return trace.report


@healthy(nearly="TM604")
def an_optimizer_of_a_frozen_network_that_rests():
    """Its step does nothing; the other network has its own."""
    one, two = mlp(64, 16, 10), mlp(64, 16, 10).requires_grad_(False)
    first, second = torch.optim.SGD(one.parameters(), lr=0.1), torch.optim.SGD(two.parameters(), lr=0.1)
    with tm.trace(namespace={"one": one, "two": two}) as trace:
        for _ in range(4):
            _fit(one, first, 1)
            second.step()
    return trace.report


def _clamp(image):
    with torch.no_grad():
        image.clamp_(0, 1)
    return image


@healthy(nearly="TM303")
def an_image_that_is_clamped_in_place():
    return _sharpen(_clamp)


@healthy(nearly="TM303")
def an_image_whose_data_are_clamped():
    return _sharpen(lambda image: setattr(image, "data", image.data.clamp(0, 1)) or image)


@healthy(nearly="TM303")
def rounds_that_begin_with_a_new_image_and_optimizer():
    net = mlp(64, 16, 10).requires_grad_(False)
    names = {"net": net, "image": torch.rand(1, 64, requires_grad=True)}
    with tm.trace(namespace=names) as trace:
        for _ in range(3):
            names["optimizer"] = torch.optim.Adam([names["image"]], 0.1)
            for _ in range(4):
                names["optimizer"].zero_grad()
                (-net(names["image"])[0, 1]).backward()
                names["optimizer"].step()
            names["image"] = _clamped_and_detached(names["image"])
    return trace.report


@healthy(nearly="TM309")
def a_body_that_leaves_its_optimizer():
    """From then on nobody clears what backward brings it, and nobody uses it."""
    net = Tuned()
    optimizer = torch.optim.SGD([{"params": net.body.parameters()}, {"params": net.fc.parameters()}], lr=0.1)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        _fit(net, optimizer)
        del optimizer.param_groups[0]
        _fit(net, optimizer, 6)
    return trace.report
