"""The style sheet of one panel: the tokens, what all panels share, and the files of its kind, as they are written.

A style sheet in a notebook counts for all panels on the page, whatever its place: the rules of one kind of panel begin
with three classes (``.tm-why.tm.tm``), those that all panels share with ``.tm``, so that no panel changes another.
"""

from __future__ import annotations

from tensormagic.renderers.assets import static
from tensormagic.renderers.basics import theme
from tensormagic.renderers.basics.icons import icon_style


def sheet(*files: str, extra: str = "") -> str:
    """Return the whole style sheet of a panel.

    Args:
        files: Of ``static/``, besides the tokens and what all panels share.
        extra: Rules that no file holds.
    """
    return tokens() + icon_style() + "".join(map(static, ("panel.css", "access.css", *files))) + extra


def tokens() -> str:
    """Return all tokens, and what says whether they are light or dark."""
    return theme.scale_style() + static("tokens.css")
