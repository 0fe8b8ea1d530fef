"""What a tensor can be besides: a parameter, a buffer, a lazy conjugate, dual, an inference tensor, channels_last."""

from __future__ import annotations

from typing import Any

import torch

from tensormagic.collectors.kinds.kind import Description, Kind, Part, bytes_of, has_class
from tensormagic.reports import Fact
from tensormagic.words import number_of_bytes, tuple_text

BUFFER = "buffer"


def _describe_parameter(x: Any) -> Description:
    state = "trained: backward() fills its .grad" if x.requires_grad else "frozen: requires_grad is False"
    return Description("Parameter", f"A module that holds it lists it in parameters(); it is {state}.")


def _describe_buffer(x: Any) -> Description:
    return Description("Buffer", summary_of_buffer(saved=bool(getattr(x, "persistent", True))))


def summary_of_buffer(*, saved: bool) -> str:
    """Return what it means to be a buffer, ``nn.Buffer`` or registered as one."""
    kept = "saved in state_dict()" if saved else "not saved in state_dict() (persistent=False)"
    return f"A module that holds it moves it with .to(), but does not pass it to an optimizer; it is {kept}."


def _is_buffer(x: Any) -> bool:
    return bool(getattr(x, "_is_buffer", False)) and not has_class(x, "torch.nn.parameter", "UninitializedBuffer")


def _describe_conj(x: Any) -> Description:
    return Description(
        label="conjugate view",
        summary="The storage holds the conjugates: every read negates the imaginary part.",
        facts=(Fact("to write it out", f"x.resolve_conj() copies {number_of_bytes(bytes_of(x))}"),),
    )


def _describe_neg(x: Any) -> Description:
    return Description(
        label="negative view",
        summary="The storage holds the negatives: every read negates them.",
        facts=(Fact("to write it out", f"x.resolve_neg() copies {number_of_bytes(bytes_of(x))}"),),
    )


def _describe_inference(_: Any) -> Description:
    return Description(
        label="inference tensor",
        summary="Made under inference_mode: it has no version counter, and autograd cannot save it (but can save a "
        "clone).",
    )


def _formats(x: Any) -> tuple[str, ...]:
    """Return the channels_last formats that a tensor is in, and not at the same time in the plain one."""
    if x.is_contiguous() or x.numel() == 0:
        return ()
    both = (("channels_last", torch.channels_last, 4), ("channels_last_3d", torch.channels_last_3d, 5))
    return tuple(name for name, fmt, ndim in both if x.dim() == ndim and x.is_contiguous(memory_format=fmt))


def _describe_channels_last(x: Any) -> Description:
    (name,) = _formats(x)
    spatial = "× ".join(map(str, x.shape[2:])).replace("×", " ×")
    return Description(
        label=name,
        summary=f"The {x.shape[1]} channels of one place are next to each other in memory ({spatial}).",
        facts=(
            Fact("order in memory", "N, D, H, W, C" if x.dim() == 5 else "N, H, W, C", "the shape stays N, C, …"),
            Fact("stride of C", str(x.stride(1)), "1: neighbouring channels are neighbours in memory"),
        ),
    )


def _dual(x: Any) -> torch.Tensor | None:
    if not _dual_level():
        return None
    tangent: torch.Tensor | None = torch._VF._unpack_dual(x, level=0).tangent
    return tangent


def _dual_level() -> bool:
    from torch.autograd import forward_ad

    return forward_ad._current_level >= 0


def _describe_dual(x: Any) -> Description:
    tangent = _dual(x)
    assert tangent is not None
    return Description(
        label="dual tensor",
        summary="In forward mode: besides its values it carries a tangent, which every operation propagates.",
        facts=(Fact("tangent", tuple_text(tangent.shape), "the derivative along the given direction"),),
        parts=(Part(" tangent", "the directional derivative of each element", tangent),),
    )


KINDS = (
    Kind("parameter", lambda x: has_class(x, "torch.nn.parameter", "Parameter"), _describe_parameter),
    Kind(BUFFER, _is_buffer, _describe_buffer),
    Kind("conj", lambda x: bool(x.is_conj()), _describe_conj),
    Kind("neg", lambda x: bool(x.is_neg()), _describe_neg),
    Kind("inference", lambda x: bool(x.is_inference()), _describe_inference),
)
STRIDED_KINDS = (
    Kind("dual", lambda x: _dual(x) is not None, _describe_dual),
    Kind("channels_last", lambda x: bool(_formats(x)), _describe_channels_last),
)
