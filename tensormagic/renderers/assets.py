"""The static files that panels inline: style sheets and viewers, read once and made small without a bundler."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_STATIC = Path(__file__).parent / "static"


@cache
def static(filename: str) -> str:
    """Return a file of ``static/`` without its indentation, empty lines and whole-line comments."""
    lines = (line.strip() for line in (_STATIC / filename).read_text(encoding="utf-8").splitlines())
    return "\n".join(line for line in lines if line and not _is_comment(line))


def _is_comment(line: str) -> bool:
    if line.startswith("/*") and "*/" in line:  # a type in front of code is no whole-line comment
        return line.endswith("*/")
    return line.startswith(("//", "/*", "*/", "* ")) or line == "*"
