"""Values, conditions and orders of arguments that a call does not take: what is said, and what is to be written."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnoses.test_everyday_errors import explained


class InNumPy(nn.Module):
    """A module whose forward leaves torch."""

    def __init__(self):
        super().__init__()

    def forward(self, x):
        return np.maximum(x, 0)


SPACE = {"torch": torch, "np": np, "nn": nn, "F": F, "InNumPy": InNumPy}
IN_A_ROW = "Python puts an `and` between comparisons in a row, which asks a mask for one truth value"
# The line, what is before it, how the rule begins, what is said to work or to help.
CASES = (
    ("0.5 < x < 1.0", "x = torch.rand(3)", IN_A_ROW, ["(0.5 < x) & (x < 1.0)"]),
    ("x > 0 & x < 2", "x = torch.arange(3)", IN_A_ROW, ["(x > 0) & (x < 2)"]),
    ("x > 0.5 & x < 1.0", "x = torch.rand(3)", "The signs & and | bind more tightly than a comparison, and 0.5 & x",
     ["(x > 0.5) & (x < 1.0)"]),
    ("(x > 0.5) & x < 1.0", "x = torch.rand(3)", "The signs & and | bind more tightly", ["(x > 0.5) & (x < 1.0)"]),
    ("m = x > 0 and x < 2", "x = torch.rand(3)", "Python's `and` chooses one of its sides", ["(x > 0) & (x < 2)"]),
    ("(x > 0.5) & x", "x = torch.rand(3)", "The operator & combines booleans or whole numbers, and x is float32", []),
    ("np.array(losses)", "losses = [torch.ones((), requires_grad=True)]",
     "NumPy does not support gradients, and losses holds tensors that require them",
     ["[each.item() for each in losses]"]),
    ("net(x)", "net, x = InNumPy(), torch.ones(2, requires_grad=True)",
     "NumPy does not support gradients, and x requires them: what is computed in a forward stays in torch",
     ["torch.relu(x)"]),
    ("(x == y).item()", "x = y = torch.ones(8)", "The conversion to one number takes one element",
     ["(x == y).sum().item()"]),
    ("torch.linalg.cholesky(x)", "x = torch.tensor([[1.0, 2.0], [2.0, 1.0]])",
     "A Cholesky factor exists where all eigenvalues are positive",
     ["torch.linalg.eigvalsh(x)  # all positive, or nearly 0"]),
    ("F.ctc_loss(p, y, torch.full((4,), 50), torch.full((4,), 10))",
     "p, y = torch.randn(4, 50, 20).log_softmax(2), torch.ones(4, 10, dtype=torch.long)",
     "Log-probabilities are time × batch × classes, and p (4 × 50 × 20) has its 4 samples first",
     ["p.transpose(0, 1)"]),
    ("nn.CosineEmbeddingLoss()(a, a, y)", "a, y = torch.ones(4, 8), torch.ones(4, 1)",
     "The target is 1 for each pair that should be alike", ["y.squeeze(1)"]),
    ("F.nll_loss(p, y)", "p, y = torch.randn(3, 3).log_softmax(1), torch.eye(3).long()",
     "The target of this loss is one class for each sample", ["y.argmax(1)"]),
    ("F.one_hot(y, num_classes=3)", "y = torch.tensor([1, 2, 3])",
     "Every class in y must be smaller than num_classes, 3, and y counts from 1 to 3: classes count from 0.",
     ["F.one_hot(y - 1, 3)"]),
    ("F.one_hot(y, num_classes=3)", "y = torch.tensor([0, 5])",
     "Every class in y must be smaller than num_classes, 3, and y has 5.", []),
    ("x.mean(dim=2)", "x = torch.ones(4, 3)",
     "Dimensions count from 0: of the 2 of x (4 × 3) the last is 1, or -1", []),
    ("F.scaled_dot_product_attention(q, q, q, attn_mask=m)",
     "q, m = torch.ones(2, 4, 10, 16), torch.ones(2, 10, dtype=torch.bool)",
     "The scores of an attention are batch × heads × queries × keys", ["m[:, None, None, :]"]),
    ("s.masked_fill(m, 0.0)", "s, m = torch.ones(2, 8, 10, 10), torch.ones(2, 10).bool()",
     "The scores of an attention are batch × heads", ["m[:, None, None, :]"]),
    ("F.scaled_dot_product_attention(q, q, q, attn_mask=m)",
     "q, m = torch.ones(2, 4, 10, 16), torch.tensor([0] + [1] * 9).expand(2, 1, 1, 10)",
     "The attention mask is boolean, True where attention is allowed", ["m.bool()"]),
    ("attend(x, x, x, attn_mask=m)",
     "attend, x, m = nn.MultiheadAttention(8, 2, batch_first=True), torch.ones(2, 10, 8), torch.ones(2, 10).bool()",
     "The attention mask has one entry for each query and key, 10 × 10, and m (2 × 10) has one for each sample",
     ["key_padding_mask=m"]),
    ("attend(x, x, x, attn_mask=m)",
     "attend, x, m = nn.MultiheadAttention(8, 2), torch.ones(5, 2, 8), torch.ones(7, 7)",
     "The attention mask has one entry for each query and key, 5 × 5, and m (7 × 7) has more: slice it", []),
    ("nn.init.xavier_uniform_(b)", "b = torch.ones(2)", "This initialisation needs a weight of two dimensions", []),
    ("nn.Dropout(p=50)", "", "The probability of dropout lies between 0 and 1: 0.5 is 50 percent.", []),
    ("nn.EmbeddingBag(100, 8)(i)", "i = torch.ones(20, dtype=torch.long)", "An EmbeddingBag takes one bag in each row",
     ["i.unsqueeze(0)  # one bag of all"]),
    ("net(i, i)", "net, i = nn.Transformer(8, 2, 1, 1), torch.ones(2, 5, dtype=torch.long)",
     "A Transformer takes embedded tokens, with d_model numbers for each", []),
    ("torch.vmap(torch.dot)(torch.ones(4, 3), torch.ones(5, 3))", "",
     "All tensors are mapped over together, and these have 4 and 5 entries there", []),
    ("x.shape(0)", "x = torch.ones(3, 4)", "The shape of a tensor is no function: x.size is.", ["x.size(0)"]),
    ("x.size[0]", "x = torch.ones(3, 4)", "Parentheses are missing: x.size is a method", ["x.size(0)"]),
    # Names that take what a value is unpacked into.
    ("b, c, h, w = x.shape", "x = torch.ones(3, 8, 8)",
     "The shape of x (3 × 8 × 8) holds 3 sizes, but 4 names are given.",
     ["x = x.unsqueeze(0)  # a batch of one"]),
    ("c, h, w = x.size()", "x = torch.ones(2, 3, 8, 8)",
     "The shape of x (2 × 3 × 8 × 8) holds 4 sizes, but 3 names are given.", ["_, c, h, w = x.size()"]),
    ("a, b = x", "x = torch.ones(5, 2)", "Unpacking x (5 × 2) along dimension 0 gives 5 parts, but 2 names are given.",
     ["a, b = x.unbind(1)"]),
    ("for a, b in x: pass", "x = torch.ones(2, 5)",
     "Each part of x (2 × 5) holds 5, but 2 names are given.", []),
    ("out, h, c = lstm(x)", "lstm, x = nn.LSTM(3, 4), torch.ones(5, 2, 3)",
     "An nn.LSTM returns two values, output, (h_n, c_n), but 3 names are given.",
     ["output, (h_n, c_n) = lstm(x)"]),
    ("net(x)", "net, x = nn.Sequential(nn.LSTM(3, 4), nn.Linear(4, 2)), torch.ones(5, 2, 3)",
     "The result of net.0 is a tuple, and nn.Sequential hands it on as it is", []),
    ("net(x)", "net, x = nn.Sequential(nn.GRU(3, 4), nn.BatchNorm1d(4)), torch.ones(5, 2, 3)",
     "The result of net.0 is a tuple, and nn.Sequential hands it on as it is", []),
    ("loss.backward()", "loss = torch.ones(3).mean", "What loss holds is the method mean of a tensor", []),
    ("net(x)", "net, x = InNumPy, torch.ones(1)",
     "A module is made first, then called with a tensor: net is the class InNumPy itself.", ["net = InNumPy()"]),
    ("y.grad.norm()", "x = torch.ones(3, requires_grad=True); y = x * 2; y.sum().backward()",
     "A backward keeps the gradients of leaves alone, and y was computed: y.grad is None.",
     ["y.retain_grad()  # before backward"]),
    ("nn.CrossEntropyLoss()(out, y)", "out, y = None, torch.tensor([0])",
     "The argument input of cross_entropy_loss() must be a Tensor, not None: out is None, which a forward", []),
    ("0.99 * x.max(1)", "x = torch.ones(2, 3)",
     "The call takes one tensor, but the result of `x.max(1)` holds 2 results",
     ["x.max(1).values"]),
    ("x[:, 0] += torch.arange(4.0)", "x = torch.zeros(1, 3).expand(4, 3)", "A result needs separate memory",
     ["x = x.clone()"]),
    ("torch.tensor(a)", "a = np.array(['cat', 'dog'])",
     "A tensor holds numbers of one dtype, and this array holds text",
     []),
    ("net(x)", "net, x = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1)), torch.ones(2, 4).double()",
     "Both must have the same dtype: x is float64 and net.0.weight is float32.", ["x.float()", "net.double()"]),
    ("net(x)", "net, x = nn.Linear(3, 2, device='meta'), torch.ones(4, 3)", "All operands must be on one device", []),
)  # fmt: skip


@pytest.mark.parametrize(("line", "before", "rule", "ways"), CASES, ids=[case[0] for case in CASES])
def test_what_is_said(line, before, rule, ways):
    """The rule, and the code, or none where it is not certain."""
    space = dict(SPACE)
    exec(before, space)
    clash = explained(line, space).mismatch
    assert clash.rule.startswith(rule)
    assert [*clash.works, *clash.maybe] == ways


@pytest.mark.parametrize(
    ("line", "known", "way"),
    [
        ("torch.stack([a, b])", ["torch"], "torch.nn.utils.rnn.pad_sequence([a, b])"),
        ("torch.stack([a, b])", ["torch", "nn"], "nn.utils.rnn.pad_sequence([a, b])"),
        ("torch.nn.BCELoss()(a, a)", ["torch"], "torch.nn.functional.binary_cross_entropy_with_logits(a, a)"),
        ("torch.nn.BCELoss()(a, a)", ["torch", "F"], "F.binary_cross_entropy_with_logits(a, a)"),
    ],
)
def test_code_uses_the_names_that_are_there(line, known, way):
    """Where `F` or `nn` is not imported, torch's modules have their whole names."""
    space = {name: SPACE[name] for name in known} | {"a": torch.full((3,), 2.0), "b": torch.ones(4)}
    assert way in explained(line, space).mismatch.works


def test_what_python_unpacks_is_python_s():
    """Nothing is claimed of lists, and of tensors that the targets were bound to before."""
    space = SPACE | dict.fromkeys("abx", torch.ones(3))
    lines = ("a, b = [1, 2, 3]", "for a, b in [[1, 2, 3]]: pass", "a, b = len(x), 1, 2", "(a, b), c = x, 4")
    assert [line for line in lines if explained(line, space) is not None] == []
