"""What the user wants silenced, in this session: ``tm.ignore("TM105, TM7")``."""

from __future__ import annotations

from collections.abc import Iterable

from tensormagic.errors import SettingError

_ignored: tuple[str, ...] = ()


def ignore(codes: str | Iterable[str]) -> tuple[str, ...]:
    """Set which codes are silenced from now on; returns those that were before.

    Args:
        codes: ``"TM105, TM7"`` or a list of such: whole codes, or the first digits for a family; empty for none.

    Raises:
        SettingError: for what is no code.
    """
    global _ignored  # a setting of the session, as ``%config TensorMagic.ignore`` is
    try:
        found = _codes_of(codes if isinstance(codes, str) else ",".join(codes))
    except ValueError as error:
        raise SettingError(f"cannot ignore {codes!r}: {error}") from None
    if unknown := _unknown(found):
        raise SettingError(f"cannot ignore {codes!r}: there is no finding {unknown[0]}; `%tensormagic help` lists them")
    before, _ignored = _ignored, found
    return before


def ignored() -> tuple[str, ...]:
    """Return the codes that are silenced."""
    return _ignored


def _codes_of(text: str) -> tuple[str, ...]:
    if not text.strip():  # unloading says so, and needs no diagnosis for it
        return ()
    from tensormagic.diagnoses.rule import codes_of

    return codes_of(text)


def _unknown(codes: tuple[str, ...]) -> list[str]:
    """Return those with which no finding's code begins."""
    if not codes:
        return []
    from tensormagic.diagnoses import RULES

    return [code for code in codes if not any(rule.code.startswith(code) for rule in RULES)]
