"""Training that is near to TM316, TM408 and TM620 to TM623, and does what it should."""

from __future__ import annotations

import copy
import itertools

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.data import batches, mlp, train_classifier, train_in_epochs

REAL, FAKE = torch.ones(32, 1), torch.zeros(32, 1)
bce = F.binary_cross_entropy_with_logits


@healthy(nearly="TM905")
def a_sampler_that_is_told_the_epoch():
    return train_in_epochs(told=True)


@healthy(nearly="TM905")
def a_sampler_that_keeps_the_order():
    return train_in_epochs(told=False, shuffle=False)


@healthy(nearly="TM905")
def several_steps_a_batch_in_one_epoch():
    return train_in_epochs(told=False, per_batch=4, epochs=1)


@healthy(nearly="TM316")
def a_discriminator_that_is_cleared_before_its_own_loss():
    gen, dis = mlp(8, 16, 64), mlp(64, 16, 1)
    og, od = torch.optim.Adam(gen.parameters()), torch.optim.Adam(dis.parameters())
    with tm.trace(namespace={"gen": gen, "dis": dis, "og": og, "od": od}) as trace:
        for images, _ in batches(5, 32):
            og.zero_grad()
            fake = gen(torch.randn(32, 8))
            bce(dis(fake), REAL).backward()
            og.step()
            od.zero_grad()
            (bce(dis(images.flatten(1)), REAL) + bce(dis(fake.detach()), FAKE)).backward()
            od.step()
    return trace.report


@healthy(nearly="TM316")
def two_heads_whose_losses_add_up_in_the_body():
    """Each head is stepped at once, the body when both losses have been."""
    body, first, second = mlp(64, 16), nn.Linear(16, 10), nn.Linear(16, 1)
    optimizers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (first, second, body)]
    with tm.trace(namespace={"body": body, "first": first, "second": second}) as trace:
        for images, classes in batches(6):
            for optimizer in optimizers:
                optimizer.zero_grad()
            made = body(images.flatten(1)).relu()
            F.cross_entropy(first(made), classes).backward(retain_graph=True)
            optimizers[0].step()
            F.mse_loss(second(made), classes[:, None] / 10).backward()
            optimizers[1].step()
            optimizers[2].step()
    return trace.report


@healthy(nearly="TM316")
def tables_that_step_more_often_than_the_rest():
    """The rest adds up four batches."""
    table, net = nn.Embedding(10, 16), mlp(16, 10)
    often, seldom = torch.optim.SGD(table.parameters(), 0.1), torch.optim.SGD(net.parameters(), 0.1)
    with tm.trace(namespace={"table": table, "net": net}) as trace:
        for number, (_, classes) in enumerate(batches(16)):
            F.cross_entropy(net(table(classes)), classes).backward()
            often.step()
            often.zero_grad()
            if number % 4 == 3:
                seldom.step()
                seldom.zero_grad()
    return trace.report


@healthy(nearly="TM408")
def a_last_layer_that_begins_with_zeros():
    """Rows of one layer get gradients of their own, by their class."""
    net = mlp(64, 16, 10)
    nn.init.zeros_(net[2].weight)
    nn.init.zeros_(net[2].bias)
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True)
    return trace.report


@healthy(nearly="TM408")
def a_residual_branch_and_a_filter_that_begin_alike():
    """The last layer of the branch is zero, the filter is a mean; both are different after a step."""
    body, branch, blur = nn.Linear(64, 16), mlp(16, 8, 16), nn.Conv2d(1, 4, 3, padding=1)
    nn.init.zeros_(branch[2].weight)
    nn.init.constant_(blur.weight, 1 / 9)
    head = nn.Linear(16 + 4 * 64, 10)
    net = nn.ModuleList([body, branch, blur, head])
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(6):
            optimizer.zero_grad()
            x = body(images.flatten(1)).relu()
            x = x + branch(x)
            F.cross_entropy(head(torch.cat([x, blur(images).relu().flatten(1)], 1)), classes).backward()
            optimizer.step()
    return trace.report


def _step(net, optimizer, images, classes):
    optimizer.zero_grad()
    F.cross_entropy(net(images.flatten(1)), classes).backward()
    optimizer.step()


@healthy(nearly="TM620")
def a_generator_made_in_each_epoch():
    net = mlp(64, 16, 10)
    optimizer = torch.optim.Adam(net.parameters())
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            data = batches(3)
            for images, classes in data:
                _step(net, optimizer, images, classes)
    return trace.report


@healthy(nearly="TM620")
def a_stream_that_each_round_takes_a_part_of():
    net = mlp(64, 16, 10)
    optimizer, stream = torch.optim.Adam(net.parameters()), batches(8)
    forever = itertools.cycle(batches(4))
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            for images, classes in itertools.islice(stream, 2):
                _step(net, optimizer, images, classes)
            for number, (images, classes) in enumerate(forever):
                _step(net, optimizer, images, classes)
                if number == 1:
                    break
    return trace.report


class Rewound:
    """An iterator of a library's that begins anew whenever a loop asks for it."""

    def __init__(self):
        self.left = 0

    def __iter__(self):
        self.left = 2
        return self

    def __next__(self):
        self.left -= 1
        if self.left < 0:
            raise StopIteration
        return next(batches(1))


@healthy(nearly="TM620")
def an_iterator_that_rewinds_itself():
    net = mlp(64, 16, 10)
    optimizer, data = torch.optim.Adam(net.parameters()), Rewound()
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            for images, classes in data:
                _step(net, optimizer, images, classes)
    return trace.report


@healthy(nearly="TM621")
def a_backbone_without_its_head():
    """All that was given fits; only the new head is missing."""
    saved = mlp(64, 16, 5).state_dict()
    net = mlp(64, 16, 10)
    with tm.trace(namespace={"net": net}) as trace:
        net.load_state_dict({key: value for key, value in saved.items() if key.startswith("0.")}, strict=False)
        train_classifier(net, flat=True)
    return trace.report


@healthy(nearly="TM621")
def a_checkpoint_with_an_old_head():
    saved = mlp(64, 16, 16, 10).state_dict()
    saved = {key.replace("4.", "classifier."): value for key, value in saved.items()}
    net = mlp(64, 16, 16, 10)
    with tm.trace(namespace={"net": net}) as trace:
        net.load_state_dict(saved, strict=False)
        train_classifier(net, flat=True)
    return trace.report


@healthy(nearly="TM621")
def the_best_weights_as_a_copy():
    net = mlp(64, 16, 10)
    with tm.trace(namespace={"net": net}) as trace:
        best = copy.deepcopy(net.state_dict())
        train_classifier(net, flat=True)
        net.load_state_dict(best)
        net.load_state_dict(mlp(64, 16, 10).state_dict())
    return trace.report


@healthy(nearly="TM621")
def a_library_that_puts_weights_back():
    """As captum does after attributions for which it has changed none."""
    library, net = {}, mlp(64, 16, 10)
    lines = "kept = net.state_dict()", "net(x).sum().backward()", "net.load_state_dict(kept)"
    source = "\n    ".join(["def attribute(net, x):", *lines])
    exec(compile(source, "/usr/lib/site-packages/attributing.py", "exec"), library)
    with tm.trace(namespace={"net": net}) as trace:
        library["attribute"](net, torch.randn(4, 64))
    return trace.report


@healthy(nearly="TM622")
def gradients_of_several_batches_that_are_looked_at():
    """Nothing steps: how far gradients point the same way."""
    net, norms = mlp(64, 10), []
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(5):
            net.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            norms.append(net[0].weight.grad.norm().item())
    return trace.report


@healthy(nearly="TM622")
def only_the_generator_s_half_of_a_step():
    """The gradients go through a discriminator that is stepped in another cell."""
    gen, dis = mlp(8, 16, 64), mlp(64, 16, 1)
    og, od = torch.optim.Adam(gen.parameters()), torch.optim.Adam(dis.parameters())
    with tm.trace(namespace={"gen": gen, "dis": dis, "og": og, "od": od}) as trace:
        for _ in range(5):
            og.zero_grad()
            bce(dis(gen(torch.randn(32, 8))), REAL).backward()
            og.step()
    return trace.report


@healthy(nearly="TM622")
def an_optimizer_of_an_earlier_experiment():
    net = mlp(64, 16, 10)
    before = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net, "before": before}) as trace:
        train_classifier(net, flat=True)
    return trace.report


def _q_learning(q, target, steps, copies):
    optimizer = torch.optim.Adam(q.parameters(), lr=1e-3)
    with tm.trace(namespace={"q": q, "target": target, "optimizer": optimizer}) as trace:
        for number, (images, classes) in enumerate(batches(steps, 16)):
            state, reward = images.flatten(1), classes / 10
            with torch.no_grad():
                wanted = reward + 0.9 * target(state).max(1).values
            loss = F.smooth_l1_loss(q(state)[:, 0], wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if number % copies == copies - 1:
                target.load_state_dict(q.state_dict())
    return trace.report


@healthy(nearly="TM623")
def a_target_network_that_is_copied_now_and_then():
    q = mlp(64, 16, 2)
    return _q_learning(q, copy.deepcopy(q), 120, 50)


@healthy(nearly="TM623")
def a_target_network_before_its_first_copy():
    q = mlp(64, 16, 2)
    return _q_learning(q, copy.deepcopy(q), 20, 1000)


@healthy(nearly="TM623")
def a_model_with_two_names():
    """Neither says that it is a copy."""
    net = model = mlp(64, 16, 10)
    best = copy.deepcopy(net)
    with tm.trace(namespace={"net": net, "model": model, "best": best}) as trace:
        train_classifier(net, flat=True)
    return trace.report


@healthy(nearly="TM622")
def the_generator_s_half_after_one_clearing():
    """What an earlier cell left in the discriminator is cleared before the loop, once."""
    gen, dis = mlp(8, 16, 64), mlp(64, 16, 1)
    og, od = torch.optim.Adam(gen.parameters()), torch.optim.Adam(dis.parameters())
    with tm.trace(namespace={"gen": gen, "dis": dis, "og": og, "od": od}) as trace:
        od.zero_grad()
        for _ in range(5):
            og.zero_grad()
            bce(dis(gen(torch.randn(32, 8))), REAL).backward()
            og.step()
    return trace.report


@healthy(nearly="TM622")
def two_optimizers_that_step_in_turn():
    encoder, decoder = mlp(64, 16, 4), mlp(4, 16, 64)
    optimizers = torch.optim.Adam(encoder.parameters()), torch.optim.Adam(decoder.parameters())
    with tm.trace(namespace={"encoder": encoder, "decoder": decoder}) as trace:
        for number, (images, _) in enumerate(batches(8, 16)):
            x = images.flatten(1)
            for optimizer in optimizers:
                optimizer.zero_grad()
            F.mse_loss(decoder(encoder(x)), x).backward()
            optimizers[number % 2].step()
    return trace.report
