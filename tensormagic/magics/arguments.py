"""Parses magic lines: options wherever they stand, and expressions with spaces in them.

A line such as ``x[0, 1] a + b --save out.html`` holds two expressions. It is cut at white space outside brackets and
quotes; then as many pieces are put together as still make one Python expression: ``a + b`` is one, ``a b`` are two.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import keyword
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from IPython.core.error import UsageError

if TYPE_CHECKING:
    from tensormagic.reports import Cell, Report

_NUMBERED = re.compile(r"([^\W\d]\w*|[\])])((?:\.\d+)+)\b")  # net.0.weight
_OPENING, _CLOSING, _QUOTES = "([{", ")]}", "\"'"


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are a message and the usage line, shown by IPython without a traceback."""

    def error(self, message: str) -> NoReturn:
        """Raise what IPython shows as one plain message."""
        usage = f"{self.format_usage().strip()}\n{self.prog} --help lists the options"
        raise UsageError(f"{message}{self._near(message)}\n{usage}")

    @property
    def options(self) -> dict[str, argparse.Action]:
        """Its options, by each way to write them; without that of a figure where there is none."""
        return {name: one for name, one in self._option_string_actions.items() if one.help != argparse.SUPPRESS}

    def _near(self, message: str) -> str:
        """Return which option a slip may have meant, where argparse knows none of that name."""
        slip = next((word for word in message.split() if word.startswith("--")), "")
        if not message.startswith("unrecognized") or not slip:
            return ""
        near = difflib.get_close_matches(slip.partition("=")[0], self.options, n=1)
        return f"; did you mean {near[0]}?" if near else ""

    def parse_line(self, line: str) -> argparse.Namespace:
        """Parse the rest of the magic's line; options may stand before, between and after the expressions."""
        usage = self.format_usage().removeprefix("usage: ").rstrip()
        self.usage = usage.replace("%", "%%")  # argparse takes its own usage line for a template
        return self.parse_intermixed_args(pieces(line))

    def _parse_optional(self, arg_string: str) -> Any:
        """Take ``-x`` for the expression that it is: minus x. Every option but -h begins with two."""
        if not arg_string.startswith("--") and arg_string not in self.options:
            return None
        return super()._parse_optional(arg_string)


def flag(does: str) -> dict[str, Any]:
    """Return the settings of an option that is there or not."""
    return {"action": "store_true", "help": does}


def value(metavar: str, does: str, **more: Any) -> dict[str, Any]:
    """Return the settings of an option that takes a value."""
    return {"metavar": metavar, "help": does, **more}


def several(does: str) -> dict[str, Any]:
    """Return the settings of expressions, none or more."""
    return {"nargs": "*", "help": does}


MODES = {"choices": ("widget", "html", "off")}  # how to show a cell while it runs


def _is_not_called(*_: Any) -> Any:
    raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Magic:
    """A magic that has options."""

    name: str  # With its percent signs.
    does: str  # What it does, for the help.
    makes: str  # The class of its report, by its name in `tensormagic.reports`.
    # What its line takes besides the options of all magics: names, and the settings for `add_argument`.
    takes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    needs: str = ""  # The argument without which there is nothing to show but the help; empty where there is none.
    instead: str = ""  # What is shown without ``--figure``, where there is no figure; empty where there is one.
    figures: bool = True  # Whether what it makes can be drawn as the figures that there are of such reports.
    # Others whose help belongs to its own: IPython refuses a cell magic without a cell, with --help too.
    also: tuple[Magic, ...] = ()
    # Makes the report of a line, from the shell and the options; None if it showed it itself.
    report: Callable[[Any, argparse.Namespace], Report | None] = _is_not_called
    # Makes what follows a cell, from the shell, how to show it while it runs, the options and the cell.
    follow: Callable[[Any, str, argparse.Namespace, Cell], Any] = _is_not_called

    def given(self, line: str) -> argparse.Namespace | None:
        """Return what a line asks for, and where it is to go; None where that is the help, which is printed then.

        Raises:
            UsageError: for an unknown option, for a figure where there is none, where ``--into`` is not a name.
        """
        options = self.parser().parse_line(line)
        if options.help or (self.needs and not getattr(options, self.needs)):
            helps = (one.parser().format_help().rstrip() for one in (self, *self.also))
            print("\n\n".join(helps))  # noqa: T201  (asked for)
            return None
        into = options.into
        if into is not None and (not into.isidentifier() or keyword.iskeyword(into)):
            raise UsageError(f"--into takes a name, but was given {into!r}")
        if self.instead and options.figure is not None:
            raise UsageError(f"{self.name} has no figure; without --figure it shows {self.instead}")
        return options

    @property
    def kinds_of_figure(self) -> tuple[str, ...]:
        """The figures that there are of what it makes; empty where there is none."""
        from tensormagic import reports
        from tensormagic.views.page.figures import KINDS

        made = getattr(reports, self.makes)
        return tuple(kind for kind, (classes, _) in KINDS.items() if self.figures and issubclass(made, classes))

    def parser(self) -> Parser:
        """Return the parser of its line; the parser's help is the help of the magic."""
        from tensormagic import reports, views

        made = Parser(prog=self.name, description=self.does, add_help=False, allow_abbrev=False)
        report: type[Report] = getattr(reports, self.makes)
        kinds = self.kinds_of_figure
        others = f"; --figure=KIND picks one of {', '.join(kinds)}" if len(kinds) > 1 else ""
        endings = " ".join(f".{form}" for form in sorted([*views.forms_of(report), "json"]))
        figures = f"show a plotly figure{others}" if kinds else argparse.SUPPRESS
        shared: dict[str, Mapping[str, Any]] = {
            "--text": flag("show plain text, as in a terminal"),
            "--figure": value("KIND", figures, nargs="?", const=""),
            "--save": value(
                "FILE", f"also write the report, as {endings}; can be repeated", action="append", default=[]
            ),
            "--into": value("NAME", "also bind the report to this name"),
            "--slide": flag("for a projector: large type, one part at a time; arrow keys turn pages, F is full screen"),
        }
        for name, settings in shared.items():
            made.add_argument(name, **settings)
        made.add_argument("--help", "-h", **flag("show this help"))
        for name, settings in self.takes.items():
            made.add_argument(name, **settings)
        return made


def slice_of(options: argparse.Namespace) -> dict[str, list[str]]:
    """Return which slice the options ask for, as `tensormagic.inspect` takes it: ``0,2`` and ``1,:,3,:`` cut up."""
    given = {"dims": unquoted(options.dims), "at": unquoted(options.at)}
    return {name: text.strip("()[] ").split(",") for name, text in given.items() if text is not None}


def pieces(line: str) -> list[str]:
    """Cut ``line`` at white space outside brackets and quotes, up to a comment.

    A bare ``--figure`` never swallows what follows it.
    """
    found, depth, quote = [""], 0, ""
    for character in line:
        if character == "#" and not found[-1] and not quote:
            break
        if quote:
            quote = "" if character == quote else quote
        elif character in _QUOTES:
            quote = character
        depth += (character in _OPENING) - (character in _CLOSING) if not quote else 0
        if character.isspace() and depth <= 0 and not quote:
            found.append("")
        else:
            found[-1] += character
    return ["--figure=" if piece == "--figure" else piece for piece in map(str.strip, found) if piece]


def expressions(parts: list[str]) -> list[str]:
    """Put pieces together into as few Python expressions as possible, from left to right.

    A comma parts two as well, unless parentheses make a tuple of them; a semicolon at the end is left out. What torch
    calls ``net.0.weight`` is the expression ``net[0].weight``.

    Raises:
        UsageError: where a piece begins no expression.
    """
    found: list[str] = []
    parts = [*parts[:-1], parts[-1].rstrip(";")] if parts else []
    parts = parts[:-1] if parts and not parts[-1] else parts
    for at, part in enumerate(parts):
        indexed = _NUMBERED.sub(lambda path: path[1] + re.sub(r"\.(\d+)", r"[\1]", path[2]), part)
        if not _is_expression(part) and _is_expression(indexed):
            parts[at] = indexed
    while parts:
        length = next((size for size in range(len(parts), 0, -1) if _is_expression(" ".join(parts[:size]))), 0)
        if not length:
            rest = " ".join(parts)
            if found and re.match(r"=[^=]", rest):
                told = f"run it on its own line, and give {found[-1]} here"
                raise UsageError(f"'{found[-1]} {rest}' is an assignment: {told}")
            raise UsageError(_why_not(rest) or f"{rest!r} is not a Python expression")
        found += _parted(" ".join(parts[:length]))
        parts = parts[length:]
    return found


def _parted(text: str) -> list[str]:
    """Return what commas part: ``x, y`` is two, ``(x, y)`` a tuple."""
    body = ast.parse(text, mode="eval").body
    if isinstance(body, ast.Tuple) and body.elts and body.elts[0].col_offset == body.col_offset:
        return [ast.get_source_segment(text, element) or "" for element in body.elts]
    return [text]


def check_expression(text: str) -> None:
    """Raise UsageError where ``text`` is no Python expression, or one that only runs inside a function."""
    if why := _why_not(text):
        raise UsageError(why)


def _is_expression(text: str) -> bool:
    return not _why_not(text)


def _why_not(text: str) -> str:
    """Return why a magic cannot evaluate ``text``; empty where it can."""
    try:
        ast.parse(text, mode="eval")
    except (SyntaxError, ValueError):
        return f"{text!r} is not a Python expression"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # whoever evaluates it shows them
            compile(text, "<string>", "eval", dont_inherit=True)
    except (SyntaxError, ValueError) as error:  # it can be parsed, but has an await or a yield
        waits = "async" in (words := getattr(error, "msg", str(error))) or "await" in words
        told = "; run it on its own line, bind its result to a name, and give that here" if waits else ""
        return f"{text!r} cannot be evaluated here: {words}{told}"
    return ""


def unquoted(path: str | None) -> str | None:
    """Return a file name without the quotes that a user put round it."""
    return path[1:-1] if path and len(path) > 1 and path[0] == path[-1] and path[0] in _QUOTES else path
