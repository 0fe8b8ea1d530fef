"""JavaScript made small without a bundler: what stands in every saved notebook should not carry spaces and long names.

Spaces and comments go, and variables get short names. No scope has to be understood for that: what is declared at the
top gets one short name for the whole script, and within each function there or member of a class, every other variable
gets one, the same for the same. Properties, keys and members keep theirs; `{ wide }` becomes `{ wide: a }`. That is
right for code as ours is written: with semicolons, without `with`, `eval`, labels, or an object after `case x:`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import cache
from itertools import count, product

_TOKEN = re.compile(
    r"""(?P<gap>(?:\s+|//[^\n]*|/\*[\s\S]*?\*/)+)
    |(?P<name>\#?[A-Za-z_$][\w$]*)
    |(?P<number>\.?\d[\w.]*)
    |(?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?P<sign>=>|\.\.\.|\?\.(?!\d)|[-+*/%&|^!=<>?~,;:.(){}\[\]])""",
    re.VERBOSE,
)
_REGEX = re.compile(r"/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n\[])+/[a-z]*")
_TEMPLATE = re.compile(r"(?:\\[\s\S]|\$(?!\{)|[^\\`$])*(?:`|\$\{)")


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split(" "))


_KEYWORDS = _set(
    "arguments async await break case catch class const constructor continue debugger default delete do else "
    "export extends false finally for from function get if import in instanceof let new null of return set static "
    "super switch this throw true try typeof undefined var void while yield NaN Infinity"
)
# Names that mean something where nothing declares them: a variable of that name keeps it.
_GLOBALS = _set(
    "Array Blob Boolean CSS CSSStyleSheet DOMParser Date DecompressionStream Element Error Event Float32Array "
    "Float64Array Int32Array Intl JSON Map Math MutationObserver Node Number Object Option Path2D Promise Proxy "
    "Reflect RegExp ResizeObserver Response Set String Symbol TextDecoder TextEncoder URL Uint8Array WeakMap "
    "WeakRef WeakSet XMLSerializer Image ClipboardItem File FileReader atob btoa cancelAnimationFrame "
    "clearInterval clearTimeout console crypto customElements document fetch getComputedStyle globalThis history "
    "isFinite isNaN localStorage location matchMedia navigator parseFloat parseInt performance queueMicrotask "
    "requestAnimationFrame requestIdleCallback self sessionStorage setInterval setTimeout structuredClone window"
)
_LETTERS = "teanisroxhlcdupmfgbvykwjzqTEANISROXHLCDUPMFGBVYKWJZQ"  # as often as in the code around them: packs better
_BEFORE_REGEX = _set("( , = : [ ! & | ? { } ; + - * % < > ~ ^ => return typeof case") | {""}
_ENDS_LINE = _set("; { , ( [ : ? = & | + - * < > ! % ^ ~ / => ?. . ...") | {""}
_STARTS_LINE = _set("} ) ] , . : ? = & | * < > ; % ^ => ?.")
_BEFORE_BLOCK = _set(") => ; { } else try finally do") | {""}
_NO_PARAMETERS = _set("if while for switch")
_CLOSING = _set(") ] }")


@cache
def minified(source: str, *, keep: tuple[str, ...] = ()) -> str:
    """Return a script or module that does the same and is smaller.

    Args:
        source: Its text.
        keep: Top-level names that something else uses.
    """
    script = _Script(source)
    short = _short_names(script, frozenset(keep))
    pieces = []
    for at, text in enumerate(script.texts):
        if not _is_needless(script, at):
            pieces += [_gap(script, at), short(at) if script.is_variable[at] else text]
    return "".join(pieces)


def _is_needless(script: _Script, at: int) -> bool:
    """Whether a token may go: the last semicolon of a block, the last comma of a list, round brackets of one name."""
    text, after = script.texts[at], script.texts[at + 1 : at + 2]
    if text == ";" and after == ["}"]:
        return not _has_empty_body(script, at)
    if text == "," and after and after[0] in _CLOSING:
        return script.texts[at - 1] not in {",", "["}  # these are holes
    if text == "(":
        return _is_round_one_name(script, at)
    return text == ")" and _is_round_one_name(script, script.partner[at])


def _has_empty_body(script: _Script, at: int) -> bool:
    """Whether the semicolon there is all that a loop or an ``if`` does."""
    return script.texts[at - 1] == ")" and script.texts[script.partner[at - 1] - 1] in _NO_PARAMETERS


def _is_round_one_name(script: _Script, at: int) -> bool:
    """Whether the bracket there opens the one parameter of an arrow function, and no word stands before it."""
    is_arrow = script.texts[at + 2 : at + 4] == [")", "=>"] and script.is_variable[at + 1]
    return is_arrow and (not at or script.kinds[at - 1] != "name")


class _Script:
    """The tokens of a script, a list for each thing that is known of them.

    Attributes:
        texts: The tokens as they are written; templates in pieces, so that what they hold are tokens too.
        kinds: name, number, string, regex, template or sign.
        gaps: What stood before each: nothing, a space, or a line's end.
        inside: The bracket it stands in: object, class, block, or another.
        partner: Of a bracket the place of the other one of the pair.
        chunk: The number of the function, class member or statement at the top that it is in.
        top: The places that are in no function, class or bracket.
        is_variable: Whether it is a name that stands for a variable, not for a property, a key or a member.
    """

    def __init__(self, source: str) -> None:
        self.texts: list[str] = []
        self.kinds: list[str] = []
        self.gaps: list[str] = []
        for text, kind, gap in _tokens(source):
            self.texts.append(text)
            self.kinds.append(kind)
            self.gaps.append(gap)
        self.inside: list[str] = []
        self.partner: dict[int, int] = {}
        self.chunk: list[int] = []
        self.top: set[int] = set()
        self._place()
        self.is_variable = [self._stands_for_variable(at) for at in range(len(self.texts))]

    def _place(self) -> None:
        stack: list[tuple[str, int]] = [("block", -1)]
        ground = 3 if self.texts[:5] == ["(", "(", ")", "=>", "{"] else 1  # all of it may stand in a function
        chunk, level_before = 0, 0
        for at, text in enumerate(self.texts):
            if text in ")]}" or (self.kinds[at] == "template" and text[0] == "}"):
                opened = stack.pop()[1]
                self.partner[at], self.partner[opened] = opened, at
            inside = stack[-1][0]
            if len(stack) == ground or (len(stack) == ground + 1 and inside == "class"):
                before = self.texts[at - 1] if at else ""
                chunk += before == "{" or (before in {"}", ";"} and len(stack) == level_before)
            level_before = len(stack)
            if len(stack) == ground:
                self.top.add(at)
            self.inside.append(inside)
            self.chunk.append(chunk)
            if text in {"(", "[", "{"} or text.endswith("${"):
                stack.append((self._brace(at) if text == "{" else "(", at))

    def _brace(self, at: int) -> str:
        """Return what a brace opens: a block, a class, or an object (or a pattern, which is written alike)."""
        before = self.texts[at - 1] if at else ""
        if at > 1 and self.kinds[at - 1] == "name" and self.texts[at - 2] in {"class", "extends"}:
            return "class"
        return "block" if before in _BEFORE_BLOCK else "object"

    def _stands_for_variable(self, at: int) -> bool:
        text, before = self.texts[at], self.texts[at - 1] if at else ""
        if self.kinds[at] != "name" or text in _KEYWORDS or text[0] == "#" or before in {".", "?."}:
            return False
        if self.inside[at] == "object" and before in {"{", ","}:
            return self.texts[at + 1] not in {":", "("}
        return not (self.inside[at] == "class" and before in {"{", ";", "}", "static", "get", "set", "async"})

    def is_shorthand(self, at: int) -> bool:
        """Whether a variable names its property by the way, as in ``{ wide }``."""
        return self.inside[at] == "object" and self.texts[at - 1] in {"{", ","}

    def names(self, start: int, stop: int) -> set[int]:
        """Return the places of all variables from ``start`` to before ``stop``."""
        return {at for at in range(start, stop) if self.is_variable[at]}


def _tokens(source: str) -> Iterator[tuple[str, str, str]]:
    at, last, gap = 0, "", ""
    braces: list[int] = []  # open braces inside each template that is open
    while at < len(source):
        kind, text = _next(source, at, last, in_template=bool(braces) and braces[-1] == 0)
        at += len(text)
        if kind == "gap":
            gap = "\n" if "\n" in text else " "
            continue
        if kind == "template":
            if text[0] == "}":
                braces.pop()
            if text.endswith("${"):
                braces.append(0)
        elif braces:
            braces[-1] += (text == "{") - (text == "}")
        yield text, kind, gap
        last, gap = "(" if text.endswith("${") else "x" if kind == "template" else text, ""


def _next(source: str, at: int, last: str, *, in_template: bool) -> tuple[str, str]:
    first = source[at]
    if (first == "`" or (first == "}" and in_template)) and (found := _TEMPLATE.match(source, at + 1)):
        return "template", first + found[0]
    if first == "/" and source[at + 1] not in "/*" and last in _BEFORE_REGEX and (found := _REGEX.match(source, at)):
        return "regex", found[0]
    found = _TOKEN.match(source, at)
    if found is None:
        raise ValueError(f"no JavaScript that this can read: {source[at : at + 40]!r}")
    return str(found.lastgroup), found[0]


def _short_names(script: _Script, keep: frozenset[str]) -> Callable[[int], str]:
    """Return what gives the variable at a place its short name."""
    declared = _declared(script)
    names = {script.texts[at] for at in declared} - _GLOBALS - keep
    shared = {script.texts[at] for at in declared & script.top} & names
    uses: dict[int, Counter[str]] = {}
    for at, is_variable in enumerate(script.is_variable):
        if is_variable:
            uses.setdefault(script.chunk[at], Counter())[script.texts[at]] += 1
    total = Counter[str]()
    for used in uses.values():
        total.update({name: used[name] for name in shared & used.keys()})
    everywhere = _shortest(total, taken=keep | _GLOBALS, least=2)
    within = {
        chunk: _shortest(
            Counter({name: times for name, times in used.items() if name in names - shared}),
            taken={everywhere.get(name, name) for name in used if name not in names - shared},
        )
        for chunk, used in uses.items()
    }

    def short(at: int) -> str:
        name = script.texts[at]
        new = everywhere.get(name) or within[script.chunk[at]].get(name, name)
        return f"{name}:{new}" if new != name and script.is_shorthand(at) else new

    return short


def _shortest(uses: Counter[str], *, taken: Collection[str], least: int = 1) -> dict[str, str]:
    """Return the shortest free name for each, the most used ones first."""
    letters = ("".join(each) for length in count(least) for each in product(_LETTERS, repeat=length))
    free = (name for name in letters if name not in taken and name not in _KEYWORDS)
    return dict(zip(sorted(uses, key=lambda name: (-uses[name], name)), free, strict=False))


def _declared(script: _Script) -> set[int]:
    """Return the places at which variables are declared, and perhaps some that only stand beside one."""
    found: set[int] = set()
    texts = script.texts
    for at in range(1, len(texts)):
        text, before = texts[at], texts[at - 1]
        opened = script.partner[at - 1] if before == ")" else at - 1
        if text == "=>" or (text == "{" and before == ")" and texts[opened - 1] not in _NO_PARAMETERS):
            found |= script.names(opened, at)
        elif before in {"function", "class"}:
            found.add(at)
        elif before in {"const", "let", "var"}:
            found |= _declarators(script, at)
    return found


def _declarators(script: _Script, at: int) -> set[int]:
    """Return the places of the names that a ``const`` or ``let`` before ``at`` declares."""
    found: set[int] = set()
    begins = True
    while at < len(script.texts) and script.texts[at] not in {";", "of", "in", ")", "]", "}"}:
        stop = max(script.partner.get(at, at), at)
        if begins:
            found |= script.names(at, stop + 1)
        begins = script.texts[at] == ","
        at = stop + 1
    return found


def _gap(script: _Script, at: int) -> str:
    """Return what must stay between a token and the one before it: mostly nothing."""
    text, before, gap = script.texts[at], script.texts[at - 1] if at else "", script.gaps[at]
    if not gap or not before:
        return ""
    in_template = before.endswith("${") or (script.kinds[at] == "template" and text[0] == "}")
    if gap == "\n" and not (before in _ENDS_LINE or text in _STARTS_LINE or in_template):
        return "\n"
    left, right = before[-1], text[0]
    wordy = (left.isalnum() or left in "_$") and (right.isalnum() or right in "_$#")
    return " " if wordy or (left in "+-/" and left == right) else ""
