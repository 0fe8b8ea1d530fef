"""What was given is no tensor: run for real, the rule names the right operand, and what is said to work works."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnoses.test_everyday_errors import explained

pytestmark = pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")  # torch's own, of a text as an index
PAIR = "holds 2 results, (values, indices): select one of them."
SINCE = "a gradient since it was made or cleared"
COMPUTED = (
    "An optimizer changes leaves in place, and one of these tensors was computed from another: it has a `grad_fn`. "
    "`.to(…)`, `.cuda()` or a factor after requires_grad=True make such a tensor."
)
OF_TWO = "opt, two = (torch.optim.SGD([torch.ones(1) for _ in range(n)]) for n in (1, 2)); saved = two.state_dict()"
OTHERS = (
    "This state is from an optimizer with other parameters, or groups of them: create this one as that one "
    "was, from the whole model."
)
UNUSED = (
    "Nothing that was differentiated was computed from b: it has no gradient, and allow_unused=True gives None for it."
)
SETTINGS = (
    "A loss of torch.nn is made first, with its settings, and then called with what it compares: here the tensors were "
    "given as its settings."
)
SETTING = (
    "A module of torch.nn is made first, with its settings, and then called with a tensor: here the tensor was given "
    "as a setting."
)
OF_CLASSES = "For x (4 × 3), whose dimension 1 is the 3 classes, the target has the shape"
SET_UP = (
    "A module is set up by the __init__ of nn.Module, which has not run: the __init__ of the class has to begin with "
    "super().__init__()."
)
INSTEAD = ": call the module with a tensor, and give what it returns"
PADDED = (
    "All sizes but that of dimension 0, which is padded, must be equal: x (3 × 4) and y (2 × 5) differ in dimension 1."
)
BATCHES = (
    "Input and hidden state must have the same batch size: x (2 × 4) and the result of `torch.ones(3, 5)` (3 × 5) "
    "differ in dimension 0."
)
OF_OBJECTS = (
    "A tensor holds numbers of one dtype, and this array holds Python objects (dtype object): if all are numbers, "
    '.astype("float32") converts it.'
)
SPACE = {
    "torch": torch, "np": np, "nn": nn, "F": F, "Frame": type("DataFrame", (), {"to_numpy": lambda _: np.ones(3)}),
}  # fmt: skip
# The line, what is before it, the rule, what works.
CASES = (
    ("w + None", "w = nn.Parameter(torch.ones(2))",
     "The operator + combines a tensor with a tensor or a number, not with None (a function without return?).", []),
    ("[1] - w", "w = nn.Parameter(torch.ones(2))",
     "The operator - combines a tensor with a tensor or a number, not with a list.", []),
    ("x.max(dim=1) + 1", "x = torch.ones(2, 3)",
     f"The call takes one tensor, but the result of `x.max(dim=1)` {PAIR}", ["x.max(dim=1).values"]),
    ("1 - x.min(0)", "x = torch.ones(2, 3)",
     f"The call takes one tensor, but the result of `x.min(0)` {PAIR}", ["x.min(0).values"]),
    ("m.mean()", "m = torch.ones(2, 3).sort(1)", f"The call takes one tensor, but m {PAIR}", ["m.values"]),
    ("m + 1", "m = torch.ones(2, 3).max(1)", f"The call takes one tensor, but m {PAIR}", ["m.values"]),
    ("F.relu(m)", "m = torch.ones(2, 3).max(1)", f"The call takes one tensor, but m {PAIR}", ["m.values"]),
    ("x.topk(2).mean()", "x = torch.ones(2, 3)",
     f"The call takes one tensor, but the result of `x.topk(2)` {PAIR}", ["x.topk(2).values"]),
    ("torch.cat([x.max(1), x])", "x = torch.ones(2, 3)",
     f"The call takes one tensor, but the result of `x.max(1)` {PAIR}", ["x.max(1).values"]),
    ("torch.tensor([x, x + 1])", "x = torch.ones(2, 3)",
     "A list given to torch.tensor holds numbers, and x (2 × 3) has 6: torch.stack joins tensors of one shape.", []),
    ("0.1 * w.grad", "w = torch.ones(2, requires_grad=True)",
     f"No backward has given w {SINCE}: w.grad is None.", ["%why w"]),
    ("net.weight.grad.zero_()", "net = nn.Linear(2, 1)",
     f"No backward has given net.weight {SINCE}: net.weight.grad is None.",
     ["%why net.weight"]),
    ("out.shape", "out = nn.LSTM(2, 3)(torch.ones(1, 2))",
     "The tuple out holds 2 parts and has no shape itself: select one part.", ["out[0].shape"]),
    ("fc(out)", "fc, out = nn.Linear(3, 1), nn.LSTM(2, 3)(torch.ones(1, 2))",
     "The argument input of linear() must be a Tensor, not a tuple.", ["out[0]"]),
    ("fc(rnn(x))", "fc, rnn, x = nn.Linear(3, 1), nn.LSTM(2, 3), torch.ones(1, 2)",
     "The argument input of linear() must be a Tensor, not a tuple.", ["rnn(x)[0]"]),
    ("rnn(x, h)", "rnn, x, h = nn.GRU(2, 3), torch.ones(1, 2), (torch.zeros(1, 3), torch.zeros(1, 3))",
     "The tuple h holds 2 parts and has no dim itself: select one part.", ["h[0]"]),
    ("F.mse_loss(x, 3.0)", "x = torch.ones(2)",
     "The argument target of F.mse_loss must be a tensor, and 3.0 is a float.", ["torch.as_tensor(3.0)"]),
    ("torch.from_numpy(a)", "a = np.array([1.5], dtype=object)",
     OF_OBJECTS, []),
    ("torch.tensor(df)", "df = Frame()",
     "The function torch.tensor takes numbers, nested lists of numbers, and arrays, not a DataFrame.",
     ["torch.tensor(df.to_numpy())"]),
    ("torch.tensor(['a', 'b'])", "",
        "A tensor holds numbers, not text: convert words or classes to numbers first.", []),
    ("fc(x, 3)", "fc, x = nn.Linear(2, 1), torch.ones(2)", "The forward of fc takes 1 argument, and 2 were given.", []),
    ("attend(x)", "attend, x = nn.MultiheadAttention(4, 2), torch.ones(1, 4)",
     "The forward of attend also needs key and value.", []),
    ("torch.optim.SGD(net, lr=0.1)", "net = nn.Linear(2, 1)",
     "An optimizer takes parameters, and net is a Linear.", ["net.parameters()"]),
    ("torch.optim.SGD(net.parameters, lr=0.1)", "net = nn.Linear(2, 1)",
     "An optimizer takes parameters, and net.parameters is a method.", ["net.parameters()"]),
    ("nn.utils.rnn.pad_sequence([x, y])", "x, y = torch.ones(3, 4), torch.ones(2, 5)",
     PADDED, []),
    ("torch.optim.SGD([q], lr=0.1)", "q = torch.ones(2, requires_grad=True) * 2", COMPUTED,
     ["q = nn.Parameter(q.detach())"]),
    ("opt.load_state_dict(saved)", OF_TWO, OTHERS, []),
    ("torch.autograd.grad(a.sum(), [a, b])", "a, b = (torch.ones(1, requires_grad=True) for _ in range(2))", UNUSED,
     ["torch.autograd.grad(a.sum(), [a, b], allow_unused=True)"]),
    ("nn.CrossEntropyLoss(scores, classes, reduction='sum')",
     "scores, classes = torch.ones(2, 3), torch.tensor([0, 1])",
     SETTINGS, ["nn.CrossEntropyLoss(reduction='sum')(scores, classes)"]),
    ("nn.CrossEntropyLoss(scores, classes)", "scores, classes = torch.ones(2, 3), torch.tensor([0, 1])", SETTINGS,
     ["nn.CrossEntropyLoss()(scores, classes)"]),
    ("nn.Dropout(x)", "x = torch.ones(2)", SETTING, ["nn.Dropout()(x)"]),
    ("nn.Linear(x, 4)", "x = torch.ones(2, 3)", SETTING, ["nn.Linear(\N{HORIZONTAL ELLIPSIS}, 4)(x)"]),
    ("nn.LSTM(x, 4)", "x = torch.ones(2, 3)", SETTING, ["nn.LSTM(\N{HORIZONTAL ELLIPSIS}, 4)(x)"]),
    ("nn.Sequential(x)", "x = torch.ones(2, 3)", SETTING, ["nn.Sequential(\N{HORIZONTAL ELLIPSIS})(x)"]),
    ("h.mean()", "h = nn.ReLU(torch.ones(2))",
     "A module is made first, then called with a tensor: h is the module ReLU itself, and has no mean.", []),
    ("fc(h)", "fc, h = nn.Linear(2, 1), nn.ReLU(torch.ones(2))",
     f"The argument input of linear() must be a Tensor, not a ReLU{INSTEAD}.", []),
    ("F.cross_entropy(x, y, weight=w)", "x, y, w = torch.ones(2, 3), torch.tensor([0, 1]), torch.ones(3).double()",
     "Both must have the same dtype: x is float32 and w is float64.", ["w.float()", "x.double()"]),
    ("F.mse_loss(h, torch.ones(2))", "h = nn.ReLU(torch.ones(2))",
     "A module is made first, then called with a tensor: h is the module ReLU itself, and has no size.", []),
    ("attend(x, y, x)", "attend, x, y = nn.MultiheadAttention(4, 2), torch.ones(5, 2, 4), torch.ones(3, 2, 4)",
     "There is one value for each key: y (3 × 2 × 4) and x (5 × 2 × 4) must have the same shape.", []),
    ("F.cross_entropy(x, y)", "x, y = torch.ones(4, 3), torch.ones(4, 2).softmax(1)",
     f"{OF_CLASSES} 4 (class indices), or 4 × 3 (probabilities); y (4 × 2) has not.", ["y.argmax(1)"]),
    ("fc(np.ones((1, 2)))", "fc = nn.Linear(2, 1)",
     "The argument input of linear() must be a Tensor, not a numpy.ndarray.",
     ["torch.as_tensor(np.ones((1, 2)), dtype=torch.float32)"]),
    ("fc(torch.ones(1, 2).tolist())", "fc = nn.Linear(2, 1)",
     "The argument input of linear() must be a Tensor, not a list.",
     ["torch.as_tensor(torch.ones(1, 2).tolist(), dtype=torch.float32)"]),
    ("nn.GRUCell(4, 5)(x, torch.ones(3, 5))", "x = torch.ones(2, 4)", BATCHES, []),
    ("torch.multinomial(p, 1)", "p = torch.zeros(2)",
     "There is nothing to draw: all weights of p, or of a row of it, are 0.", []),
    ("x['a']", "x = torch.ones(2)",
     "An index is a whole number, a slice, None, ... or a tensor of whole numbers or booleans, not a str.", []),
    ("len(x)", "x = torch.ones(())", "A single number has no length: x is 0-dimensional.",
     ["x.unsqueeze(0)", "x.item()"]),
    ("nn.MultiheadAttention(10, 3)", "", "The heads share embed_dim among them: 10 is not divisible by 3.",
     ["num_heads=2"]),
    # torch.compile switches the check off for the whole process
    ("torch.distributions.Normal(0.0, -1.0, validate_args=True)", "",
     "The parameter scale of Normal must be greater than 0.", []),
    ("torch.distributions.Bernoulli(2.0, validate_args=True)", "",
     "The parameter probs of Bernoulli must lie between 0 and 1.", []),
    ("torch.distributions.Uniform(low, 0.5, validate_args=True)", "low = torch.ones(1)",
     "The parameter low of Uniform must be less than 0.5.", []),
    ("torch.distributions.Uniform(low, high, validate_args=True)", "low, high = torch.ones(2), torch.zeros(2)",
     "The parameter low of Uniform must be less than its upper bound.", []),
    ("torch.distributions.Dirichlet(x, validate_args=True)", "x = -torch.ones(3)",
     "The parameter concentration of Dirichlet must be greater than 0.", []),
    ("torch.distributions.Bernoulli(0.4, validate_args=True).log_prob(x)", "x = torch.tensor(0.3)",
     "The value given to Bernoulli must hold only zeros and ones.", []),
    ("torch.distributions.Beta(0.4, 0.5, validate_args=True).log_prob(x)", "x = torch.tensor([0.3, 1.5])",
     "The value given to Beta must lie between 0 and 1.", []),
    ("torch.distributions.Categorical(logits=x, validate_args=True)", "x = torch.full((2,), torch.nan)",
     "The parameter logits of Categorical holds NaN: what computed it went wrong before this line.", []),
    ("rnn(x, h)", "rnn, x, h = nn.LSTM(5, 8), torch.ones(2, 3, 5), torch.zeros(1, 3, 8)",
     "The state of an LSTM is a pair, (h_0, c_0), and h (1 × 3 × 8) is one tensor.", ["(h, torch.zeros_like(h))"]),
    ("rnn(x, h)", "rnn, x, h = nn.LSTM(5, 8, 2), torch.ones(2, 3, 5), torch.zeros(2, 3, 8)",
     "The state of an LSTM is a pair, (h_0, c_0), and h (2 × 3 × 8) is one tensor.", ["(h, torch.zeros_like(h))"]),
    ("net.weihgt", "net = nn.Linear(2, 1)", "A Linear has no weihgt: net has weight.", ["net.weight"]),
    ("list(net.paramters())", "net = nn.Linear(2, 1)", "A Linear has no paramters: net has parameters.",
     ["net.parameters"]),
    ("opt.zero_gard()", "opt = torch.optim.SGD([nn.Parameter(torch.ones(1))])",
     "A SGD has no zero_gard: opt has zero_grad.", ["opt.zero_grad"]),
    ("net.head(x)", "net, x = nn.ModuleDict({'conv': nn.Linear(1, 1), 'body': nn.Linear(1, 1)}), torch.ones(1)",
     "A ModuleDict has no head: net has conv and body.", []),
    ("net.body", "net = nn.DataParallel(nn.ModuleDict({'body': nn.Linear(1, 1)}))",
     "A DataParallel has no body: it wraps the model, net.module.", ["net.module.body"]),
    ("x.astype('int64')", "x = torch.ones(2)",
     "A tensor has no astype, which NumPy's arrays or lists have: torch writes it otherwise.", ["x.to(torch.int64)"]),
    ("logits.logits.sum()", "logits = torch.ones(2)",
     "A tensor has no logits: logits is the tensor itself.", ["logits"]),
    ("float(out.loss.loss)", "import types; out = types.SimpleNamespace(loss=torch.ones(()))",
     "A tensor has no loss: out.loss is the tensor itself.", ["out.loss"]),
    ("x.append(1)", "x, other = torch.ones(2), torch.ones(1)",
     "A tensor has no append, which NumPy's arrays or lists have: torch writes it otherwise.",
     ["torch.cat([x, other])"]),
    ("net(x)", "Net = type('Net', (nn.Module,), {'__init__': lambda self: None}); net, x = Net(), torch.ones(1)",
     SET_UP, ["super().__init__()"]),
)  # fmt: skip


@pytest.mark.parametrize(("line", "before", "rule", "works"), CASES, ids=[case[0] for case in CASES])
def test_what_is_said(line, before, rule, works):
    """The rule, word for word, and the way out, which works."""
    space = dict(SPACE)
    exec(before, space)
    clash = explained(line, space).mismatch
    if rule == UNUSED and torch.__version__ < "2.13":
        rule = rule.replace("from b", "from one of a and b")  # which of them it is, torch does not say
    assert (clash.rule, [*clash.works, *clash.maybe]) == (rule, works)
    for way in works:
        if not way.startswith(("%", "num_heads", "super()")) and "\N{HORIZONTAL ELLIPSIS}" not in way:
            exec(way, space)


@pytest.mark.skipif(torch.accelerator.is_available(), reason="here torch finds the device")
@pytest.mark.parametrize(
    ("line", "roles"),
    [
        ("x.cuda()", ["self"]), ("x.cuda(0)", ["self", "device"]), ("x.to('cuda')", ["self", "device"]),
        ("x.to('cuda', torch.half, True)", ["self", "device", "dtype", "non_blocking"]),
        ("torch.ones(2, device='cuda')", ["size", "device"]), ("torch.ones(2, device='mps')", ["size", "device"]),
        ("torch.ones(2, device='xpu')", ["size", "device"]), ("torch.cuda.synchronize()", []),
        ("x.to(0)", ["self", "device"]),
        ("torch.cuda.Event(enable_timing=True)", None), ("torch.cuda.Stream()", None),
        ("torch.Generator('cuda')", None),
        ("torch.cuda.set_device(0)", ["device"]), ("x.type(torch.cuda.FloatTensor)", None),
    ],
)  # fmt: skip
def test_a_device_that_is_not_there(line, roles):
    """Torch has a dozen sentences for it, few of which name what is missing."""
    report = explained(line, SPACE | {"x": torch.ones(2)})
    kind = "mps" if "mps" in line else "xpu" if "xpu" in line else "cuda"
    what = "no GPU" if kind == "cuda" else f"no device of the kind {kind}"
    assert report.mismatch.rule.startswith(f"Torch finds {what} that it can use: torch.")
    (way,) = report.mismatch.works or report.mismatch.maybe
    assert eval(way.removeprefix("device = "), {"torch": torch}) == "cpu"
    assert roles is None or [operand.role for operand in report.operands] == roles


@pytest.mark.parametrize(
    ("indices", "remedy"),
    [([3, 10], "`nn.Embedding(11, …)` has a row for each: i holds 3 to 10."),
     ([-1, -1], "Indices count from 0, and none is negative: i holds -1.")],
)  # fmt: skip
def test_indices_outside_of_a_table(indices, remedy):
    """A larger table has no row for a negative index."""
    (found,) = explained("emb(i)", SPACE | {"emb": nn.Embedding(10, 3), "i": torch.tensor(indices)}).findings
    assert found.remedy == remedy


@pytest.mark.parametrize(
    ("line", "before"),
    [
        ("rate * nothing", "rate, nothing = 0.1, None"),
        ("nothing.shape", "nothing = None"),
        ("{}.foo", ""),
        ("(1, 2) + 3", ""),
        ("pair + 3", "pair = (torch.ones(1), 2)"),
        ("len(nothing)", "nothing = None"),
        ("x.foo", "x = torch.ones(2)"),
    ],
)
def test_what_is_the_person_s_own(line, before):
    """A slip in code of their own, in which no tensor and no gradient is missing, is not explained."""
    space = dict(SPACE)
    exec(before, space)
    report = explained(line, space)
    assert report is None or report.mismatch is None


def test_an_operator_of_python_is_no_function_of_torch():
    """Adding to a tuple of results calls nothing of torch's: the line itself is named."""
    report = explained("x.max(dim=1) + 1", {"x": torch.ones(2, 3)})
    assert (report.function, report.call) == ("", "x.max(dim=1) + 1")


def test_an_operator_with_a_parameter_is_one_of_torch():
    """Python calls it by its class, and it is a tensor all the same."""
    assert explained("w + None", {"w": nn.Parameter(torch.ones(2))}).function == "Tensor.add"
