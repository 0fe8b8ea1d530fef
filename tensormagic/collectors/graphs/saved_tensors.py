"""What a node has saved: whether it can be read without running a hook of the person's."""

from __future__ import annotations

from typing import Any


def is_packed(raw: Any) -> bool:
    """Return whether reading a saved tensor would run a hook of the person's, or cannot be known not to.

    Where this torch does not say whether there is a hook, it is left alone. Of a list of saved tensors, as indexing
    keeps its indices, one that is packed is enough.
    """
    if isinstance(raw, (tuple, list)):  # asked of every saved tensor: ``|`` takes three times as long
        return any(is_packed(each) for each in raw if each is not None)
    return getattr(raw, "unpack_hook", raw) is not None
