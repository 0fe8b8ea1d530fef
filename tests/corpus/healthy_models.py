"""Models of every common architecture, trained as in tutorials: nothing is wrong with them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.data import batches, train_classifier


@healthy(family="multilayer perceptron")
def multilayer_perceptron():
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10))
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True)
    return trace.report


@healthy
def tanh_perceptron_of_six_layers():
    layers = [layer for _ in range(6) for layer in (nn.Linear(64, 64), nn.Tanh())]
    net = nn.Sequential(*layers, nn.Linear(64, 10))
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True)
    return trace.report


@healthy
def sigmoid_perceptron_of_three_layers():
    net = nn.Sequential(nn.Linear(64, 32), nn.Sigmoid(), nn.Linear(32, 32), nn.Sigmoid(), nn.Linear(32, 10))
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True)
    return trace.report


@healthy(family="convolutional network")
def convolutions_with_a_bias_before_batch_norm():
    """The bias's gradient is zero up to rounding: batch norm takes every mean away again."""
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net)
    return trace.report


class Residual(nn.Module):
    """A residual block with in-place ReLU, as in torchvision."""

    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x
        return self.relu(out)


@healthy(family="residual network")
def residual_network_in_place():
    blocks = [Residual(8) for _ in range(8)]
    net = nn.Sequential(nn.Conv2d(1, 8, 3), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, steps=4)
    return trace.report


@healthy(nearly="TM405")
def residual_blocks_that_start_at_zero():
    """Zero-initialised last batch norms, as in well-trained ResNets: the convolutions before get exactly zero."""
    blocks = [Residual(8) for _ in range(4)]
    for block in blocks:
        nn.init.zeros_(block.bn2.weight)
    net = nn.Sequential(nn.Conv2d(1, 8, 3), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, steps=1)
    return trace.report


class Recurrent(nn.Module):
    """Reads an image row by row."""

    def __init__(self, kind):
        super().__init__()
        self.cell = kind(8, 32, num_layers=2, batch_first=True)
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        return self.head(self.cell(x.squeeze(1))[0][:, -1])


@healthy(family="long short-term memory")
def long_short_term_memory():
    net = Recurrent(nn.LSTM)
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net)
    return trace.report


@healthy(family="gated recurrent unit")
def gated_recurrent_unit():
    net = Recurrent(nn.GRU)
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net)
    return trace.report


@healthy(nearly="TM404")
def recurrence_over_a_hundred_steps_clipped():
    cell, head = nn.RNNCell(8, 16), nn.Linear(16, 1)
    optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.01)
    with tm.trace(namespace={"cell": cell, "head": head}) as trace:
        for _ in range(3):
            hidden = torch.zeros(4, 16)
            for _ in range(100):
                hidden = cell(torch.randn(4, 8), hidden)
            optimizer.zero_grad()
            head(hidden).square().mean().backward()
            nn.utils.clip_grad_norm_(cell.parameters(), 1.0)
            optimizer.step()
    return trace.report


class Encoder(nn.Module):
    """A transformer encoder over the rows of an image; the key part of its in_proj bias gets a gradient near zero."""

    def __init__(self, layers):
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
        self.embed = nn.Linear(8, 32)
        self.layers = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        return self.head(self.layers(self.embed(x.squeeze(1))).mean(1))


@healthy(family="transformer encoder")
def transformer_encoder():
    net = Encoder(3)
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, steps=4, lr=1e-3)
    return trace.report


class Attention(nn.Module):
    """Self-attention with separate projections: the gradient of the key's bias is zero by construction."""

    def __init__(self, width):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x):
        return F.scaled_dot_product_attention(self.query(x), self.key(x), self.value(x))


@healthy(nearly="TM403")
def attention_with_a_key_bias():
    net = nn.Sequential(Attention(8), nn.Flatten(), nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4):
            optimizer.zero_grad()
            F.cross_entropy(net(images.squeeze(1)), classes).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM402")
def attention_with_a_mask_of_minus_infinity():
    """Masked scores are -inf before the softmax: meant, and finite after it."""
    net = Attention(8)
    mask = torch.full((8, 8), -torch.inf).triu(1)
    with tm.trace(namespace={"net": net}) as trace:
        for images, _ in batches(3):
            x = images.squeeze(1)
            scores = net.query(x) @ net.key(x).transpose(1, 2) + mask
            (scores.softmax(-1) @ net.value(x)).square().mean().backward()
    return trace.report


@healthy
def sparse_embedding():
    table, head = nn.Embedding(1000, 16, sparse=True), nn.Linear(16, 1)
    optimizer = torch.optim.SparseAdam(table.parameters(), lr=0.01)
    with tm.trace(namespace={"table": table, "head": head}) as trace:
        for _ in range(5):
            optimizer.zero_grad()
            head(table(torch.randint(1000, (32, 5))).mean(1)).square().mean().backward()
            optimizer.step()
    return trace.report


@healthy
def a_dense_embedding_of_many_rare_words():
    """Only a few rows get a gradient: per element it is small, and that is no illness."""
    table, head = nn.Embedding(50_000, 8), nn.Linear(8, 2)
    with tm.trace(namespace={"table": table, "head": head}) as trace:
        for _ in range(4):
            F.cross_entropy(head(table(torch.randint(50_000, (16,)))), torch.randint(2, (16,))).backward()
    return trace.report


class LanguageModel(nn.Module):
    """Input and output embedding are one and the same weight."""

    def __init__(self):
        super().__init__()
        self.embed, self.cell = nn.Embedding(50, 16), nn.GRU(16, 16, batch_first=True)
        self.decode = nn.Linear(16, 50, bias=False)
        self.decode.weight = self.embed.weight

    def forward(self, tokens):
        return self.decode(self.cell(self.embed(tokens))[0])


@healthy(family="recurrent language model")
def tied_weights():
    net = LanguageModel()
    optimizer = torch.optim.Adam(net.parameters())
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(4):
            tokens = torch.randint(50, (8, 12))
            optimizer.zero_grad()
            F.cross_entropy(net(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
            optimizer.step()
    return trace.report


@healthy(family="variational autoencoder")
def variational_autoencoder():
    encode, decode = nn.Linear(64, 16), nn.Linear(8, 64)
    optimizer = torch.optim.Adam([*encode.parameters(), *decode.parameters()])
    with tm.trace(namespace={"encode": encode, "decode": decode}) as trace:
        for images, _ in batches(4):
            x = images.flatten(1)
            mean, log_variance = encode(x).chunk(2, 1)
            z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
            divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum()
            optimizer.zero_grad()
            (F.binary_cross_entropy_with_logits(decode(z), x, reduction="sum") + divergence).backward()
            optimizer.step()
    return trace.report


class Decoder(nn.Module):
    """A small GPT with its usual initialisation: the gradients of queries and keys start thousands of times smaller."""

    def __init__(self, layers=4, width=32):
        super().__init__()
        self.embed, self.place = nn.Embedding(50, width), nn.Embedding(16, width)
        self.query, self.key, self.value, self.up = (
            nn.ModuleList(nn.Linear(width, width) for _ in range(layers)) for _ in range(4)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))
        self.head = nn.Linear(width, 50, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens):
        x = self.embed(tokens) + self.place(torch.arange(tokens.shape[1]))
        for at, up in enumerate(self.up):
            h = self.norms[2 * at](x)
            x = x + F.scaled_dot_product_attention(
                self.query[at](h), self.key[at](h), self.value[at](h), is_causal=True
            )
            x = x + F.gelu(up(self.norms[2 * at + 1](x)))
        return self.head(x)


@healthy
def a_language_model_with_a_summed_loss():
    net = Decoder()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    tokens = torch.randint(50, (8, 17))
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(6):
            optimizer.zero_grad()
            scores = net(tokens[:, :-1]).flatten(0, 1)
            F.cross_entropy(scores, tokens[:, 1:].flatten(), reduction="sum").backward()
            optimizer.step()
    return trace.report
