"""The rules of a style sheet: which of them a panel can use, and how they are written with the fewest characters.

Rules that begin alike are nested in what they begin with (CSS Nesting: in browsers a little longer than
``light-dark()``, which every colour of a panel is made with).
"""

from __future__ import annotations

import re
from functools import cache
from itertools import groupby
from typing import NamedTuple

_RULE = re.compile(r"(@[^{]+)\{((?:[^{}]+\{[^{}]*\})*)\s*\}|([^{}]+)\{([^{}]*)\}")
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_OUTER_COMMA = re.compile(r",(?![^()]*(?:\([^()]*\)[^()]*)*\))")
_ALTERNATIVE = re.compile(r":(?:not|is|has)\((?:[^()]|\([^()]*\))*\)")
_KIND = re.compile(r"^(\.tm-[\w-]+)(?:\.tm)?(?![\w-])")
_NEEDED = re.compile(r"\.(tm-[\w-]+)|(?:^|[\s>+~])([a-z]\w*)")
_HEAD = re.compile(r"(?:\.tm[\w-]*)+(?=[\s>+~])")


class Rule(NamedTuple):
    """A rule.

    Attributes:
        selectors: Each with the classes and the elements it needs; of a block the condition, which needs nothing.
        body: Its declarations.
        inside: The rules of a block.
    """

    selectors: tuple[tuple[str, frozenset[str]], ...]
    body: str
    inside: tuple[Rule, ...] = ()


@cache
def parsed(text: str) -> tuple[Rule, ...]:
    """Return the rules of a style sheet; those that begin with a kind of panel outweigh what all panels share."""
    return tuple(map(_rule, _RULE.finditer(_COMMENT.sub("", text))))


def _rule(match: re.Match[str]) -> Rule:
    if match[1]:
        return Rule(((match[1].strip(), frozenset()),), "", parsed(match[2]))
    parts = [_weighty(part.strip()) for part in _OUTER_COMMA.split(match[3])]
    return Rule(tuple((part, needs(part)) for part in parts), match[4].strip().replace("\n", ""))


def _weighty(selector: str) -> str:
    """Return a selector that begins with a kind of panel so that it wins over what all panels share."""
    return _KIND.sub(r"\1.tm.tm", selector, count=1)


def needs(selector: str) -> frozenset[str]:
    """Return the classes and the elements without which a selector finds nothing."""
    return frozenset(found[1] or found[2] for found in _NEEDED.finditer(_ALTERNATIVE.sub("", selector)))


def needs_of(rules: tuple[Rule, ...]) -> frozenset[str]:
    """Return all classes and elements that rules ask for."""
    asked = (needs for rule in rules for _, needs in rule.selectors)
    return frozenset().union(*asked, *(needs_of(rule.inside) for rule in rules if rule.inside))


def kept(rules: tuple[Rule, ...], present: frozenset[str]) -> str:
    """Return those of the rules that can be used where so much is present."""
    return "".join(_kept(rule, present) for rule in rules)


def _kept(rule: Rule, present: frozenset[str]) -> str:
    selectors = [selector for selector, needs in rule.selectors if needs <= present]
    body = kept(rule.inside, present) if rule.inside else rule.body
    return f"{','.join(selectors)}{{{body}}}" if selectors and body else ""


def nested(rules: str) -> str:
    """Return the same rules, neighbours that begin alike inside what they begin with; comments are gone."""
    found = _RULE.finditer(_COMMENT.sub("", rules))
    return "".join(_group(head, [*each]) for head, each in groupby(found, key=_head))


def _head(match: re.Match[str]) -> str:
    """Return what all selectors of a rule begin with; nothing where they do not."""
    heads = {_begin(part) for part in _OUTER_COMMA.split(match[3] or "")}
    return heads.pop() if len(heads) == 1 else ""


def _begin(selector: str) -> str:
    found = _HEAD.match(selector.strip())
    return found[0] if found else ""


def _group(head: str, rules: list[re.Match[str]]) -> str:
    if head and len(rules) > 1:
        return f"{head}{{{''.join(_written(each, len(head)) for each in rules)}}}"
    return "".join(f"{each[1].strip()}{{{nested(each[2])}}}" if each[1] else _written(each, 0) for each in rules)


def _written(rule: re.Match[str], begin: int) -> str:
    selectors = ",".join(part.strip()[begin:].strip() for part in _OUTER_COMMA.split(rule[3]))
    return f"{selectors}{{{rule[4].strip().removesuffix(';')}}}"
