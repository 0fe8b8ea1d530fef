"""What is said to help a refused call: it keeps the layer as it was written, and never trains on what is not meant."""

from __future__ import annotations

import linecache
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tensormagic.api.diagnosing import explain_error

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def refused(program: str, *, watched: bool = True) -> Any:
    """Run a program that torch refuses, and return its explanation."""
    filename = f"<cell {len(linecache.cache)}>"
    linecache.cache[filename] = (len(program), None, program.splitlines(keepends=True), filename)
    space: dict[str, Any] = {"torch": torch, "nn": nn, "F": F}
    told = tm.explain(namespace=space)
    with pytest.raises((RuntimeError, ValueError, AssertionError, TypeError)) as raised:  # noqa: PT012
        if watched:
            with told:
                exec(compile(program, filename, "exec"), space)
        exec(compile(program, filename, "exec"), space)
    return told.report if watched else explain_error(raised.value, namespace=space)


def in_module(init: str, forward: str, call: str = "net(torch.ones(2, 3))") -> str:
    """Return a program: a module of these two methods, and a call of it."""
    made, run = init.replace("; ", "\n        "), forward.replace("; ", "\n        ")
    return (
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        "
        f"{made}\n    def forward(self, x):\n        {run}\nnet = Net()\ny = {call}\n"
    )


# Each: the program, and the remedies, those that were tried first.
REMEDIES = {
    "a stem with stride": (
        in_module(
            "self.conv1 = nn.Conv2d(3, 64, kernel_size=7, stride=2, padding=3, bias=False)",
            "return self.conv1(x)",
            "net(torch.ones(4, 1, 64, 64))",
        ),
        ["nn.Conv2d(1, 64, kernel_size=7, stride=2, padding=3, bias=False)"],
    ),
    "a layer of a chain": (
        ("net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1, bias=False))\n"
        "y = net(torch.ones(2, 3, 32, 32))"),
        ["nn.Conv2d(16, 64, 3, 2, 1, bias=False)"],
    ),
    "no bias": (
        "head = nn.Linear(2 * 256, 10, bias=False)\nhead(torch.ones(4, 256))",
        ["nn.Linear(256, 10, bias=False)"],
    ),
    "of which no line is known": (
        "head = getattr(nn, 'Linear')(512, 10, bias=False)\nhead(torch.ones(4, 256))",
        ["nn.Linear(in_features=256, out_features=10, bias=False)"],
    ),
    "two of one text": (
        "a, b = nn.Linear(8, 4), nn.Linear(8, 2)\nb(torch.ones(4, 6))",
        ["nn.Linear(6, 2)"],
    ),
    "no affine": (
        "norm = nn.BatchNorm2d(32, affine=False, eps=1e-3)\nnorm(torch.ones(2, 16, 6, 6))",
        ["nn.BatchNorm2d(16, affine=False, eps=0.001)"],
    ),
    "a layer norm": (
        "norm = nn.LayerNorm(64, eps=1e-6, elementwise_affine=False)\nnorm(torch.ones(2, 10, 32))",
        ["nn.LayerNorm(32, eps=1e-06, elementwise_affine=False)"],
    ),
    "each channel by itself": (
        "conv = nn.Conv2d(16, 32, 3, groups=16, padding=1)\nconv(torch.ones(2, 32, 8, 8))",
        ["nn.Conv2d(32, 32, 3, groups=32, padding=1)"],
    ),
    "a transposed convolution": (
        "up = nn.ConvTranspose2d(128, 64, 2, stride=2)\nup(torch.ones(2, 256, 8, 8))",
        ["nn.ConvTranspose2d(256, 64, 2, stride=2)"],
    ),
    "an argument with a name": (
        in_module("n = 5; self.lstm = nn.LSTM(n, 8, batch_first=True)", "return self.lstm(x)",
                  "net(torch.ones(2, 6, 7))"),
        ["nn.LSTM(n, 8, batch_first=True)  # with n = 7"],
    ),
    "as many images as channels": (
        "conv = nn.Conv2d(3, 8, 3, padding=1)\nconv(torch.ones(3, 1, 28, 28))",
        ["nn.Conv2d(1, 8, 3, padding=1)"],
    ),
    "a map as large as the channels": (
        "conv = nn.Conv2d(16, 8, 3)\nx = torch.ones(2, 8, 16, 16)\nconv(x)",
        ["nn.Conv2d(8, 8, 3)"],
    ),
    "frames before channels": (
        "net = nn.Conv3d(3, 8, 3)\nclip = torch.ones(2, 16, 3, 32, 32)\nnet(clip)",
        ["clip.transpose(1, 2)"],
    ),
    "features last": (
        "x = torch.ones(4, 9, 16)\nbn = nn.BatchNorm1d(16)\nbn(x)",
        ["x.transpose(1, 2)"],
    ),
    "no Flatten": (
        ("net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Linear(8 * 26 * 26, 10))\n"
        "x = torch.ones(4, 1, 28, 28)\nnet(x)"),
        ["nn.Flatten()  # before net[2]"],
    ),
    "the batch flattened as well": (
        in_module("self.fc = nn.Linear(12, 3)", "x = torch.flatten(x); return self.fc(x)", "net(torch.ones(2, 3, 4))"),
        ["torch.flatten(x, 1)  # where x is flattened"],
    ),
    "the next token": (
        ("ids = torch.ones(4, 16, dtype=torch.long)\nlogits = torch.ones(4, 15, 50)\n"
        "F.cross_entropy(logits.view(-1, 50), ids.view(-1))"),
        ["ids[:, 1:].reshape(-1)  # 64 is 4 × 16, and 60 is 4 × 15"],
    ),
    "a class token": (
        in_module("self.cls = nn.Parameter(torch.zeros(1, 1, 8))", "return torch.cat((self.cls, x), dim=1)",
                  "net(torch.ones(4, 6, 8))"),
        ["self.cls.expand(x.size(0), -1, -1)"],
    ),
    "a shortcut": (
        in_module("self.conv = nn.Conv2d(8, 16, 3, stride=2, padding=1)", "out = self.conv(x); out += x; return out",
                  "net(torch.ones(2, 8, 16, 16))"),
        ["nn.Conv2d(8, 16, 1, stride=2)  # made once, applied to x"],
    ),
    "a mask of the batch": (
        ("attn = nn.MultiheadAttention(64, 8)\nx = torch.ones(2, 10, 64)\npad = torch.zeros(2, 10).bool()\n"
        "attn(x, x, x, key_padding_mask=pad)"),
        ["nn.MultiheadAttention(64, 8, batch_first=True)  # if x is (batch, sequence, features)",
         "pad.T  # if pad is (keys, batch)"],
    ),
    "a mask of an encoder": (
        ("enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4), 1)\nx = torch.ones(4, 7, 32)\n"
        "pad = torch.zeros(4, 7, dtype=torch.bool)\nenc(x, src_key_padding_mask=pad)"),
        ["nn.TransformerEncoderLayer(32, 4, batch_first=True)  # if x is (batch, sequence, features)",
         "pad.T  # if pad is (keys, batch)"],
    ),
    "the wrong dimension asked": (
        "pe, x = torch.ones(1, 50, 16), torch.ones(4, 9, 16)\nx + pe[:, :x.size(0)]",
        ["pe[:, :x.size(1)]"],
    ),
    "a state of two directions": (
        "gru = nn.GRU(16, 32, batch_first=True)\nhidden = torch.rand(2, 4, 32)\ngru(torch.ones(4, 5, 16), hidden)",
        ["hidden[0::2] + hidden[1::2]  # if it is of two directions", "hidden[-1:]  # if it is of twice the layers"],
    ),
    "a smaller last batch": (
        "gru = nn.GRU(6, 12, batch_first=True)\nx = torch.ones(2, 7, 6)\ngru(x, torch.zeros(1, 4, 12))",
        ["torch.zeros(1, x.size(0), 12)"],
    ),
    "a state that holds something": (
        "gru = nn.GRU(6, 12, batch_first=True)\nx = torch.ones(2, 7, 6)\ngru(x, torch.ones(1, 4, 12))",
        [],
    ),
    "a view with names": (
        "B, T, C = 2, 6, 32\ny = torch.ones(2, 4, 6, 8)\ny.transpose(1, 2).view(B, T, C)",
        ["y.transpose(1, 2).reshape(B, T, C)", "y.transpose(1, 2).contiguous().view(B, T, C)"],
    ),
    "images against rows": (
        "recon, images = torch.rand(16, 784), torch.rand(16, 1, 28, 28)\nF.binary_cross_entropy(recon, images)",
        ["images.flatten(1)"],
    ),
    "classes for a loss of numbers": (
        "out, y = torch.ones(64, 10), torch.zeros(64, dtype=torch.long)\nF.mse_loss(out, y)",
        ["F.cross_entropy(out, y)", "F.mse_loss(out, F.one_hot(y, 10).float())"],
    ),
    "what an argmax chose": (
        "out, y = torch.ones(64, 10), torch.zeros(64, dtype=torch.long)\nF.mse_loss(out.argmax(1), y)",
        ["F.cross_entropy(out, y)"],
    ),
    "one number of repeats": ("x = torch.ones(3, 4)\nx.repeat(2)", ["x.repeat(2, 1)", "x.repeat(1, 2)"]),
    "an image without a batch": (
        "img = torch.ones(3, 32, 32)\nF.interpolate(img, size=(64, 64), mode='bilinear')",
        ["img.unsqueeze(0)"],
    ),
    "an image with its channels last": (
        "img = torch.ones(32, 32, 3)\nF.interpolate(img, size=(64, 64), mode='bilinear')",
        ["img.permute(2, 0, 1).unsqueeze(0)"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REMEDIES)
def test_what_is_said_to_help(name):
    """It is the user's own code with one thing changed, or two possibilities with what decides between them."""
    program, remedies = REMEDIES[name]
    found = refused(program).mismatch
    assert [*found.works, *found.maybe] == remedies


# Each: the program, and a part of what is said where no code is certain.
FACTS = {
    "rows for one sample": (
        (
            "outputs = torch.ones(4, 4, 10).view(-1, 10)\nlabels = torch.zeros(4, dtype=torch.long)\n"
            "F.cross_entropy(outputs, labels)"
        ),
        "16 is 4 × 4: outputs has 4 for each of the 4 in labels. A `view(-1, …)` puts all that does not fit",
    ),
    "numbers for one label": (
        "output, label = torch.rand(16, 25).view(-1), torch.ones(16)\nF.binary_cross_entropy(output, label)",
        "400 is 16 × 25: output has 25 for each of the 16 in label.",
    ),
    "two tensors": ("x, y = torch.ones(3, 4), torch.ones(3, 5)\nx + y", "Look at where x and y are made."),
    "a parameter": (
        in_module("self.w = nn.Parameter(torch.ones(16, 8))", "return x @ x.T @ x @ self.w"),
        "Look at where `x @ x.T @ x` and net.w are made.",
    ),
    "weights of classes": (
        "crit = nn.CrossEntropyLoss(weight=torch.ones(2))\ncrit(torch.ones(4, 3), torch.zeros(4).long())",
        "Look at where crit.weight is made: its sizes come from there.",
    ),
    "weights with a name": (
        "w = torch.ones(2)\ncrit = nn.CrossEntropyLoss(weight=w)\ncrit(torch.ones(4, 3), torch.zeros(4).long())",
        "Look at where ",
    ),
    "sizes asked for": (
        "x = torch.ones(4, 10)\nx.view(4, 3, 4)",
        "Change the sizes in `x.view(4, 3, 4)`, or look at where x is made.",
    ),
    "an order": (
        "x = torch.ones(3, 8, 8)\nx.permute(0, 3, 1, 2)",
        "Change the sizes in `x.permute(0, 3, 1, 2)`, or look at where x is made.",
    ),
}


@pytest.mark.parametrize("name", FACTS)
def test_where_no_code_is_certain_the_facts_are_said(name):
    """No size is cut off to fit another one."""
    program, says = FACTS[name]
    (finding,) = refused(program).findings
    assert says in finding.remedy
    assert "slice" not in finding.remedy


def test_the_batches_of_an_attention_are_named_as_the_call_gives_them():
    """Torch says it of what it made of the key."""
    report = refused(
        "attn = nn.MultiheadAttention(32, 4, batch_first=True)\n"
        "text, image = torch.ones(4, 10, 32), torch.ones(2, 49, 32)\nattn(text, image, image)"
    )
    assert report.mismatch.rule == (
        "Query, key and value must have the same batch size: it is 4 in text, and 2 in image."
    )
    assert report.findings[0].remedy == ""


def test_a_mask_is_shown_as_it_was_given():
    """Torch has made numbers of it before it looks at its shape."""
    report = refused(REMEDIES["a mask of the batch"][0], watched=False)
    assert [one.dtype for one in report.operands if one.name == "pad"] == ["bool"]


def test_the_layers_of_a_sequential_are_those_that_it_was_given():
    """Its first parameter is itself."""
    report = refused("layers = [nn.ReLU()]\nnn.Sequential(layers)", watched=False)
    assert [(one.name, one.text) for one in report.operands] == [("", "[the module ReLU]")]


def test_a_shortcut_is_seen_without_its_block():
    """Nobody watched: only the message knows the channels of what the block computed."""
    program = in_module("self.conv = nn.Conv2d(8, 16, 1)", "return self.conv(x) + x", "net(torch.ones(2, 8, 4, 4))")
    assert refused(program, watched=False).mismatch.maybe == ("nn.Conv2d(8, 16, 1)  # made once, applied to x",)


def test_a_score_never_needs_to_be_whole_numbers():
    """Of a loss between scores and whole numbers, the target is what does not fit."""
    report = refused("x, y = torch.rand(8, 1), torch.ones(8, 1).long()\nF.binary_cross_entropy(x, y)")
    assert [report.operands[part.operand].name for part in report.mismatch.parts] == ["y"]
