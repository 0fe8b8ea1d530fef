"""``%tensormagic``: what there is, which version, how it is set."""

from __future__ import annotations

import difflib
import platform
import re
import shutil
import sys
import textwrap
from functools import partial
from importlib import import_module, metadata
from typing import Any

from IPython.core.error import UsageError
from IPython.display import display

from tensormagic import api
from tensormagic.errors import UnknownTopicError
from tensormagic.magics.arguments import Magic
from tensormagic.magics.frames import answer_of, is_notebook

# Every magic that has options, in the order in which a user meets them; no file of theirs is imported by loading.
MAGICS = {
    "tensor": "%tensor",
    "tensors": "%tensors",
    "model": "%model",
    "aliases": "%aliases",
    "writes": "%%aliases",
    "gradgraph": "%gradgraph",
    "tracegrad": "%%tracegrad",
    "why": "%why",
    "compare": "%compare",
    "ranks": "%ranks",
    "gpumem": "%gpumem",
    "gpumem_cell": "%%gpumem",
    "rng": "%rng",
}
# In which file of this package a magic is, where that is not `QUESTIONS`.
_FILES = {"tensor": "tensor", "tracegrad": "tracegrad", "gpumem": "gpumem", "gpumem_cell": "gpumem"}
QUESTIONS = "questions"
FILES = tuple(dict.fromkeys(_FILES.get(name, QUESTIONS) for name in MAGICS))
# What ``%tensormagic NAME on`` and ``off`` switch: each a Bool setting of the class TensorMagic.
SWITCHES = {
    "explain": "PyTorch errors are explained below the traceback, in any cell",
    "watch": "memory and modules are checked after each cell; silent unless something is wrong",
}
STATES = ("on", "off")
_KNOWN = ", ".join(f"{switch} on|off" for switch in SWITCHES)
HELP = "help"
_PACKAGES = ("tensormagic", "torch", "ipython", "ipywidgets", "anywidget", "plotly", "jupyterlab")
_NARROWEST, _WIDEST = 40, 100  # characters of a line: of a terminal's, and of one that a notebook does not break
_SECOND_COLUMN = re.compile(r" {8,}|\S+ {2,}")


def run(magics: Any, line: str) -> None:
    """Print help, versions and settings; show a page; check the session or a training; or switch something on or off.

    Raises:
        UsageError: for what is no switch and no topic, or neither on nor off.
    """
    words = line.split()
    topic = line.strip().removeprefix(HELP).strip() if words[:1] == [HELP] else line
    if words[:1] == ["check"]:
        checked = line.split(maxsplit=1)[1:]
        magics.watcher.check_start(*checked) if checked else magics.watcher.check()
    elif words == [HELP]:
        print(answer_of(api.help_index))  # noqa: T201  (asked for)
    elif words and words[0] in SWITCHES:
        _switch(magics, words)
    elif not words or words in (["--help"], ["-h"]):
        _tell(magics)
    elif refused := answer_of(_page_or_found, topic):
        near = difflib.get_close_matches(words[0], ("check", *SWITCHES, HELP), n=1)
        meant = f" (did you mean {near[0]}?)" if near else ""
        known = "" if words[0] == HELP else f"%tensormagic takes check, {_KNOWN}, help, or a topic{meant}; "
        raise UsageError(known + refused)


def _page_or_found(topic: str) -> str:
    """Show the page on a topic, or list the pages about it; return why there is neither."""
    try:
        page = api.help_page(topic)
    except UnknownTopicError as error:
        found = api.help_found(topic) if topic.rsplit(maxsplit=1)[-1] not in STATES else ""
        print(found, end="\n" * bool(found))  # noqa: T201  (asked for)
        return "" if found else str(error)
    from tensormagic.views.text_canvas import prints_best

    if prints_best():
        api.print_markdown(page)
    else:
        display({"text/markdown": page, "text/plain": page}, raw=True)
    return ""


def _tell(magics: Any) -> None:
    """Say what there is: in a notebook as a table, elsewhere as text."""
    own = [
        ("%tensormagic check", "Find memory that nothing uses, and modules that miss parameters."),
        ("%tensormagic check net, optimizer, loader", "Check a training before it begins, with one batch."),
        *((f"%tensormagic {name} on|off", f"If on, {text}.") for name, text in SWITCHES.items()),
        ("%tensormagic help tracegrad, %tensormagic TM302", "Show the page of a magic, of a finding."),
        ("%tensormagic help", "List all topics."),
    ]
    asked = [(made.prog, str(made.description)) for made in (found.parser() for found in map(magic, MAGICS))]
    named = [
        f"%config TensorMagic.{name} = {getattr(magics, name)!r}" for name in ("live", "viewer", "ignore", *SWITCHES)
    ]
    versions = [f"Python {platform.python_version()}", *(f"{name} {_version(name)}" for name in _PACKAGES)]
    state = "\n".join(
        f"{'' if at else head:<9} {line}"
        for head, lines in (("versions", textwrap.wrap(", ".join(versions), _WIDEST)), ("settings", named))
        for at, line in enumerate(lines)
    )
    lines = [f"{name:<13} {text}" for name, text in asked]
    lines += [f"{'':<13} {line}" for line in ("--help after any of them lists its options", *map(": ".join, own))]
    text = "\n".join((*lines, "", state))
    if is_notebook(magics.shell):
        rows = "\n".join(f"| `{command.replace('|', chr(92) + '|')}` | {text} |" for command, text in (*asked, *own))
        table = f"| magic | does |\n|:--|:--|\n{rows}\n\n```text\n{state}\n```"
        display({"text/markdown": table, "text/plain": text}, raw=True)
    else:
        print(_fitted(text))  # noqa: T201  (asked for)


def _fitted(text: str) -> str:
    """Return lines that break between words where the terminal ends, each below its second column."""
    if not sys.stdout.isatty():
        return text
    columns = max(shutil.get_terminal_size().columns, _NARROWEST)
    fill = partial(textwrap.fill, width=columns, replace_whitespace=False, break_on_hyphens=False)
    below = {line: " " * len(found[0]) for line in text.splitlines() if (found := _SECOND_COLUMN.match(line))}
    return "\n".join(fill(line, subsequent_indent=below.get(line, "")) for line in text.splitlines())


def _switch(magics: Any, words: list[str]) -> None:
    """Switch on or off what the words name; the name alone says how it is."""
    name, state = words[0], words[1] if len(words) == 2 else ""
    if len(words) > 1 and state not in STATES:
        raise UsageError(f"%tensormagic {name} takes on, off, or nothing, but was given {' '.join(words[1:])!r}")
    if state:
        setattr(magics, name, state == STATES[0])
    print(f"{name} is {'on:' if getattr(magics, name) else 'off. If on:'} {SWITCHES[name]}")  # noqa: T201  (asked for)


def magic(name: str) -> Magic:
    """Import a magic: one of `MAGICS`."""
    found: Magic = import_module(f"tensormagic.magics.{_FILES.get(name, QUESTIONS)}").MAGICS[name]
    return found


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
