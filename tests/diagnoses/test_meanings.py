"""TM106, TM107, TM206, TM610 to TM613, TM626, TM806 on hand-made traces: what is said of what was not meant."""

from __future__ import annotations

import pytest

from tensormagic.diagnoses import loss_inputs, meanings
from tests.diagnoses.samples_calls import LINE, MADE, seen, tensor


def one(check, kind, op, **facts):
    """Return the one finding about a call."""
    (found,) = check(seen(kind, op, **facts))
    assert LINE in {found.location, *(line.location for line in found.related)}
    return found


@pytest.mark.parametrize(
    ("old", "new", "detail", "severity", "advice"),
    [((4, 3, 8, 8), (256, 3), "permuted", "warning", "x.movedim(1, -1).reshape(256, 3)"),
     ((2, 8, 8, 3), (2, 3, 8, 8), "permuted", "warning", "x.movedim(-1, 1)"),
     ((2, 10, 24), (2, 4, 10, 6), "split", "warning", "x.view(2, 10, 4, 6).transpose(-3, -2)"),
     ((2, 3, 20), (2, 20, 3), "swapped", "note", "x.transpose(1, 2)"),
     ((2, 6, 5), (6, 10, 1), "permuted", "note", "x.transpose(0, 1).reshape(6, 10, 1)"),
     ((5, 2, 7), (2, 35), "permuted", "note", "x.transpose(0, 1).flatten(1)")],
)  # fmt: skip
def test_a_view_where_a_permute_was_meant(old, new, detail, severity, advice):
    """Three sizes that fit are no chance, two may be; the remedy swaps what has to be swapped."""
    found = one(meanings.regrouped, "regrouped", "view", operands=(tensor(shape=old),), result=tensor(shape=new),
                detail=detail)  # fmt: skip
    assert (found.code, found.severity) == ("TM106", severity)
    assert f"`{advice}`" in found.remedy


def test_a_view_that_fits_now_and_then_only_is_left_alone():
    """Other batches have other sizes: then the sizes fitted by chance."""
    facts = {"operands": (tensor(shape=(4, 3, 8, 8)),), "result": tensor(shape=(256, 3)), "detail": "permuted"}
    assert list(meanings.regrouped(seen("regrouped", "view", calls=9, looked=4, seen=1, **facts))) == []


@pytest.mark.parametrize(
    ("how", "code", "shapes", "severity", "advice"),
    [("sure", "out[dst] += msg", [(6, 4), (8,), (8, 4)], "warning", "Add them all: `out.index_add_(0, dst, msg)`"),
     ("sure", "out[:, dst] -= msg", [(4, 6), (8,), (4, 8)], "warning", "`out.index_add_(1, dst, msg, alpha=-1)`"),
     ("sure", "out[dst] += msg", [(6, 4), (8,), (8, 1)], "warning", "`out.index_put_((dst,), msg, accumulate=True)`"),
     ("sure", "out[i, j] -= a + b", [(6, 6), (8,)], "warning", "`out.index_put_((i, j), -(a + b), accumulate=True)`"),
     ("sure", "out[i, :2] += a", [(6, 6), (8,)], "warning", "`out.index_put_((…), a, accumulate=True)`"),
     ("perhaps", "c[k] += f - c[k]", [(6, 6), (8,)], "note", "If all of them should count: `c.index_put_((k,), f - "),
     ("counts", "n[k] -= 1", [(6,), (8,)], "note", "To count each of them: `n -= torch.bincount(k, minlength=len(n))`"),
     ("counts", "n[i, j] -= 1", [(6, 6), (8,)], "note", "`n.index_put_((i, j), torch.tensor(-1, dtype=n.dtype), acc")],
)  # fmt: skip
def test_a_sum_of_which_one_addition_is_kept(how, code, shapes, severity, advice):
    """The remedy adds what the statement adds, as the sizes allow it; where one may be enough, it is a note."""
    operands = tuple(tensor(shape=shape) for shape in shapes)
    found = one(meanings.lost_sums, "index repeats", "add", operands=operands, detail=f"3 8 {how} {code}")
    assert (found.code, found.severity, found.subject) == ("TM107", severity, code.partition("[")[0])
    assert "loses 3 of its 8 additions" in found.message
    assert advice in found.remedy


@pytest.mark.parametrize(("kind", "severity"), [("torch", "warning"), ("numpy", "note")])
def test_stored_views(kind, severity):
    """Writes of NumPy's are not counted."""
    found = one(meanings.stored_views, "same memory", "stack", operands=(tensor(),), detail=f"7 {kind}")
    assert (found.code, found.severity) == ("TM206", severity)
    assert "7 tensors" in found.message


def test_dropout_in_eval_mode_is_told_once():
    """What dropped in eval mode at a line is not told again for its training."""
    found = one(meanings.unreachable_dropout, "dropout in eval", "dropout", detail="made Net", seen=3)
    assert (found.code, found.severity) == ("TM610", "warning")
    assert "3 calls in eval mode" in found.message
    assert one(meanings.unreachable_dropout, "dropout", "dropout", detail="called Net").severity == "note"


@pytest.mark.parametrize(
    ("detail", "says", "advice"),
    [("probabilities", "p holds probabilities", "p.log()"), ("scores up to 3.2", "values above 0", "F.log_softmax(p,"),
     ("target", "q has values below 0", "log_target=True")],
)  # fmt: skip
def test_a_divergence_without_logarithms(detail, says, advice):
    """The operand that is wrong is named, and what it should be."""
    found = one(
        loss_inputs.no_logarithms, "no logarithms", "kl_div", operands=(tensor("p"), tensor("q")), detail=detail
    )
    assert found.code == "TM611"
    assert says in found.message
    assert advice in found.remedy


@pytest.mark.parametrize(
    ("detail", "severity"),
    [("classes 0", "warning"), ("batch 0 2", "warning"), ("product 1 2", "note"), ("samples 0", "note")],
)
def test_softmax_over_another_dimension(detail, severity):
    """What competes on purpose is a note; the line of the softmax is the one to mend."""
    found = one(loss_inputs.softmax_elsewhere, "normalised over", "matmul", operands=(tensor("w", (8, 3, 3)),),
                detail=detail, made=1)  # fmt: skip
    assert (found.code, found.severity, found.location) == ("TM612", severity, MADE)
    assert [line.location for line in found.related] == [LINE]


def test_the_last_sample_of_a_batch():
    """Sizes of (time, batch, features) are named as what they are."""
    found = one(meanings.last_sample, "last sample", "index", operands=(tensor("out", (12, 5, 6)),))
    assert (found.code, found.subject) == ("TM613", "out")
    assert "the last of 5 samples, for all 12 time steps" in found.message


def test_bytes_that_wrapped():
    """How many, and how far outside they lie."""
    found = one(meanings.wrapped, "wrapped", "sub", operands=(tensor("a"), tensor("b")), detail="3 of 16 from -9 to 4")
    assert (found.code, found.remedy) == ("TM806", "Convert first: `a.float()`")
    assert "3 of 16 elements" in found.message
    assert "from \u22129 to 4" in found.message


@pytest.mark.parametrize(
    ("op", "detail", "says", "advice"),
    [("binary_cross_entropy_with_logits", "values -1 1", "y has \u22121 and 1: beyond these, the loss has no lower",
      "`(y + 1) / 2`"),
     ("binary_cross_entropy_with_logits", "values 0 255", "y has 0 and 255", "If 255 stands for 1: `y / 255`"),
     ("binary_cross_entropy_with_logits", "values 0 1 255", "y has 0, 1 and 255",
      "`keep = y != 255`, `F.binary_cross_entropy_with_logits(out[keep], y[keep])`"),
     ("binary_cross_entropy_with_logits", "range -2.5 7", "y goes from \u22122.5 to 7", "`F.mse_loss`"),
     ("binary_cross_entropy", "values -1 1", "beyond these, a probability of 0 or 1 is best", "`(y + 1) / 2`"),
     ("multilabel_soft_margin_loss", "values 0 1 2 3", "y has 0, 1, 2 and 3", "`F.cross_entropy`"),
     ("poisson_nll_loss", "range -2 3", "y goes from \u22122 to 3: below 0, the best rate is 0", "`F.mse_loss`"),
     ("cosine_embedding_loss", "values 0 1", "y has 0 and 1: pairs of 0 count nothing", "`2 * y - 1`"),
     ("cross_entropy", "range -2.5 7", "probabilities, and y goes from \u22122.5 to 7: below 0,",
      "`y.softmax(dim=1)`"),
     ("cross_entropy", "exchanged", "out, given as scores, has no gradient, and y has one",
      "`F.cross_entropy(y, out)`")],
)  # fmt: skip
def test_a_target_that_its_loss_does_not_take(op, detail, says, advice):
    """Which values there are, what the loss takes, and the code with the user's names."""
    found = one(loss_inputs.unfit_target, "unfit target", op, operands=(tensor("out"), tensor("y")), detail=detail)
    assert (found.code, found.severity, found.subject) == ("TM626", "warning", "y")
    assert says in found.message
    assert advice in found.remedy


@pytest.mark.parametrize(("name", "code"), [("same", "2 * same.float() - 1"), ("a > b", "2 * (a > b).float() - 1")])
def test_labels_without_a_sign_become_floats_first(name, code):
    """Twice a uint8 less 1 wraps around."""
    operands = tensor("out"), tensor("other"), tensor(name, dtype="uint8")
    found = one(loss_inputs.unfit_target, "unfit target", "margin_ranking_loss", operands=operands, detail="values 0 1")
    assert f"`{code}`" in found.remedy


def test_a_mask_of_pairs_is_left_alone():
    """There 0 says what does not count."""
    operands = tensor("a"), tensor("b"), tensor("pair_mask")
    report = seen("unfit target", "cosine_embedding_loss", operands=operands, detail="values 0 1")
    assert list(loss_inputs.unfit_target(report)) == []


def test_a_target_without_a_name_has_a_sentence_too():
    """Before 3.11, Python does not say which part of a line is running."""
    found = one(loss_inputs.unfit_target, "unfit target", "cross_entropy", operands=(tensor(""), tensor("")),
                detail="exchanged")  # fmt: skip
    assert "its input, given as scores, has no gradient, and its target has one" in found.message
    assert found.remedy == "Exchange them: `F.cross_entropy(scores, targets)`"
