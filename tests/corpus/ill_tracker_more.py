"""More silent bugs from public trackers: agents, memories of the past, ties, normalisations, and sums that grow."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import ill
from tests.corpus.data import batches, mlp
from tests.corpus.refusals import refused


@ill("TM312", severity="warning", line="running_loss += loss", says=("loss.item()",))
def a_label_model_that_keeps_its_epoch():
    """BatsResearch/labelmodels#4, microsoft/SpareNet#12: what is printed at the end of the epoch keeps all graphs."""
    model = mlp(8, 16, 2)
    optimizer = torch.optim.Adam(model.parameters())
    with tm.trace(namespace={"model": model, "optimizer": optimizer}) as trace:
        running_loss = 0.0
        for _ in range(8):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(torch.randn(16, 8)), torch.randint(0, 2, (16,)))
            loss.backward()
            optimizer.step()
            running_loss += loss
    return trace.report


@ill("TM203", severity="error", line="history[:, 3:] = history[:, :-3]", says=("clone",))
def an_observation_history_that_is_shifted():
    """Alescontrela/AMP_for_hardware#32, NM512/r2dreamer#9: the buffer is moved onto itself."""
    history = torch.arange(24.0).reshape(2, 12)
    with tm.watch_writes() as watch:
        for step in range(3):
            history[:, 3:] = history[:, :-3]
            history[:, :3] = float(step)
    return watch.report


@ill("TM609", severity="warning", says=("are now two",))
def a_tie_that_meta_weights_lose():
    """NVIDIA-NeMo/Automodel#2511: built on the meta device, and materialised module by module."""

    class Language(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.body = nn.Embedding(20, 8), nn.Linear(8, 8)
            self.lm_head = nn.Linear(8, 20, bias=False)
            self.lm_head.weight = self.embed.weight

        def forward(self, x):
            return self.lm_head(self.body(self.embed(x)).tanh())

    net = Language()
    with tm.trace(namespace={"net": net}) as trace:
        net(torch.randint(0, 20, (4, 6))).square().mean().backward()
        net.lm_head.weight = nn.Parameter(net.lm_head.weight.detach().clone())
        optimizer = torch.optim.AdamW(net.parameters())
        for _ in range(3):
            words = torch.randint(0, 20, (4, 6))
            optimizer.zero_grad()
            F.cross_entropy(net(words)[:, :-1].transpose(1, 2), words[:, 1:]).backward()
            optimizer.step()
    return trace.report


@ill("TM608", severity="note", line="return nn.CrossEntropyLoss()(", says=("computed twice",))
def segmentation_with_a_log_softmax_too_many():
    """speedinghzl/Pytorch-Deeplab#2: no harm is done."""
    net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 3, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, weight_decay=5e-4)

    def loss_calc(pred, label):
        return nn.CrossEntropyLoss()(F.log_softmax(pred, dim=1), label)

    with tm.trace(namespace={"net": net}) as trace:
        for images, _ in batches(3, 8):
            label = (images[:, 0] * 2.9).long()
            optimizer.zero_grad()
            loss_calc(net(images), label).backward()
            optimizer.step()
    return trace.report


@ill("TM608", severity="warning", line="loss_cls = self.ce_loss(pred_cls, classes)", says=("result of sigmoid",))
def a_detector_s_class_loss_of_sigmoids():
    """eriklindernoren/PyTorch-YOLOv3#108: the class part never comes near zero."""

    class Yolo(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.mse_loss, self.ce_loss = nn.Linear(64, 15), nn.MSELoss(), nn.CrossEntropyLoss()

        def forward(self, x, boxes, classes):
            prediction = self.net(x)
            box = torch.sigmoid(prediction[..., :4])
            pred_cls = torch.sigmoid(prediction[..., 5:])
            loss_cls = self.ce_loss(pred_cls, classes)
            return self.mse_loss(box, boxes) + loss_cls

    model = Yolo()
    optimizer = torch.optim.Adam(model.parameters())
    with tm.trace(namespace={"model": model}) as trace:
        for images, classes in batches(3, 8):
            optimizer.zero_grad()
            model(images.flatten(1), torch.rand(8, 4), classes).backward()
            optimizer.step()
    return trace.report


@ill("TM612", severity="warning", line="loss = criterion(masks_pred, true_masks)", says=("loss is 0",))
def a_segmentation_of_one_class():
    """milesial/Pytorch-UNet#133, ultralytics/yolov3#191: cross entropy over a single channel is 0."""
    net, criterion = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 1)), nn.CrossEntropyLoss()
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-4, weight_decay=1e-8)
    with tm.trace(namespace={"net": net}) as trace:
        for images, _ in batches(3, 8):
            masks_pred = net(images)
            true_masks = torch.zeros(8, 8, 8, dtype=torch.long)
            loss = criterion(masks_pred, true_masks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@ill("TM405", severity="warning", line="return torch.softmax(self.out(", says=("dimension of size 1",))
def a_yes_or_no_by_softmax():
    """One output, and a softmax because the tutorial has one; the loss never moves."""

    class Churn(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden, self.out = nn.Linear(6, 16), nn.Linear(16, 1)

        def forward(self, x):
            return torch.softmax(self.out(F.leaky_relu(self.hidden(x))), dim=1)

    model = Churn()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with tm.trace(namespace={"model": model, "optimizer": optimizer}) as trace:
        for _ in range(4):
            x = torch.randn(12, 6)
            optimizer.zero_grad()
            F.binary_cross_entropy(model(x), (x.sum(1, keepdim=True) > 0).float()).backward()
            optimizer.step()
    return trace.report


@ill("TM303", severity="warning", says=("critic",))
def a_critic_of_numbers():
    """jsboige/CoursIA#15256: the values of a rollout are kept by `.item()`, and a loss is made of them."""
    policy, critic = mlp(4, 16, 2), nn.Linear(4, 1)
    optimizer = torch.optim.Adam([*policy.parameters(), *critic.parameters()])
    with tm.trace(namespace={"policy": policy, "critic": critic, "optimizer": optimizer}) as trace:
        for _ in range(4):
            values, log_probs, rewards = [], [], []
            for _ in range(5):
                state = torch.randn(4)
                chosen = torch.distributions.Categorical(logits=policy(state))
                action = chosen.sample()
                values.append(critic(state).item())
                log_probs.append(chosen.log_prob(action))
                rewards.append(float(action))
            returns = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
            values_t = torch.tensor(values)
            policy_loss = -(torch.stack(log_probs) * (returns - values_t)).mean()
            loss = policy_loss + 0.5 * F.mse_loss(values_t, returns)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@ill("TM623", severity="note", says=("target",))
def a_target_network_through_which_the_loss_goes():
    """philtabor/Deep-Q-Learning-Paper-To-Code#9: nothing keeps the loss from going back through it."""
    q_eval = mlp(4, 16, 2)
    q_target = copy.deepcopy(q_eval)
    optimizer = torch.optim.RMSprop(q_eval.parameters())
    with tm.trace(namespace={"q_eval": q_eval, "q_target": q_target, "optimizer": optimizer}) as trace:
        for _ in range(5):
            states, action = torch.randn(8, 4), torch.randint(0, 2, (8, 1))
            optimizer.zero_grad()
            q_next = q_target(torch.randn(8, 4)).max(dim=1)[0]
            F.mse_loss(q_eval(states).gather(1, action)[:, 0], torch.randn(8) + 0.99 * q_next).backward()
            optimizer.step()
    return trace.report


@ill("TM316", severity="warning", subject="opt_disc")
def a_tokenizer_s_discriminator():
    """FoundationVision/OmniTokenizer#15: the reconstruction's adversarial term has gone through the judge before."""
    codec = nn.ModuleDict({"encode": nn.Linear(16, 8), "decode": nn.Linear(8, 16)})
    disc = mlp(16, 8, 1)
    opt_ae, opt_disc = torch.optim.Adam(codec.parameters(), 1e-4), torch.optim.Adam(disc.parameters(), 1e-4)
    with tm.trace(namespace={"codec": codec, "disc": disc, "opt_ae": opt_ae, "opt_disc": opt_disc}) as trace:
        for _ in range(5):
            x = torch.randn(8, 16)
            recon = codec["decode"](codec["encode"](x).tanh())
            aeloss = F.l1_loss(recon, x) - 0.1 * disc(recon).mean()
            aeloss.backward()
            opt_ae.step()
            opt_ae.zero_grad()
            discloss = F.relu(1 - disc(x)).mean() + F.relu(1 + disc(recon.detach())).mean()
            discloss.backward()
            opt_disc.step()
            opt_disc.zero_grad()
    return trace.report


@ill("TM309", severity="warning", line="student_optimizer.step()", says=("`student_optimizer.zero_grad()`",))
def a_private_teacher_and_its_student():
    """opendp/smartnoise-sdk#280: two of three optimizers are cleared."""
    teacher, student, generator = nn.Linear(3, 1), nn.Linear(3, 1), nn.Linear(2, 3)
    teacher_optimizer, student_optimizer, generator_optimizer = (
        torch.optim.Adam(each.parameters()) for each in (teacher, student, generator)
    )
    space = {"teacher": teacher, "student": student, "generator": generator, "student_optimizer": student_optimizer}
    with tm.trace(namespace=space) as trace:
        for _ in range(4):
            fake = generator(torch.randn(8, 2)).detach()
            teacher_optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(teacher(torch.cat([torch.randn(8, 3), fake])),
                                               torch.cat([torch.ones(8, 1), torch.zeros(8, 1)])).backward()  # fmt: skip
            teacher_optimizer.step()
            votes = (teacher(fake) > 0).float()
            F.binary_cross_entropy_with_logits(student(fake), votes).backward()
            student_optimizer.step()
            generator_optimizer.zero_grad()
            for parameter in student.parameters():
                parameter.requires_grad_(False)
            (-student(generator(torch.randn(8, 2))).mean()).backward()
            for parameter in student.parameters():
                parameter.requires_grad_(True)
            generator_optimizer.step()
    return trace.report


@ill("TM106", says=("memory order",))
def a_grid_whose_sides_are_swapped():
    """huggingface/diffusers#11309: (2, H, W) is reshaped to (2, 1, W, H)."""
    height, width, size = 4, 6, 8
    project, head = nn.Linear(2, size), nn.Linear(size, 1)
    with tm.trace(namespace={"project": project, "head": head}) as trace:
        for _ in range(3):
            grid = torch.stack(torch.meshgrid(torch.arange(float(width)), torch.arange(float(height)), indexing="xy"))
            grid = grid.reshape([2, 1, width, height])
            places = project(grid.flatten(1).t())
            head(places + torch.randn(height * width, size)).square().mean().backward()
    return trace.report


@ill("TM619", severity="note", says=("in train mode",))
def a_freeze_of_normalisations_that_train_undoes():
    """poppinace/indexnet_matting#35: `freeze_bn()` in `__init__`, and `net.train()` in every epoch."""

    class Matting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU6())
            self.last = nn.Conv2d(4, 1, 1)
            self.freeze_bn()

        def freeze_bn(self):
            for module in self.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.eval()
                    module.weight.requires_grad = module.bias.requires_grad = False

        def forward(self, x):
            return self.last(self.layers(x))

    net = Matting()
    optimizer = torch.optim.Adam([p for p in net.parameters() if p.requires_grad])
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for _ in range(2):
            net.train()
            for images, _ in batches(2, 8):
                optimizer.zero_grad()
                F.l1_loss(net(images), 1 - images).backward()
                optimizer.step()
    return trace.report


@ill("TM614", severity="note", subject="medusa.0", says=("and so does 1 other container",))
def heads_of_a_medusa_that_share_their_blocks():
    """linkedin/Liger-Kernel#269: `[ResBlock(…)] * layers` within each head."""

    class Block(nn.Module):
        def __init__(self, size):
            super().__init__()
            self.linear = nn.Linear(size, size)
            nn.init.zeros_(self.linear.weight)

        def forward(self, x):
            return x + F.silu(self.linear(x))

    medusa = nn.ModuleList([nn.Sequential(*([Block(8)] * 2), nn.Linear(8, 20, bias=False)) for _ in range(2)])
    optimizer = torch.optim.AdamW(medusa.parameters(), lr=1e-3)
    with tm.trace(namespace={"medusa": medusa, "optimizer": optimizer}) as trace:
        for _ in range(3):
            states, words = torch.randn(4, 8), torch.randint(0, 20, (2, 4))
            optimizer.zero_grad()
            sum(F.cross_entropy(head(states), word) for head, word in zip(medusa, words, strict=True)).backward()
            optimizer.step()
    return trace.report


@ill("TM604", severity="error", says=("in no optimizer",))
def a_model_that_is_loaded_after_the_optimizer():
    """pytorch/pytorch#14467: a second model is made and filled, and the optimizer holds the first."""

    def make():
        return nn.Sequential(nn.Linear(64, 24), nn.Hardswish(), nn.Linear(24, 10))

    model = make()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    checkpoint = {"state": copy.deepcopy(model.state_dict())}
    model = make()
    model.load_state_dict(checkpoint["state"])
    with tm.trace(namespace={"model": model, "optimizer": optimizer}) as trace:
        for images, classes in batches(4, 16):
            optimizer.zero_grad()
            F.cross_entropy(model(images.flatten(1)), classes).backward()
            optimizer.step()
    return trace.report


@ill("TM306", severity="error", says=("cut it off",))
def a_generator_judged_without_a_way_back():
    """wangle53/CSA-CDGAN#5: the judge's answer to the fake is detached, and nothing else is in the loss."""
    generator, judge = nn.Linear(4, 8), nn.Linear(8, 1)
    optimizer = torch.optim.Adam(generator.parameters())

    def step():
        pred_fake = judge(generator(torch.randn(6, 4)))
        err_g_adv = F.mse_loss(torch.sigmoid(pred_fake.detach()), torch.ones(6, 1))
        optimizer.zero_grad()
        err_g_adv.backward()
        optimizer.step()

    return refused(step, generator=generator, judge=judge)


@ill("TM303", severity="warning", says=("generator",))
def a_fake_that_was_detached_once_for_both():
    """tamarott/SinGAN#117: the fix for a newer torch detaches the picture that the generator is to learn from."""
    generator, judge = mlp(4, 16, 8), mlp(8, 16, 1)
    optimizer_g, optimizer_d = torch.optim.Adam(generator.parameters()), torch.optim.Adam(judge.parameters())
    space = {"generator": generator, "judge": judge, "optimizer_g": optimizer_g, "optimizer_d": optimizer_d}
    with tm.trace(namespace=space) as trace:
        for _ in range(4):
            fake = generator(torch.randn(6, 4)).detach()
            judge.zero_grad()
            (judge(fake).mean() - judge(torch.randn(6, 8)).mean()).backward()
            optimizer_d.step()
            generator.zero_grad()
            err_g = -judge(fake).mean()
            err_g.backward()
            optimizer_g.step()
    return trace.report


@ill("TM621", severity="warning", says=("removeprefix('model.')",))
def a_lightning_checkpoint_in_a_plain_model():
    """pytorch/examples#1029, the same class: every key begins with `model.`."""
    trained = nn.ModuleDict({"model": mlp(64, 16, 10)})
    model = mlp(64, 16, 10)
    with tm.trace(namespace={"model": model}) as trace:
        model.load_state_dict(trained.state_dict(), strict=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for images, classes in batches(3, 16):
            optimizer.zero_grad()
            F.cross_entropy(model(images.flatten(1)), classes).backward()
            optimizer.step()
    return trace.report


@ill("TM314", severity="note", subject="td_error")
def an_advantage_of_a_cart_and_a_pole():
    """keras-team/keras-io#194, coreylynch/async-rl#8: what weighs the policy still trains the values."""

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.common, self.action, self.value = nn.Linear(4, 16), nn.Linear(16, 2), nn.Linear(16, 1)

        def forward(self, x):
            x = self.common(x).relu()
            return self.action(x), self.value(x).squeeze(-1)

    net = Both()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for _ in range(3):
            scores, values = net(torch.randn(10, 4))
            chosen = torch.distributions.Categorical(logits=scores)
            returns = torch.rand(10)
            td_error = returns - values
            actor_loss = (-chosen.log_prob(chosen.sample()) * td_error).sum()
            loss = actor_loss + F.smooth_l1_loss(values, returns)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@ill("TM611", severity="warning", says=("values above 0",))
def a_divergence_of_raw_scores():
    """haitongli/knowledge-distillation-pytorch#3, the other way: raw scores on the student's side."""
    student, teacher = mlp(64, 16, 10), mlp(64, 32, 10)
    optimizer = torch.optim.Adamax(student.parameters())
    with tm.trace(namespace={"student": student, "teacher": teacher}) as trace:
        for images, _ in batches(3, 16):
            with torch.no_grad():
                wanted = torch.softmax(teacher(images.flatten(1)) / 2, 1)
            optimizer.zero_grad()
            nn.KLDivLoss(reduction="batchmean")(student(images.flatten(1)) / 2, wanted).backward()
            optimizer.step()
    return trace.report
