"""Says in one line what is needed, where torch is missing or too old. Imports torch only if it is there."""

from __future__ import annotations

from importlib import metadata

from tensormagic.errors import RequirementError

OLDEST_TORCH = (2, 6)


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
    needed = ".".join(map(str, OLDEST_TORCH))
    try:
        version = found or metadata.version("torch")
    except metadata.PackageNotFoundError:
        raise RequirementError(f"tensormagic needs torch {needed} or newer, found none: pip install torch") from None
    if _release(version) < OLDEST_TORCH:
        raise RequirementError(
            f"tensormagic needs torch {needed} or newer, and found torch {version}: pip install --upgrade torch"
        )
