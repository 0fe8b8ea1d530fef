"""Which nodes run Python code of the person's in their backward."""

from __future__ import annotations

from typing import Any

from torch.autograd.function import BackwardCFunction

_CHECKPOINT = "CheckpointFunctionBackward"


def runs_python(node: Any) -> bool:
    """Return whether the backward of a node is Python code of the person's, or runs such code."""
    if not isinstance(node, BackwardCFunction):
        return False
    module: str = getattr(getattr(type(node), "_forward_cls", None), "__module__", "")
    return not module.startswith("torch.") or type(node).__name__ == _CHECKPOINT
