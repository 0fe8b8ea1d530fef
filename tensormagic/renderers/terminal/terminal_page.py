"""A page of the documentation in a terminal: headings, tables and code set by Rich; elsewhere its Markdown as it is."""

from __future__ import annotations

import sys
from typing import TextIO

from tensormagic.renderers.terminal.terminal_screen import is_terminal

WIDEST = 100  # columns: longer lines are hard to read


def print_markdown(text: str, stream: TextIO | None = None) -> None:
    """Print a page of Markdown: set and coloured in a terminal, and plain into anything else."""
    out = stream or sys.stdout
    try:
        from rich.console import Console
        from rich.markdown import Markdown
    except ImportError:
        print(text, file=out)
        return
    if not is_terminal(out):
        print(text, file=out)
        return
    console = Console(file=out, force_jupyter=False)
    page = Markdown(text, code_theme="ansi_dark", hyperlinks=False)
    console.print(page, width=min(console.width, WIDEST))
