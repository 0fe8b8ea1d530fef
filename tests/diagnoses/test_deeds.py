"""What a line does: which name it writes to, how that is said, and what to write instead."""

from __future__ import annotations

import pytest

from tensormagic.diagnoses.lines import LONGEST, assigned, described_write, instead_of_write, target_of, writing
from tensormagic.reports import Location
from tensormagic.reports.failure import SavedWrite


def write(text, call, kind="call", module=""):
    return SavedWrite(call=call, kind=kind, location=Location("cell.py", 1, text), module=module)


CASES = [
    (write("y += 1", "add_"), "`y += 1`", "y", "`y = y + 1`"),
    (write("y *= a + b", "mul_"), "`y *= a + b`", "y", "`y = y * (a + b)`"),
    (write("self.h -= lr * g", "sub_"), "`self.h -= lr * g`", "self.h", "`self.h = self.h - lr * g`"),
    (write("x[mask] = 0", "__setitem__"), "`x[mask] = 0`", "x", "`x = x.clone()`"),
    (write("x[0] += 1", "add_"), "`x[0] += 1`", "x", "`x = x.clone()`"),
    (write("h.relu_()", "relu_"), "`h.relu_()`", "h", "`relu` instead of `relu_`"),
    (write("return h.exp_()", "exp_"), "`h.exp_()`", "h", "`exp` instead"),
    (write("for p in ps: p.data.clamp_(0, 1)", "clamp_", "data"), "`p.data.clamp_(0, 1)`", "p", "`clamp` instead"),
    (write("torch.add(a, b, out=a)", "add", "out"), "`torch.add(a, b, out=a)`", "", "Leave out `out=`"),
    (write("optimizer.step()", "SGD.step", "step"), "`optimizer.step()`", "", ""),
    (write("scaler.update()", "SGD.step", "step"), "SGD's step", "", ""),
    (write("w.data = w.data.sign()", "data", "set data"), "`w.data = w.data.sign()`", "w", ""),
    (write("x = self.net(x)", "relu_", module="net.1"), "`relu_` in net.1", "", "net.1 work on a new tensor"),
    (write("x = (net(x) +", "relu_"), "`relu_`", "", "`relu` instead"),
    (write("", "__setitem__"), "an assignment to a part of it", "", "`x = x.clone()`"),
]


@pytest.mark.parametrize(("made", "said", "target", "other"), CASES, ids=lambda case: str(case)[:40])
def test_a_write_is_said_with_the_persons_own_words(made, said, target, other):
    """The statement where the line makes the write itself; else what torch calls it, and where."""
    assert described_write(made) == said
    assert target_of(writing(made)) == target
    assert other in instead_of_write(made)


def test_the_operator_decides_which_statement_of_a_line_it_was():
    """Two writes on one line are told apart by what torch was called with."""
    assert described_write(write("y += 1; y *= 2", "mul_")) == "`y *= 2`"


def test_a_long_statement_is_cut():
    """To what can be read in a sentence."""
    said = described_write(write(f"x[0] = {' + '.join(['abcdef'] * 20)}", "__setitem__"))
    assert len(said) == LONGEST + 2
    assert said.endswith("…`")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("h = torch.tanh(x @ w)", ["h"]),
        ("out, h = rnn(x, h)", ["h"]),
        ("out, (h, c) = lstm(x, (h, c))", ["h", "c"]),
        ("self.state = self.cell(x, self.state)", ["self.state"]),
        ("a, b = f(x)", []),
        ("return g(h)", []),
        ("x = (", ["x"]),
    ],
)
def test_the_names_that_a_line_binds(text, names):
    """Of several those that it also reads; none where it reads none of them."""
    assert assigned(Location("cell.py", 1, text)) == names
