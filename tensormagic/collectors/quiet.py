"""Where tensormagic's own torch operations run: outside everything the person has switched on.

A collector reads tensors with torch operations. Under the person's function modes, dispatch modes or a tracer of
ours, those would be recorded as if the person had written them; with gradients on they would grow a graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import _disable_current_modes


@contextmanager
def quiet() -> Iterator[None]:
    """Leave out all function and dispatch modes, and record nothing for autograd (about 10 µs)."""
    with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.no_grad():
        yield
