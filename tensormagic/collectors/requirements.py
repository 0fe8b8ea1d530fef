"""What is needed: torch, in a version that is known, and what the machine has."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING

from tensormagic.errors import RequirementError

if TYPE_CHECKING:
    import torch

# Says in one line what is needed, where torch is missing or too old. Imports torch only if it is there.

OLDEST_TORCH = (2, 10)
_NEEDED = ".".join(map(str, OLDEST_TORCH))


def _release(version: str) -> tuple[int, ...]:
    parts = version.split("+", maxsplit=1)[0].split(".")[:2]
    return tuple(int("".join(character for character in part if character.isdigit()) or 0) for part in parts)


def require_torch(found: str | None = None) -> None:
    """Check that torch is there and new enough.

    Args:
        found: The version to judge instead of the installed one.

    Raises:
        RequirementError: says what was found, what is needed, and how to get it.
    """
    if found is None:
        _require_installed()
    else:
        _judge(found)


@cache
def _require_installed() -> None:
    """Judge the installed torch, once: reading what is installed takes ten milliseconds. A refusal is not kept."""
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        raise RequirementError(
            f"tensormagic needs torch {_NEEDED} or newer, but found none: pip install torch"
        ) from None
    _judge(version)


def _judge(version: str) -> None:
    if _release(version) < OLDEST_TORCH:
        raise RequirementError(
            f"tensormagic needs torch {_NEEDED} or newer, but found torch {version}: pip install --upgrade torch"
        )


# What torch can use on this machine, and a small program to try the tool on.


def torch_facts() -> dict[str, str]:
    """Return what torch says of itself and of the devices here; no device is started."""
    import torch

    facts = {"threads": str(torch.get_num_threads()), "CUDA": _cuda()}
    facts["MPS"] = "there" if torch.backends.mps.is_available() else "none"
    xpu = getattr(torch, "xpu", None)
    facts["XPU"] = "there" if xpu is not None and xpu.is_available() else "none"
    return facts


def _cuda() -> str:
    import torch

    if torch.version.cuda is None and torch.version.hip is None:
        return "this torch was built without it"
    if not torch.cuda.is_available():
        return "none: no device, or no driver for it"
    names = [torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count())]
    return ", ".join(names)


def small_step() -> Callable[[], torch.Tensor]:
    """Return a function that makes one step of a small network, and returns the loss."""
    import torch
    from torch import nn

    generator = torch.Generator().manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    x = torch.rand(16, 4, generator=generator)

    def step() -> torch.Tensor:
        loss: torch.Tensor = net(x).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    return step
