"""Says in one line what is needed, where torch is missing or too old. Imports torch only if it is there."""

from __future__ import annotations

from functools import cache
from importlib import metadata

from tensormagic.errors import RequirementError

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
