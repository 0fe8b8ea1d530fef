"""What the check of a GPU trains: four networks, each of the size that people give them; small on a CPU."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
STEPS = {"mlp50": 20, "encoder": 16, "gpt2": 8, "resnet50": 10}


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down, self.heads = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), heads

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class GPT(nn.Module):
    def __init__(self, vocabulary, width, layers, heads, length):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks, self.norm = nn.ModuleList(Block(width, heads) for _ in range(layers)), nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Bottleneck(nn.Module):
    def __init__(self, inner, width, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inner, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width),
        )  # fmt: skip
        across = nn.Sequential(nn.Conv2d(inner, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))
        self.skip = across if stride != 1 or inner != 4 * width else nn.Identity()

    def forward(self, x):
        return F.relu(self.body(x) + self.skip(x))


def resnet(depths, base):
    first = [nn.Conv2d(3, base, 7, 2, 3, bias=False), nn.BatchNorm2d(base), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    layers, inner = first, base
    for stage, depth in enumerate(depths):
        for at in range(depth):
            layers.append(Bottleneck(inner, base << stage, 2 if stage and not at else 1))
            inner = 4 * (base << stage)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, 1000))


def _mlp50():
    net = nn.Sequential(*[layer for _ in range(50) for layer in (nn.Linear(64, 64), nn.ReLU())]).to(DEVICE)
    for layer in net[::2]:
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    x = torch.randn(8, 64, device=DEVICE)
    return net, lambda: net(x).square().mean()


def _encoder():
    width, batch, length = (512, 8, 128) if CUDA else (128, 2, 16)
    layer = nn.TransformerEncoderLayer(width, 8, batch_first=True, dropout=0.0)
    net = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).to(DEVICE)
    x = torch.randn(batch, length, width, device=DEVICE)
    return net, lambda: (net(x) - x).square().mean()


def _gpt2():
    net = (GPT(50257, 768, 12, 12, 1024) if CUDA else GPT(500, 64, 2, 2, 64)).to(DEVICE, torch.bfloat16)
    ids = torch.randint(0, 50257 if CUDA else 500, (8, 1025) if CUDA else (2, 33), device=DEVICE)
    return net, lambda: F.cross_entropy(net(ids[:, :-1]).float().flatten(0, 1), ids[:, 1:].flatten())


def _resnet50():
    net = (resnet((3, 4, 6, 3), 64) if CUDA else resnet((1, 1, 1, 1), 8)).to(DEVICE)
    batch, side = (64, 224) if CUDA else (2, 64)
    x, y = torch.randn(batch, 3, side, side, device=DEVICE), torch.randint(0, 1000, (batch,), device=DEVICE)
    return net, lambda: F.cross_entropy(net(x), y)


_MAKE = {"mlp50": _mlp50, "encoder": _encoder, "gpt2": _gpt2, "resnet50": _resnet50}


def workload(name):
    """Return (net, step): a step is forward, backward and the optimizer's; the loss is not read."""
    torch.manual_seed(0)
    net, loss = _MAKE[name]()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        optimizer.step()

    return net, step
