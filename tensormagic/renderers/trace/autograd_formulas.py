"""What the backward of a common op sends to each of its inputs, as a formula.

From torch's ``tools/autograd/derivatives.yaml``, for real numbers, in the words of its Python functions. An op that is
not in the table is not guessed at.
"""

from __future__ import annotations

_SAME = ("grad",)
_BACK = ("grad, reshaped back",)

FORMULAS: dict[str, tuple[str, ...]] = {
    # op → one formula for each input that can require grad, in the order of ``grad_fn.next_functions``
    "AbsBackward0": ("grad \u00b7 self.sign()",),
    "AddBackward0": ("grad", "alpha \u00b7 grad"),
    "AddmmBackward0": ("beta \u00b7 grad", "alpha \u00b7 grad @ mat2.T", "alpha \u00b7 mat1.T @ grad"),
    "AliasBackward0": _SAME,
    "BmmBackward0": ("grad @ mat2.mT", "self.mT @ grad"),
    "CloneBackward0": _SAME,
    "CosBackward0": ("\u2212grad \u00b7 self.sin()",),
    "DivBackward0": ("grad / other", "\u2212grad \u00b7 self / other\u00b2"),
    "DotBackward0": ("grad \u00b7 tensor", "grad \u00b7 self"),
    "ExpBackward0": ("grad \u00b7 result",),
    "ExpandBackward0": ("grad, summed over the expanded dimensions",),
    "LogBackward0": ("grad / self",),
    "LogSoftmaxBackward0": ("grad \u2212 exp(result) \u00b7 grad.sum(dim)",),
    "MeanBackward0": ("grad / numel, to every element",),
    "MmBackward0": ("grad @ mat2.T", "self.T @ grad"),
    "MulBackward0": ("grad \u00b7 other", "grad \u00b7 self"),
    "NegBackward0": ("\u2212grad",),
    "PermuteBackward0": ("grad, permuted back",),
    "PowBackward0": ("grad \u00b7 exponent \u00b7 self ** (exponent \u2212 1)",),
    "ReluBackward0": ("grad where result > 0, else 0",),
    "ReshapeAliasBackward0": _BACK,
    "SelectBackward0": ("grad at the selected elements, else 0",),
    "SigmoidBackward0": ("grad \u00b7 result \u00b7 (1 \u2212 result)",),
    "SinBackward0": ("grad \u00b7 self.cos()",),
    "SliceBackward0": ("grad in the slice, else 0",),
    "SoftmaxBackward0": ("result \u00b7 (grad \u2212 (grad \u00b7 result).sum(dim))",),
    "SqrtBackward0": ("grad / (2 \u00b7 result)",),
    "SqueezeBackward0": _BACK,
    "SubBackward0": ("grad", "\u2212alpha \u00b7 grad"),
    "SumBackward0": ("grad, to every element",),
    "SumBackward1": ("grad, to every element of the summed dimensions",),
    "TBackward0": ("grad.T",),
    "TanhBackward0": ("grad \u00b7 (1 \u2212 result\u00b2)",),
    "TransposeBackward0": ("grad, transposed back",),
    "UnsafeViewBackward0": _BACK,
    "UnsqueezeBackward0": _BACK,
    "ViewBackward0": _BACK,
}


def formulas(node: str, inputs: int) -> tuple[str, ...]:
    """Return a formula for each of ``inputs``; empty ones where the op is not known or has others."""
    known = FORMULAS.get(node, ())
    return known if len(known) == inputs else ("",) * inputs
