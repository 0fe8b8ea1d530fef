"""Several tensors on one strip of memory: what ``%tensor a b c`` shows before each has its panel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensormagic import api
from tensormagic.collectors.objects import explain
from tensormagic.errors import TensorMagicError
from tensormagic.magics.arguments import Output
from tensormagic.magics.display import deliver


def show_together(shell: Any, values: Mapping[str, Any], output: Output) -> bool:
    """Show what the tensors among ``values`` have of the same memory; nothing for fewer than two.

    Returns:
        Whether some of them share memory, so that a picture of it stands there now.
    """
    tensors = {
        expression: value for expression, value in values.items() if explain.is_tensor(value) or explain.is_array(value)
    }
    if len(tensors) < 2 or output.figure is not None:
        return False
    try:
        overlay = api.overlay(tensors)
    except TensorMagicError as error:
        print(f"not drawn together: {error}")  # noqa: T201  (the panels follow)
        return False
    deliver(shell, overlay, Output(text=output.text, slide=output.slide))
    return bool(overlay.shared)
