"""What did not fit in a failed call: the operands and dimensions, the rule, and what would have worked."""

from __future__ import annotations

import dataclasses
import random

import pytest

from tensormagic.diagnoses.mismatches import mismatch_of
from tests.diagnoses.failed_calls import failed, plain, tensor

DIFFER = "The size of tensor a ({}) must match the size of tensor b ({}) at non-singleton dimension {}"
PRODUCT = "mat1 and mat2 shapes cannot be multiplied ({} and {})"
VIEW = "view size is not compatible with input tensor's size and stride (at least one dimension spans across two ..."
DEVICE = (
    "Expected all tensors to be on the same device, but got mat2 is on cuda:0, different from other tensors on cpu "
    "(when checking argument in method wrapper_CUDA_mm)"
)
FC = tensor("net.fc1.weight", 10, 128, role="weight", requires_grad=True)

# Each: the failed call, the kind, (operand, dimension, got, expected) of each part, words of the rule, what works.
CASES = {
    "broadcasting": (
        failed("Tensor.add", DIFFER.format(4, 3, 1), tensor("a", 3, 4), tensor("b", 3)),
        "shape", [(0, 1, "4", "3"), (1, 0, "3", "4")], "4 against 3 in the last dimension", ["b.unsqueeze(1)"],
    ),
    "broadcasting in two dimensions": (
        failed("torch.where", DIFFER.format(4, 3, 1), tensor("m", 3, 4, dtype="bool"), tensor("a", 3, 4),
               tensor("b", 4, 3)),
        "shape", [(0, 1, "4", "3"), (2, 1, "3", "4"), (0, 0, "3", "4"), (2, 0, "4", "3")],
        "m (3 × 4) and b (4 × 3) have 4 against 3 in dimension 1 and 3 against 4 in dimension 0", ["b.T"],
    ),
    "the batch of a product": (
        failed("Tensor.matmul", DIFFER.format(2, 3, 0), tensor("a", 2, 3, 4), tensor("b", 3, 4, 5)),
        "shape", [(0, 0, "2", "3"), (1, 0, "3", "2")], "Batch dimensions", [],
    ),
    "in place": (
        failed("Tensor.add_", "output with shape [3, 1] doesn't match the broadcast shape [3, 4]", tensor("a", 3, 1),
               tensor("b", 3, 4)),
        "shape", [(0, 1, "1", "4"), (1, None, "3 × 4", "3 × 1")], "keeps the shape of what it writes to", ["a = a + b"],
    ),
    "a product": (
        failed("torch.mm", PRODUCT.format("3x4", "3x4"), tensor("a", 3, 4), tensor("b", 3, 4)),
        "shape", [(0, 1, "4", "3"), (1, 0, "3", "4")], "the first dimension of b (3 × 4) is 3",
        ["a @ b.T", "a.T @ b"],
    ),
    "a linear layer": (
        failed("torch.nn.functional.linear", PRODUCT.format("32x784", "128x10"), tensor("x", 32, 784), FC,
               layer_call="nn.Linear(128, 10, bias=False)"),
        "shape", [(0, 1, "784", "128"), (1, 1, "128", "784")],
        "The last dimension of x (32 × 784) is 784, but net.fc1 takes 128 (in_features).",
        ["nn.Linear(784, 10, bias=False)"],
    ),
    "a linear layer without flatten": (
        failed("torch.nn.functional.linear", PRODUCT.format("64x4", "128x10"), tensor("x", 2, 32, 4), FC),
        "shape", [(0, 2, "4", "128"), (1, 1, "128", "4")], "net.fc1 takes 128",
        ["x.flatten(1)"],
    ),
    "channels last": (
        failed("torch.nn.functional.conv2d", "Given groups=1, weight of size [8, 3, 5, 5], expected "
               "input[4, 32, 32, 3] to have 3 channels, but got 32 channels instead", tensor("x", 4, 32, 32, 3),
               tensor("net.conv.weight", 8, 3, 5, 5, role="weight")),
        "shape", [(0, 1, "32", "3"), (1, 1, "3", "32")], "there are 32 of them, but net.conv takes 3",
        ["x.permute(0, 3, 1, 2)"],
    ),
    "joining": (
        failed("torch.cat", "Sizes of tensors must match except in dimension 0. Expected size 3 but got size 4 "
               "for tensor number 1 in the list.", tensor("a", 2, 3, place="tensors[0]"),
               tensor("b", 2, 4, place="tensors[1]")),
        "shape", [(0, 1, "3", "4"), (1, 1, "4", "3")], "along which they are joined", ["torch.cat([a, b], dim=1)"],
    ),
    "a view": (
        failed("Tensor.view", VIEW, tensor("x", 6, 4, stride=(1, 6)), plain("(2, -1)")),
        "view", [(0, 0, "stride 1", "a stride of 24"), (0, 1, "stride 6", "")],
        "which are not adjacent in memory: the stride of dimension 0 is 1, not 4 × 6 = 24.",
        ["x.reshape(2, -1)", "x.contiguous().view(2, -1)"],
    ),
    "heads that must be put back first": (
        failed("Tensor.view", VIEW, tensor("x", 2, 4, 5, 8, stride=(160, 8, 32, 1)), plain("(2, 5, 32)")),
        "view", [(0, 2, "stride 32", "a stride of 8"), (0, 3, "stride 1", "")], "would merge dimensions 2 and 3",
        ["x.transpose(1, 2).view(2, 5, 32)"],
    ),
    "a view of another size": (
        failed("Tensor.view", "shape '[-1, 256]' is invalid for input of size 150", tensor("x", 2, 3, 5, 5),
               plain("(-1, 256)")),
        "shape", [(0, None, "150 elements", "a multiple of 256 elements")], "cannot be divided by the 256",
        ["x.flatten(1)"],
    ),
    "an index": (
        failed("Tensor.__getitem__", "index 7 is out of bounds for dimension 1 with size 4", tensor("x", 3, 4),
               plain("(0, 7)"), kind="IndexError"),
        "index", [(0, 1, "4", "more than 7")], "has the indices 0 to 3, or -4 to -1; 7 is not one of them", [],
    ),
    "a word that is not in the table": (
        failed("torch.nn.functional.embedding", "index out of range in self", tensor("tokens", 2, 5, dtype="int64"),
               tensor("net.words.weight", 100, 8), kind="IndexError"),
        "index", [(0, None, "", "0 to 99"), (1, 0, "100", "")], "net.words has 100 rows",
        ["tokens.max()  # at most 99", "tokens.min()  # at least 0"],
    ),
    "labels as floats": (
        failed("torch.nn.functional.cross_entropy", "expected target dtype to be Long or Byte, but got Float",
               tensor("logits", 8, 10), tensor("y", 8)),
        "dtype", [(1, None, "float32", "int64")], "y is float32", ["y.long()"],
    ),
    "labels with a dimension too many": (
        failed("torch.nn.functional.cross_entropy", "0D or 1D target tensor expected, multi-target not supported",
               tensor("logits", 8, 10), tensor("y", 8, 1, dtype="int64")),
        "shape", [(1, None, "8 × 1", "8")], "the target has the shape 8 (class indices)", ["y.squeeze(1)"],
    ),
    "labels from 1": (
        failed("torch.nn.functional.cross_entropy", "Target 10 is out of bounds.", tensor("logits", 8, 10),
               tensor("y", 8, dtype="int64"), kind="IndexError"),
        "index", [(1, None, "10", "0 to 9"), (0, 1, "10", "more than 10")], "y holds 10",
        ["y - 1", "nn.Linear(…, 11)  # one output for each class"],
    ),
    "float64 from NumPy": (
        failed("torch.nn.functional.linear", "mat1 and mat2 must have the same dtype, but got Double and Float",
               tensor("x", 4, 128, dtype="float64"), FC),
        "dtype", [(0, None, "float64", "float32"), (1, None, "float32", "float64")],
        "x is float64 and net.fc1.weight is float32", ["x.float()", "net.double()"],
    ),
    "a mean of whole numbers": (
        failed("Tensor.mean", "mean(): could not infer output dtype. Input dtype must be either a floating point or "
               "complex dtype. Got: Long", tensor("x", 3, dtype="int64")),
        "dtype", [(0, None, "int64", "float32")], "takes floating point numbers, and x is int64", ["x.float()"],
    ),
    "devices": (
        failed("torch.nn.functional.linear", DEVICE, tensor("x", 4, 128),
               tensor("net.fc1.weight", 10, 128, role="weight", device="cuda:0")),
        "device", [(0, None, "cpu", "cuda:0"), (1, None, "cuda:0", "cpu")], "x is on cpu; net.fc1.weight is on cuda:0",
        ["x.to(net.fc1.weight.device)"],
    ),
    "a model left on the CPU": (
        failed("torch.nn.functional.linear", DEVICE, tensor("x", 4, 128, device="cuda:0"), FC),
        "device", [(0, None, "cuda:0", "cpu"), (1, None, "cpu", "cuda:0")], "x is on cuda:0; net.fc1.weight is on cpu",
        ["x.to(net.fc1.weight.device)", 'net.to("cuda:0")'],
    ),
    "a convolution left on the CPU": (
        failed("torch.nn.functional.conv2d", "Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) "
               "should be the same", tensor("x", 1, 3, 8, 8, device="cuda:0"),
               tensor("net.conv.weight", 4, 3, 3, 3, role="weight"), tensor("net.conv.bias", 4, role="bias")),
        "device", [(0, None, "cuda:0", "cpu"), (1, None, "cpu", "cuda:0"), (2, None, "cpu", "cuda:0")],
        "x is on cuda:0; net.conv.weight and net.conv.bias are on cpu",
        ["x.to(net.conv.weight.device)", 'net.to("cuda:0")'],
    ),
    "half precision on a GPU": (
        failed("torch.nn.functional.conv2d", "Input type (torch.cuda.FloatTensor) and weight type "
               "(torch.cuda.HalfTensor) should be the same", tensor("x", 1, 3, 8, 8, device="cuda:0"),
               tensor("net.conv.weight", 4, 3, 3, 3, dtype="float16", role="weight", device="cuda:0")),
        "dtype", [(0, None, "float32", "float16"), (1, None, "float16", "float32")],
        "x is float32 and net.conv.weight is float16", ["x.half()", "net.float()"],
    ),
    "a product in two precisions": (
        failed("torch.mm", "expected m1 and m2 to have the same dtype, but got: float != c10::BFloat16",
               tensor("a", 3, 4), tensor("b", 4, 5, dtype="bfloat16")),
        "dtype", [(0, None, "float32", "bfloat16"), (1, None, "bfloat16", "float32")],
        "a is float32 and b is bfloat16", ["b.float()", "a.bfloat16()"],
    ),
    "an Apple GPU": (
        failed("torch.nn.functional.linear", "Tensor for argument weight is on cpu but expected on mps",
               tensor("x", 4, 128, device="mps:0"), FC),
        "device", [(0, None, "mps:0", "cpu"), (1, None, "cpu", "mps:0")], "x is on mps:0; net.fc1.weight is on cpu",
        ["x.to(net.fc1.weight.device)", 'net.to("mps:0")'],
    ),
    "devices of fake tensors": (
        failed("Tensor.add", "Unhandled FakeTensor Device Propagation for aten.add.Tensor, found two different devices "
               "cpu, cuda:0", tensor("a", 3), tensor("b", 3, device="cuda:0")),
        "device", [(0, None, "cpu", "cuda:0"), (1, None, "cuda:0", "cpu")], "a is on cpu; b is on cuda:0",
        ["a.to(b.device)"],
    ),
    "a number on the CPU beside two devices": (
        failed("torch.where", DEVICE, tensor("m", 3, dtype="bool", device="cuda:0"), tensor("zero", device="cpu"),
               tensor("a", 3, device="cuda:1")),
        "device", [(0, None, "cuda:0", "cuda:1"), (2, None, "cuda:1", "cuda:0")], "m is on cuda:0; a is on cuda:1",
        ["m.to(a.device)"],
    ),
    "an image without a batch, as older versions say it": (
        failed("torch.nn.functional.conv2d", "Expected 4-dimensional input for 4-dimensional weight [8, 3, 7, 7], but "
               "got 3-dimensional input of size [3, 224, 224] instead", tensor("image", 3, 224, 224),
               tensor("net.stem.weight", 8, 3, 7, 7, role="weight")),
        "shape", [(0, None, "3-D", "4-D")], "The input of net.stem has 4 dimensions", ["image.unsqueeze(0)"],
    ),
    "a product, as older versions say it": (
        failed("torch.nn.functional.linear", "size mismatch, m1: [32 x 784], m2: [128 x 10]",
               tensor("x", 32, 784), FC, layer_call="nn.Linear(in_features=128, out_features=10, bias=True)"),
        "shape", [(0, 1, "784", "128"), (1, 1, "128", "784")], "net.fc1 takes 128",
        ["nn.Linear(in_features=784, out_features=10, bias=True)"],
    ),
    "one sample without its batch": (
        failed("torch.nn.functional.cross_entropy", "size mismatch (got input: [10], target: [256])",
               tensor("logits", 10),
               tensor("y", 256, dtype="int64")),
        "shape", [(1, None, "256", "0-dimensional")], "whose dimension 0 is the 10 classes", [],
    ),
    "states without layers": (
        failed("nn.LSTM", "For batched 3-D input, hx and cx should also be 3-D but got (2-D, 2-D) tensors",
               tensor("x", 5, 3, 10), tensor("h", 3, 20, role="hx", place="hx[0]"),
               tensor("c", 3, 20, role="hx", place="hx[1]")),
        "shape", [(1, None, "2-D", "3-D"), (2, None, "2-D", "3-D")], "h (3 × 20) has 2",
        ["h.unsqueeze(0)", "c.unsqueeze(0)"],
    ),
    "a generator": (
        failed("torch.randn", "Expected a 'cuda' device type for generator but found 'cpu'", plain("(3,)"),
               plain("torch.Generator", role="generator")),
        "device", [(1, None, "cpu", "cuda")], "A generator draws numbers on its own device only",
        ['generator = torch.Generator(device="cuda").manual_seed(0)'],
    ),
    "a list where a tensor belongs": (
        failed("torch.mean", "mean(): argument 'input' (position 1) must be Tensor, not list", plain("[1.0, 2.0]"),
               kind="TypeError"),
        "argument", [(0, None, "list", "Tensor")], "must be a Tensor, not a list", ["torch.as_tensor([1.0, 2.0])"],
    ),
    "a checkpoint of another size": (
        failed("", "Error(s) in loading state_dict for Linear:\n\tsize mismatch for weight: copying a param with shape "
               "torch.Size([2, 5]) from checkpoint, the shape in current model is torch.Size([2, 4])."),
        "argument", [], "a Linear with other sizes: weight is 2 × 5 there and 2 × 4 here.", [],
    ),
    "a checkpoint of a model in parallel": (
        failed("", 'Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "fc.weight", "fc.bias". '
               '\n\tUnexpected key(s) in state_dict: "module.fc.weight", "module.fc.bias". '),
        "argument", [], "All names in the checkpoint begin with `module.`: it was saved from a model in", [],
    ),
    "a singular matrix": (
        failed("torch.linalg.inv", "linalg.inv: The diagonal element 1 is zero, the inversion could not be completed "
               "because the input matrix is singular.", tensor("a", 3, 3)),
        "argument", [(0, None, "", "")], "a (3 × 3) is singular", ["torch.linalg.pinv(a)"],
    ),
    "an index that is no whole number": (
        failed("Tensor.__getitem__", "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables "
               "are valid indices (got float)", tensor("x", 3, 4), plain("1.5"), kind="IndexError"),
        "index", [(1, None, "float", "int64")], "not a float", [],
    ),
    "a message that no table knows": (
        failed("torch.matmul", "these shapes are no good", tensor("a", 3, 4), tensor("b", 3, 4)),
        "shape", [(0, 1, "4", "3"), (1, 0, "3", "4")], "in a product these two must be equal", ["a @ b.T", "a.T @ b"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_did_not_fit(name):
    """Kind, parts, rule and ways out are those that a user would name."""
    report, kind, parts, words, works = CASES[name]
    found = mismatch_of(report)
    assert found is not None
    assert (found.kind, [(p.operand, p.dimension, p.got, p.expected) for p in found.parts]) == (kind, parts)
    assert words in found.rule
    assert list(found.works) == works


def test_operands_of_any_kind_are_borne():
    """Whatever the operands of a message, nothing raises, and every part names a dimension that is there."""
    draw = random.Random(3)
    reports = [report for report, *_ in CASES.values()]
    for _ in range(4_000):
        one, other = draw.choice(reports), draw.choice(reports)
        operands = draw.sample([*one.operands, *other.operands, tensor("z"), plain("-1", role="dim")], k=2)
        found = mismatch_of(dataclasses.replace(one, operands=tuple(operands)))
        for part in found.parts if found is not None else ():
            assert part.dimension is None or part.dimension < len(operands[part.operand].shape)


@pytest.mark.parametrize("report", [
    failed("torch.mm", PRODUCT.format("3x4", "5x6"), tensor("a", 7, 8), tensor("b", 8, 6)),  # numbers of nobody here
    failed("Tensor.add", DIFFER.format(4, 5, 1), tensor("a", 3, 4), tensor("b", 3, 4)),
    failed("torch.linalg.eigh", "The algorithm failed to converge.", tensor("a", 3, 3)),
    failed("torch.nn.functional.linear", "out of memory", tensor("x", 4, 7), FC),
    failed("", DIFFER.format(4, 5, 1)),
], ids=["other sizes", "sizes that fit", "values", "other trouble", "no operands"])  # fmt: skip
def test_what_is_not_found_among_the_operands_is_not_claimed(report):
    """A message whose numbers belong to no operand, or one about something else, names no clash."""
    assert mismatch_of(report) is None
