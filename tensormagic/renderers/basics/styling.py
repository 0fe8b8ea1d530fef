"""The style sheet of one panel: the tokens and rules that it uses and no others, because every saved output carries it.

A style sheet in a notebook counts for all panels on the page, whatever its place: the rules of one kind of panel are
made to weigh more than those that all panels share, so that no panel changes another.

A rule stays where all its ``tm-`` classes stand somewhere in the panel, or in a script that may add them; a token stays
where a rule that stays, or the panel, asks for it.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from tensormagic.renderers.assets import static
from tensormagic.renderers.basics import theme
from tensormagic.renderers.basics.icons import icon_style

_RULE = re.compile(r"(@[^{]+)\{((?:[^{}]+\{[^{}]*\})*)\s*\}|([^{}]+)\{([^{}]*)\}")
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_OUTER_COMMA = re.compile(r",(?![^()]*\))")
_ALTERNATIVE = re.compile(r":(?:not|is|has)\([^)]*\)")
_KIND = re.compile(r"^(\.tm-[\w-]+)(?:\.tm)?(?![\w-])")
_NEEDED, _CLASS = re.compile(r"\.(tm-[\w-]+)"), re.compile(r"\btm-[\w-]*\w")
_TOKEN, _ASKED = re.compile(r"(--[\w-]+):((?:[^;(]|\([^;]*\))*)"), re.compile(r"var\((--[\w-]+)")
# What only a script adds; see static/*.js.
_OF_SCRIPTS = (
    "overlay_viewer.js", "tensor_slices.js", "tensor_viewer.js", "tensors_viewer.js",
)  # fmt: skip


class _Rule(NamedTuple):
    selectors: tuple[tuple[str, frozenset[str]], ...]  # each with the classes it needs
    body: str


def sheet(markup: str, *files: str, extra: str = "") -> str:
    """Return the whole style sheet of a panel.

    Args:
        markup: The panel, scripts included.
        files: Of ``static/``, besides the tokens and what all panels share.
        extra: Rules that no file holds.
    """
    present = _present(markup)
    own = "".join(_kept(rule, present) for rule in _parsed(extra))
    rules = used(markup, "panel.css", "access.css", *files) + own + icon_style(markup)
    return tokens(rules + markup) + rules


def used(markup: str, *files: str) -> str:
    """Return the rules of ``files`` that ``markup`` can use."""
    present = _present(markup)
    return "".join(_kept(rule, present) for name in files for rule in _parsed(static(name)))


def _present(markup: str) -> frozenset[str]:
    found = frozenset(_CLASS.findall(markup))
    return found | _script_classes() if "<script" in markup else found


def tokens(asking: str) -> str:
    """Return the tokens that ``asking`` needs, and what says whether they are light or dark."""
    declared, rest = _declared()
    wanted, new = set[str](), set(_ASKED.findall(asking))
    while new:
        wanted |= new
        new = {name for one in new for name in _ASKED.findall(declared.get(one, ""))} - wanted
    body = ";".join(f"{name}:{value}" for name, value in declared.items() if name in wanted)
    return f".tm{{{body}}}{rest}"


def whole(*files: str) -> str:
    """Return all tokens and all rules of ``files``: for a sheet that several outputs of a page share."""
    rules = "".join(_kept(rule, _needs_of(rule)) for name in files for rule in _parsed(static(name)))
    return static("tokens.css") + theme.scale_style() + rules


def _needs_of(rule: _Rule) -> frozenset[str]:
    return frozenset().union(*(needs for _, needs in rule.selectors))


@cache
def _declared() -> tuple[dict[str, str], str]:
    """Return every token with its value, and the rules of the token file that are no tokens."""
    found = [(match[3].strip(), match[4]) for match in _RULE.finditer(_COMMENT.sub("", static("tokens.css")))]
    blocks = theme.scale_style()[4:-1] + ";" + "".join(body for _, body in found if body.lstrip().startswith("--"))
    rest = "".join(f"{selector}{{{body}}}" for selector, body in found if not body.lstrip().startswith("--"))
    return {name: value.strip() for name, value in _TOKEN.findall(blocks)}, rest


@cache
def _script_classes() -> frozenset[str]:
    return frozenset(name for script in _OF_SCRIPTS for name in _CLASS.findall(static(script)))


@cache
def _parsed(text: str) -> tuple[_Rule, ...]:
    rules = []
    for match in _RULE.finditer(_COMMENT.sub("", text)):
        if match[1]:
            rules.append(_Rule(((match[1].strip(), frozenset()),), match[2]))
        else:
            parts = [_weighty(part.strip()) for part in _OUTER_COMMA.split(match[3])]
            rules.append(_Rule(tuple((part, _needs(part)) for part in parts), match[4]))
    return tuple(rules)


def _weighty(selector: str) -> str:
    """Return a selector that begins with a kind of panel so that it wins over what all panels share."""
    return _KIND.sub(r"\1.tm.tm", selector, count=1)


def _needs(selector: str) -> frozenset[str]:
    return frozenset(_NEEDED.findall(_ALTERNATIVE.sub("", selector)))


def _kept(rule: _Rule, present: frozenset[str]) -> str:
    selectors = [selector for selector, needs in rule.selectors if needs <= present]
    return f"{','.join(selectors)}{{{rule.body}}}" if selectors else ""
