"""Silent bugs that people reported in public trackers, in what is stepped, cleared, copied and scheduled.

Each program is written afresh as one who did not know the rule would write it; its docstring names the thread.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import clip_grad_norm_

import tensormagic as tm
from tests.corpus.cases import ill
from tests.corpus.data import batches, mlp
from tests.corpus.refusals import refused


@ill("TM309", severity="warning", line="opt.step()", says=("`opt.zero_grad()`",))
def an_example_whose_loss_rises_again():
    """IBM/aihwkit#446: the loss falls five times, and rises from then on."""
    x, y = torch.rand(2, 4), torch.rand(2, 2)
    model = nn.Linear(4, 2)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    with tm.trace(namespace={"model": model, "opt": opt}) as trace:
        for _ in range(10):
            pred = model(x)
            loss = F.mse_loss(pred, y)
            loss.backward()
            opt.step()
    return trace.report


@ill("TM309", line="self.D_optim.step()", says=("zero_grad()",))
def a_critic_of_several_steps_that_is_cleared_once():
    """ajbrock/BigGAN-PyTorch#25: nothing is cleared between the steps of the discriminator."""

    class Game:
        def __init__(self):
            self.G, self.D = mlp(4, 8, 2), mlp(2, 8, 1)
            self.G_optim = torch.optim.Adam(self.G.parameters(), betas=(0.0, 0.9))
            self.D_optim = torch.optim.Adam(self.D.parameters(), betas=(0.0, 0.9))

        def play(self, real):
            self.G_optim.zero_grad()
            self.D_optim.zero_grad()
            for _ in range(4):
                fake = self.G(torch.randn(16, 4)).detach()
                d_loss = F.relu(1 - self.D(real)).mean() + F.relu(1 + self.D(fake)).mean()
                d_loss.backward()
                self.D_optim.step()
            self.G_optim.zero_grad()
            (-self.D(self.G(torch.randn(16, 4))).mean()).backward()
            self.G_optim.step()

    game = Game()
    with tm.trace(namespace={"game": game}) as trace:
        for _ in range(3):
            game.play(torch.randn(16, 2) + 2)
    return trace.report


@ill("TM622", severity="note", subject="optim_sync", says=("makes no step",))
def a_discriminator_whose_update_was_forgotten():
    """PrashanthaTP/wav2mov#3, the same class: a backward, and nobody calls the step of that optimizer."""
    gen, sync = mlp(6, 16, 4), mlp(4, 8, 1)
    optim_gen, optim_sync = torch.optim.Adam(gen.parameters()), torch.optim.Adam(sync.parameters())
    space = {"gen": gen, "sync": sync, "optim_gen": optim_gen, "optim_sync": optim_sync}
    with tm.trace(namespace=space) as trace:
        for _ in range(5):
            audio, frames = torch.randn(8, 6), torch.randn(8, 4)
            optim_sync.zero_grad()
            judged = torch.cat([sync(frames), sync(gen(audio).detach())])
            F.binary_cross_entropy_with_logits(judged, torch.cat([torch.ones(8, 1), torch.zeros(8, 1)])).backward()
            optim_gen.zero_grad()
            (gen(audio) - frames).abs().mean().backward()
            optim_gen.step()
    return trace.report


@ill("TM316", severity="warning", subject="opt_d", says=("gradients of two losses",))
def gradients_that_the_generator_left_in_its_judge():
    """Lightning-AI/pytorch-lightning#591: each optimizer clears its own gradients after its own step."""
    generator, judge = mlp(4, 16, 2), mlp(2, 16, 1)
    opt_g, opt_d = torch.optim.Adam(generator.parameters(), 2e-4), torch.optim.Adam(judge.parameters(), 2e-4)
    ones, zeros = torch.ones(8, 1), torch.zeros(8, 1)

    def training_step(real, number):
        if number == 0:
            return F.binary_cross_entropy_with_logits(judge(generator(torch.randn(8, 4))), ones)
        fake = generator(torch.randn(8, 4)).detach()
        true = F.binary_cross_entropy_with_logits(judge(real), ones)
        return (true + F.binary_cross_entropy_with_logits(judge(fake), zeros)) / 2

    space = {"generator": generator, "judge": judge, "opt_g": opt_g, "opt_d": opt_d}
    with tm.trace(namespace=space) as trace:
        for _ in range(5):
            real = torch.randn(8, 2)
            for number, optimizer in enumerate([opt_g, opt_d]):
                training_step(real, number).backward()
                optimizer.step()
                optimizer.zero_grad()
    return trace.report


@ill("TM316", severity="warning", subject="critic_optimizer")
def a_policy_loss_that_feeds_the_critics():
    """watchernyu/REDQ#3: what the policy's loss left in the critics is in their next step."""
    actor, critic = mlp(3, 16, 1), mlp(4, 16, 1)
    actor_optimizer = torch.optim.Adam(actor.parameters(), 3e-4)
    critic_optimizer = torch.optim.Adam(critic.parameters(), 3e-4)
    space = {"actor": actor, "critic": critic, "actor_optimizer": actor_optimizer, "critic_optimizer": critic_optimizer}
    with tm.trace(namespace=space) as trace:
        for _ in range(5):
            state, action, wanted = torch.randn(16, 3), torch.randn(16, 1), torch.randn(16, 1)
            F.mse_loss(critic(torch.cat([state, action], 1)), wanted).backward()
            critic_optimizer.step()
            critic_optimizer.zero_grad()
            actor_optimizer.zero_grad()
            (-critic(torch.cat([state, actor(state)], 1)).mean()).backward()
            actor_optimizer.step()
    return trace.report


@ill("TM618", severity="warning", line="nn.utils.clip_grad_norm_(model.parameters(), 10)", says=("had used",))
def clipping_after_the_step_of_a_recurrent_model():
    """VGraphRNN/VGRNN#4: in both training examples."""
    model = nn.GRU(4, 8)
    optimizer = torch.optim.Adam(model.parameters())
    with tm.trace(namespace={"model": model}) as trace:
        for _ in range(4):
            optimizer.zero_grad()
            hidden, _last = model(torch.randn(6, 2, 4))
            loss = hidden.square().mean()
            loss.backward()
            optimizer.step()
            nn.utils.clip_grad_norm_(model.parameters(), 10)
    return trace.report


@ill("TM618", severity="warning", line="clip_grad_norm_(net.parameters(), 1.0)", says=("unscale_", "in all of its"))
def clipping_of_gradients_that_are_still_scaled():
    """milesial/Pytorch-UNet#468, pytorch/examples#1196: the clip sees gradients times 65536."""
    net = mlp(64, 32, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    with tm.trace(namespace={"net": net, "optimizer": optimizer, "scaler": scaler}) as trace:
        for images, classes in batches(4):
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(net(images.flatten(1)), classes)
            scaler.scale(loss).backward()
            clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    return trace.report


@ill("TM616", severity="note", says=("optimizers of the same",))
def an_optimizer_for_every_epoch():
    """alan-turing-institute/deepsensor#47: `train_epoch` makes its own Adam, whose averages begin anew."""
    model = mlp(3, 8, 1)

    def train_epoch(tasks):
        opt = torch.optim.Adam(model.parameters(), lr=5e-5)
        for x, y in tasks:
            opt.zero_grad()
            F.mse_loss(model(x), y).backward()
            opt.step()

    with tm.trace(namespace={"model": model}) as trace:
        for _ in range(5):
            train_epoch([(torch.randn(8, 3), torch.randn(8, 1)) for _ in range(3)])
    return trace.report


@ill("TM617", severity="warning", says=("learning rate has fallen",))
def a_scheduler_that_moved_into_the_batch_loop():
    """ivadomed/ivadomed#55: one line further to the right."""
    net = mlp(64, 16, 10)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.01)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for _epoch in range(3):
            for images, classes in batches(5, 32):
                optimizer.zero_grad()
                F.cross_entropy(net(images.flatten(1)), classes).backward()
                optimizer.step()
                scheduler.step()
    return trace.report


@ill("TM604", severity="error", says=("in no optimizer",))
def convolutions_replaced_after_the_optimizer():
    """hustzxd/EfficientPyTorch#1: the model is quantised once its optimizer is there."""

    class Quantised(nn.Conv2d):
        def forward(self, x):
            scale = self.weight.abs().max().detach() / 127
            rounded = self.weight + ((self.weight / scale).round() * scale - self.weight).detach()
            return F.conv2d(x, rounded, self.bias, self.stride, self.padding)

    def replace(parent):
        for name, child in parent.named_children():
            if type(child) is nn.Conv2d:
                new = Quantised(child.in_channels, child.out_channels, child.kernel_size, child.stride, child.padding)
                new.load_state_dict(child.state_dict())
                setattr(parent, name, new)

    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 10, 6), nn.Flatten())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    replace(model)
    with tm.trace(namespace={"model": model, "optimizer": optimizer}) as trace:
        for images, classes in batches(4, 8):
            optimizer.zero_grad()
            F.cross_entropy(model(images), classes).backward()
            optimizer.step()
    return trace.report


@ill("TM602", severity="warning", says=("in no optimizer",))
def a_classifier_that_was_named_wrongly():
    """Ads97/ForwardForward#8: the parameters of the loss module are asked for, and it has none."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.linear_classifier = mlp(64, 32, 16), nn.Linear(16, 10)
            self.classification_loss = nn.CrossEntropyLoss()

        def forward(self, x, y):
            return self.classification_loss(self.linear_classifier(self.body(x).relu()), y)

    model = Net()
    heads = set(model.linear_classifier.parameters())
    optimizer = torch.optim.SGD([
        {"params": [p for p in model.parameters() if p not in heads], "lr": 0.1},
        {"params": list(model.classification_loss.parameters()), "lr": 0.01},
    ])  # fmt: skip
    with tm.trace(namespace={"model": model, "optimizer": optimizer}) as trace:
        for images, classes in batches(4):
            optimizer.zero_grad()
            model(images.flatten(1), classes).backward()
            optimizer.step()
    return trace.report


@ill("TM606", severity="warning", says=("is trained in eval mode",))
def eval_mode_from_the_first_validation_on():
    """joeynmt/joeynmt#184, ermongroup/ncsn#2: a validation in the midst of an epoch calls eval()."""
    model = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(model.parameters())

    def validate(images):
        model.eval()
        with torch.no_grad():
            return model(images.flatten(1)).argmax(1)

    with tm.trace(namespace={"model": model, "optimizer": optimizer}) as trace:
        model.train()
        for step, (images, classes) in enumerate(batches(8, 32)):
            optimizer.zero_grad()
            F.cross_entropy(model(images.flatten(1)), classes).backward()
            optimizer.step()
            if step % 3 == 2:
                validate(images)
    return trace.report


@ill("TM606", severity="warning", says=("is evaluated in train mode",))
def train_mode_within_the_validation():
    """pliang279/MultiBench#26: `model.train()` a few lines after `model.eval()`."""
    model = nn.Sequential(nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10))
    optimizer = torch.optim.AdamW(model.parameters())
    with tm.trace(namespace={"model": model, "optimizer": optimizer}) as trace:
        for _ in range(2):
            for images, classes in batches(3, 32):
                optimizer.zero_grad()
                F.cross_entropy(model(images.flatten(1)), classes).backward()
                optimizer.step()
            with torch.no_grad():
                model.eval()
                wrong = 0
                for images, classes in batches(4, 32):
                    model.train()
                    wrong += int((model(images.flatten(1)).argmax(1) != classes).sum())
    return trace.report


@ill("TM621", severity="warning", says=("own tensors",))
def a_target_network_that_loads_itself():
    """thesouther/MARL#8: `target.load_state_dict(target.state_dict())`."""
    mixer = mlp(4, 8, 1)
    target_mixer = copy.deepcopy(mixer)
    optimizer = torch.optim.RMSprop(mixer.parameters(), lr=5e-4)
    with tm.trace(namespace={"mixer": mixer, "target_mixer": target_mixer}) as trace:
        for step in range(6):
            with torch.no_grad():
                wanted = torch.randn(8, 1) + 0.99 * target_mixer(torch.randn(8, 4))
            optimizer.zero_grad()
            F.mse_loss(mixer(torch.randn(8, 4)), wanted).backward()
            optimizer.step()
            if step % 2:
                target_mixer.load_state_dict(target_mixer.state_dict())
    return trace.report


@ill("TM623", severity="warning", says=("are one module",), also=("TM621",))
def a_target_network_that_is_the_policy():
    """datawhalechina/easy-rl#117: both names came from one assignment."""
    policy_net = target_net = mlp(4, 16, 2)
    optimizer = torch.optim.Adam(policy_net.parameters())
    with tm.trace(namespace={"policy_net": policy_net, "target_net": target_net, "optimizer": optimizer}) as trace:
        for step in range(5):
            state, action = torch.randn(16, 4), torch.randint(0, 2, (16, 1))
            chosen = policy_net(state).gather(1, action)
            best = target_net(torch.randn(16, 4)).max(1, keepdim=True).values.detach()
            optimizer.zero_grad()
            F.mse_loss(chosen, torch.randn(16, 1) + 0.95 * best).backward()
            optimizer.step()
            if step % 2:
                target_net.load_state_dict(policy_net.state_dict())
    return trace.report


@ill("TM306", severity="error", says=("4 parameters of policy do",))
def a_policy_gradient_through_numpy():
    """isayev/ReLeaSE#39: `.cpu().detach().numpy()` made the error about the device go away."""
    policy = mlp(4, 8, 3)
    optimizer = torch.optim.Adam(policy.parameters())

    def episode():
        rl_loss = 0.0
        for reward in (1.0, 0.5, 0.25):
            log_probs = F.log_softmax(policy(torch.randn(1, 4)), dim=1)
            top_i = int(torch.distributions.Categorical(logits=log_probs).sample())
            rl_loss -= log_probs[0, top_i].cpu().detach().numpy() * reward
        optimizer.zero_grad()
        torch.as_tensor(rl_loss).backward()
        optimizer.step()

    return refused(episode, policy=policy, optimizer=optimizer)


@ill("TM615", severity="warning", says=("freeze",))
def a_freeze_by_a_misspelt_attribute():
    """roboflow/rf-detr#357, the same class: the option sets what nobody reads."""
    model = nn.ModuleDict({"encoder": mlp(64, 16, 8), "head": nn.Linear(8, 10)})
    model["encoder"].requires_grad = False
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    with tm.trace(namespace={"model": model, "optimizer": optimizer}) as trace:
        for images, classes in batches(3):
            optimizer.zero_grad()
            F.cross_entropy(model["head"](model["encoder"](images.flatten(1)).relu()), classes).backward()
            optimizer.step()
    return trace.report
