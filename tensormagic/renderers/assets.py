"""The static files that panels inline: style sheets and viewers, read once and joined without a bundler."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_STATIC = Path(__file__).parent / "static"
_IMPORT = re.compile(r'^import \{[^}]*\} from "\./(\w+\.js)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?!default)", re.MULTILINE)
_TYPE = re.compile(r"/\*\* @.*? \*/ ?")  # a type written into a line of code: for the checker alone


@cache
def static(filename: str) -> str:
    """Return a file of ``static/`` without its indentation, empty lines and whole-line comments."""
    lines = (line.strip() for line in (_STATIC / filename).read_text(encoding="utf-8").splitlines())
    return "\n".join(_TYPE.sub("", line) for line in lines if line and not _is_comment(line))


@cache
def module(folder: str, entry: str) -> str:
    """Return a JavaScript module and all it imports from its folder as one module, which exports what ``entry`` does.

    The files are modules of their own, each after those it imports; imports are by name, and no top-level name is
    used twice in one folder.
    """
    order: list[str] = []
    _gather(folder, entry, order)
    inner = [_EXPORT.sub("", _source(folder, name)) for name in order[:-1]]
    return "\n".join([*inner, _source(folder, entry)])


def _gather(folder: str, name: str, order: list[str]) -> None:
    for imported in _IMPORT.findall(static(f"{folder}/{name}")):
        if imported not in order:
            _gather(folder, imported, order)
    order.append(name)


def _source(folder: str, name: str) -> str:
    return _IMPORT.sub("", static(f"{folder}/{name}")).strip()


def _is_comment(line: str) -> bool:
    if line.startswith("/*") and "*/" in line:  # a type in front of code is no whole-line comment
        return line.endswith("*/")
    return line.startswith(("//", "/*", "*/", "* ")) or line == "*"
