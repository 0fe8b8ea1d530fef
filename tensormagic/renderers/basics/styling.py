"""The style sheet of one panel: the tokens and rules that it uses and no others, because every saved output carries it.

A style sheet in a notebook counts for all panels on the page, whatever its place: the rules of one kind of panel are
made to weigh more than those that all panels share, so that no panel changes another.

A rule stays where all its ``tm-`` classes and its elements stand somewhere in the panel, or in a script that may add
them; a token stays where a rule that stays, or the panel, asks for it.
"""

from __future__ import annotations

import re
from functools import cache

from tensormagic.renderers.assets import static
from tensormagic.renderers.basics import theme
from tensormagic.renderers.basics.icons import icon_style
from tensormagic.renderers.basics.style_rules import kept, needs_of, nested, parsed

_CLASS, _ELEMENT, _WORD = re.compile(r"\btm-[\w-]*\w"), re.compile(r"<([a-z]\w*)"), re.compile(r"\"([a-z]\w*)\"")
_ADDED = re.compile(r'(?:className(?: =|:) |classList\.\w+\(|"class", |make\("\w+", )"([^"]*)"')
_SYSTEM = re.compile(r"(--[\w-]+):(?:Canvas|CanvasText|LinkText);?")  # a token in forced colours
_CARRIED = re.compile(r'data-tm-code="(\w+)-')
_TOKEN, _ASKED = re.compile(r"(--[\w-]+):((?:[^;(]|\([^;]*\))*)"), re.compile(r"var\((--[\w-]+)")
# The scripts that add elements to a panel, by the code that it carries. "Export", which comes to every panel, has rules
# of its own for what it adds; so has the code of a tensor: `brought`.
_OF_SCRIPTS = {
    "overlay": ("overlay_viewer.js",), "tensor": ("tensor_viewer.js", "tensor_slices.js"),
    "tensors": ("tensors_viewer.js",),
}  # fmt: skip
_BROUGHT, _OF_EXPORT = "tensor", "export/menu.js"


def sheet(markup: str, *files: str, extra: str = "") -> str:
    """Return the whole style sheet of a panel.

    Args:
        markup: The panel, scripts included.
        files: Of ``static/``, besides the tokens and what all panels share.
        extra: Rules that no file holds.
    """
    own = kept(parsed(extra), _present(markup))
    rules = used(markup, "panel.css", "access.css", *files) + own + icon_style(markup)
    later = brought(_BROUGHT, *files) if _BROUGHT in _CARRIED.findall(markup) else ""
    asking = rules + markup + later + static(_OF_EXPORT)
    wanted = _wanted(asking)
    return tokens(asking) + nested(_SYSTEM.sub(lambda found: found[0] if found[1] in wanted else "", rules))


def used(markup: str, *files: str) -> str:
    """Return the rules of ``files`` that ``markup`` can use."""
    present = _present(markup)
    return "".join(kept(parsed(static(name)), present) for name in files)


def brought(code: str, *files: str) -> str:
    """Return the rules of ``files`` for what a piece of code adds to a panel: they come packed with it.

    They stand before the panel's own sheet, which may say some of them again.
    """
    added = frozenset().union(*map(_added_by, _OF_SCRIPTS[code]))
    rules = (rule for name in files for rule in parsed(static(name)))
    return nested("".join(kept((rule,), needs_of((rule,))) for rule in rules if added & needs_of((rule,))))


def _present(markup: str) -> frozenset[str]:
    """Return the classes and elements of a panel, and those that its scripts may add."""
    found = {*_CLASS.findall(markup), *_ELEMENT.findall(markup), *_elements_of(_OF_EXPORT)}
    for code in _CARRIED.findall(markup):
        for filename in _OF_SCRIPTS.get(code, ()):
            found |= _elements_of(filename) | (_added_by(filename) if code != _BROUGHT else frozenset())
    return frozenset(found)


@cache
def _elements_of(filename: str) -> frozenset[str]:
    """Return every word of a script that may be an element it makes."""
    text = static(filename)
    return frozenset(_ELEMENT.findall(text) + _WORD.findall(text))


@cache
def _added_by(filename: str) -> frozenset[str]:
    """Return the classes that a script gives to elements."""
    return frozenset(_CLASS.findall(" ".join(_ADDED.findall(static(filename)))))


def tokens(asking: str) -> str:
    """Return the tokens that ``asking`` needs, and what says whether they are light or dark."""
    return f".tm{{{_body(_wanted(asking))}}}{_declared()[1]}"


def further_tokens(asking: str, given: str) -> str:
    """Return the tokens that ``asking`` needs beyond those that the sheet ``given`` declares."""
    return f".tm{{{_body(_wanted(asking) - {name for name, _ in _TOKEN.findall(given)})}}}"


def _body(wanted: set[str]) -> str:
    return ";".join(f"{name}:{value}" for name, value in _declared()[0].items() if name in wanted)


def _wanted(asking: str) -> set[str]:
    """Return the tokens that ``asking`` names, and those that they are made of."""
    declared = _declared()[0]
    wanted, new = set[str](), set(_ASKED.findall(asking))
    while new:
        wanted |= new
        new = {name for one in new for name in _ASKED.findall(declared.get(one, ""))} - wanted
    return wanted


def whole(*files: str) -> str:
    """Return all tokens and all rules of ``files``: for a sheet that several outputs of a page share."""
    return static("tokens.css") + theme.scale_style() + whole_rules(*files)


def whole_rules(*files: str) -> str:
    """Return all rules of ``files``."""
    return "".join(kept(each, needs_of(each)) for each in (parsed(static(name)) for name in files))


@cache
def _declared() -> tuple[dict[str, str], str]:
    """Return every token with its value, and the rules of the token file that are no tokens."""
    rules = parsed(static("tokens.css"))
    blocks = theme.scale_style()[4:-1] + ";" + "".join(rule.body for rule in rules if rule.body.startswith("--"))
    rest = kept(tuple(rule for rule in rules if not rule.body.startswith("--")), needs_of(rules))
    return {name: value.strip() for name, value in _TOKEN.findall(blocks)}, rest
