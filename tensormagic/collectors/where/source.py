"""Which of the user's own lines is running, also in a file edited since: from a frame to a `Location`, and to names."""

from __future__ import annotations

import ast
import dis
import linecache
import os
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any, TypeVar

from tensormagic.reports import Cell, Gap, Location
from tensormagic.words import syntax

# The user's line is the innermost frame of *their* code: not torch, not this package, not the standard library, not
# an installed package. Where a library calls torch on their behalf, that is the line which called the library. A
# frame walk costs about a microsecond, so lines are interned: equal places share one small integer, the *site*.

PACKAGE_DIRECTORY = str(Path(__file__).parents[2]) + os.path.sep  # with its links, as ``co_filename`` has it
# In paths of installed packages, also the user's (--user) and the system's, and of what ``torch.compile`` writes.
_INSTALLED = tuple(
    f"/{name}".replace("/", os.path.sep) for name in ("site-packages/", "dist-packages/", "torchinductor_")
)
_STANDARD = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
# Installed elsewhere (``pip install --target``, an editable torch), these three are libraries all the same.
_HOSTS = [getattr(sys.modules.get(name), "__file__", None) for name in ("torch", "IPython", "ipykernel")]
_LIBRARIES = (*_STANDARD, *(str(Path(file).parent) for file in _HOSTS if file))
_LIBRARY_DIRECTORIES = (PACKAGE_DIRECTORY, *(folder + os.path.sep for folder in _LIBRARIES))

# What people type has no file: at IPython's prompt, at Python's (two names, the second from 3.13 on), in a string, a
# cell, a doctest, ``code.interact``, PyCharm's console, IDLE, Databricks.
_NAMES = "ipython", "stdin", "python-input", "string", "cell", "doctest", "console", "input", "pyshell", "command"
_TYPED = tuple(f"<{name}" for name in _NAMES)

MOST_PLACES = 1 << 14  # in code that are known by their instruction; beyond, they are looked up by their line again
MAX_SOURCE_LINES = 400  # a longer file is not put into the report as a whole; the lines that matter always are

_EDITED = (
    "{} does not have the code that runs, so its lines are given by number alone, that of the text that was loaded. If"
    " you edited it since, load it again (importlib.reload, or %autoreload 2) or restart the kernel"
)

CellNumber = Callable[[str], "int | None"]  # gives the execution count of a cell from its file name


def no_cell(_filename: str) -> int | None:
    """Return None: no file is a cell."""
    return None


MARK = "tensormagic_call"  # the name of frames that call in the name of a user's line; that one is further up


def is_own_code(filename: str) -> bool:
    """Return whether a file is the user's code, a cell with a made-up name too, and no library's, Python's or ours."""
    if filename.startswith("<"):
        return filename.startswith(_TYPED)
    if any(part in filename for part in _INSTALLED):
        return False
    return not filename.startswith(_LIBRARY_DIRECTORIES)


_Subject = TypeVar("_Subject")
_Answer = TypeVar("_Answer")


class AskedOnce(dict[_Subject, _Answer]):
    """What depends on a file's name or on a class alone: asked once for each, then as quick as a dictionary."""

    def __init__(self, ask: Callable[[_Subject], _Answer]) -> None:
        super().__init__()
        self._ask = ask

    def __missing__(self, subject: _Subject) -> _Answer:
        """Ask, and remember the answer."""
        return self.setdefault(subject, self._ask(subject))


def is_ours(code: CodeType) -> bool:
    """Return whether code is this package's, or calls in the name of a user's line."""
    return code.co_name == MARK or code.co_filename.startswith(PACKAGE_DIRECTORY)


def foreign_frames(frames: Sequence[FrameType]) -> list[FrameType]:
    """Return the frames, outermost first, that would be there without the tracer."""
    kept: list[FrameType] = []
    removed = False
    for frame in frames:
        ours = is_ours(frame.f_code)
        if removed and not ours:  # what stands before is the first call of this function, and torch's hand-over
            while kept and kept[-1].f_code.co_name == "handle_torch_function":
                kept.pop()
            if kept and kept[-1].f_code is frame.f_code:
                kept.pop()
        kept += [] if ours else [frame]
        removed = ours
    return kept


def is_own_frame(frame: FrameType) -> bool:
    """Return whether a frame runs the user's code, and does not only call in its name."""
    return frame.f_code.co_name != MARK and is_own_code(frame.f_code.co_filename)


def outwards(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and those above it, the innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def frame_of(code: CodeType, frame: FrameType | None) -> FrameType | None:
    """Return the innermost call of a function, from a frame outwards; None where it does not run."""
    return next((each for each in outwards(frame) if each.f_code is code), None)


def own_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames of the user's own code at and above ``frame``, the innermost first."""
    return filter(is_own_frame, outwards(frame))


def innermost_own(frame: FrameType | None) -> FrameType | None:
    """Return the innermost of these."""
    return next(own_frames(frame), None)


class SourceLines:
    """The lines met so far, each with a small number."""

    def __init__(self, cell_number: CellNumber = no_cell) -> None:
        self.cell_number = cell_number
        self._own = AskedOnce(is_own_code)
        self._numbers: dict[tuple[str, int], int] = {}
        self.places: dict[tuple[int, int], tuple[CodeType, int]] = {}  # the code is kept: its id is in the key
        self._locations: list[Location] = []
        self._edited: dict[str, Gap] = {}

    @property
    def locations(self) -> tuple[Location, ...]:
        """Every line met so far, by site number."""
        return tuple(self._locations)

    def of_frame(self, frame: FrameType | None) -> int | None:
        """Return the site of the innermost own frame at or above ``frame``, or None where all of it is library code."""
        own = self._own
        while frame is not None:
            code = frame.f_code
            if own[code.co_filename] and code.co_name != MARK:
                place = self.places.get((id(code), frame.f_lasti))
                if place is None:
                    if len(self.places) >= MOST_PLACES:
                        self.places.clear()
                    place = self.places[id(code), frame.f_lasti] = (code, self.at_frame(frame))
                return place[1]
            frame = frame.f_back
        return None

    def gaps(self) -> tuple[Gap, ...]:
        """Return what is missing of the lines: those of files that were edited since they were loaded."""
        return tuple(self._edited.values())

    def location(self, site: int | None) -> Location | None:
        """Return the line that is a site; None of none."""
        return None if site is None else self._locations[site]

    def at_frame(self, frame: FrameType) -> int:
        """Return the site of the very line that a frame runs, whoever wrote it."""
        return self.number(frame.f_code.co_filename, running_line(frame), frame)

    def at(self, filename: str, line: int, function: str) -> Location:
        """Return a line of a file as a location, without giving it a number."""
        return location_of(filename, line, function, cell_number=self.cell_number)

    def number(self, filename: str, line: int, frame: FrameType | None = None) -> int:
        """Return the site of a line of a file or cell, which need not be running."""
        number = self._numbers.get((filename, line))
        if number is None:
            made = self.at(filename, line, "") if frame is None else location_in(frame, line, self.cell_number)
            if frame is not None and is_gone(frame.f_code):
                self._edited[filename] = edited(filename)
            self._locations.append(made)
            number = self._numbers.setdefault((filename, line), len(self._locations) - 1)
        return number


def known_lines(filename: str, names: dict[str, Any] | None = None) -> list[str]:
    """Return the lines of a file or cell as Python knows them; none where the loader of a module refuses."""
    try:
        return linecache.getlines(filename, names)
    except Exception:  # a loader of the user's own may raise anything
        return []


def known_line(filename: str, number: int, names: dict[str, Any] | None = None) -> str:
    """Return one of these lines, without white space around it; nothing where there is none of that number."""
    return "".join(known_lines(filename, names)[number - 1 : number]).strip()


def lines_of(filename: str, names: dict[str, Any] | None = None) -> list[str]:
    """Return the lines of a file or cell as it is now; the globals of its module may know how to load its source."""
    if os.path.exists(filename):  # noqa: PTH110  (of any name that code has; what is gone is left as Python knows it)
        linecache.checkcache(filename)
    known = known_lines(filename, names)
    if known or not filename.startswith("<python-input"):
        return known
    typed = getattr(linecache, "_interactive_cache", {})  # Python 3.14: by file, function and first line
    return next((each[2] for key, each in typed.items() if key[0] == filename), [])


@lru_cache(maxsize=64)  # a cell that runs again, and a file that it calls, take milliseconds
def syntax_of(source: str) -> ast.Module:
    """Return the syntax tree of a source; an empty one of what is no Python, as a cell with magics in it."""
    try:
        tree: ast.Module = syntax(source)
    except (SyntaxError, ValueError, RecursionError):
        return ast.Module([], [])
    return tree


def tree_of(frame: FrameType) -> ast.Module:
    """Return the syntax tree of the file or cell that a frame runs in."""
    return syntax_of(source_of(frame))


def source_of(frame: FrameType) -> str:
    """Return the text of the file or cell that a frame runs in; nothing of one in which its code is no more."""
    filename = frame.f_code.co_filename
    if is_gone(frame.f_code):
        return ""
    return "".join((lines_of if filename.startswith("<") else known_lines)(filename, frame.f_globals))


def statements_around(tree: ast.AST, line: int) -> list[ast.stmt]:
    """Return the statements that a line belongs to, the innermost last."""
    statements = (node for node in ast.walk(tree) if isinstance(node, ast.stmt))
    return [node for node in statements if node.lineno <= line <= (node.end_lineno or node.lineno)]


def definition_of(code: CodeType, tree: ast.Module) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Return the definition of the function that code was made from; None where the source has none there."""
    every = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    there, named = in_file(code)[0], (node for node in every if node.name == code.co_name)
    first = ((node, min([node.lineno, *(each.lineno for each in node.decorator_list)])) for node in named)
    return next((node for node, line in first if line == there.co_firstlineno), None)


Position = tuple["int | None", "int | None", "int | None", "int | None"]
NOWHERE: Position = (None, None, None, None)


def position_of(code: CodeType, instruction: int) -> Position:
    """Return first and last line and the columns, in bytes, of an instruction; compiled code says it since 3.11."""
    code, instruction = in_file(code, instruction)
    every = getattr(code, "co_positions", None)
    if every is None or instruction < 0 or is_gone(code):
        return NOWHERE
    found: Position = next(islice(every(), instruction // 2, None), NOWHERE)
    return found


def part_at(position: Position, lines: Sequence[str]) -> tuple[ast.expr | ast.stmt, str] | None:
    """Return the expression or statement that stands there, and its text; None where that is unknown."""
    first, last, start, stop = position
    if first is None or last is None or start is None or stop is None or not 0 < first <= last <= len(lines):
        return None
    raw = [line.rstrip("\n").encode() for line in lines[first - 1 : last]]
    raw[-1] = raw[-1][:stop]
    raw[0] = raw[0][start:]
    piece = b"\n".join(raw).decode(errors="replace")
    # In brackets, as an expression may go over several lines; else it is a statement.
    body = syntax_of(f"({piece}\n)").body or syntax_of(piece).body
    if len(body) != 1:
        return None
    return body[0].value if isinstance(body[0], ast.Expr) else body[0], piece


def function_of_code(name: str) -> str:
    """Return a function's name from that of its code; empty on the level of a module, and of a cell."""
    # A cell's code is called ``<cell line: 1>`` by IPython 7.31 and by the first of 8.
    return "" if name == "<module>" or name.startswith("<cell line: ") else name


def edited(filename: str) -> Gap:
    """Return what is said of a file that does not have the code that runs."""
    return Gap("lines", _EDITED.format(Path(filename).name))


def location_in(frame: FrameType, line: int, cell_number: CellNumber | None = None) -> Location:
    """Return a line of the code that a frame runs."""
    function = function_of_code(frame.f_code.co_name)
    place = location_of(frame.f_code.co_filename, line, function, cell_number=cell_number, names=frame.f_globals)
    return replace(place, text="") if is_gone(frame.f_code) else place  # that line now says something else


def location_of(
    filename: str,
    line: int,
    function: str,
    *,
    cell_number: CellNumber | None = None,
    names: dict[str, Any] | None = None,
) -> Location:
    """Return a line of a file or cell that Python has read."""
    lines = lines_of(filename, names)
    text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return Location(filename, line, text, cell_number(filename) if cell_number else None, function)


def cell_of(frame: FrameType) -> Cell:
    """Return the file that a frame runs in, for the report of what runs there; long ones without their lines."""
    filename = frame.f_code.co_filename
    lines = tuple(line.rstrip("\n") for line in lines_of(filename, frame.f_globals))
    return Cell(filename, None, lines if len(lines) <= MAX_SOURCE_LINES else ())


_OPTIMIZED = 1  # CO_OPTIMIZED: code whose local names live in slots, not in a dictionary of the user's
FRAMES = 24  # of the user's functions that are running, at most so many are asked for their names
_HOLDERS = 3  # of a frame's dictionary of locals when nobody but the frame, us and the call below holds it


def running_functions(frame: FrameType | None, outermost: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the user's running functions and their names, from the innermost to the module, if not ``outermost``."""
    for own in islice(own_frames(frame), FRAMES):
        if own.f_code.co_flags & _OPTIMIZED:
            yield own.f_code.co_name, names_of(own)
            continue
        if own.f_locals is not outermost:
            yield own.f_code.co_name, own.f_locals
        return


def names_of(frame: FrameType) -> Mapping[str, Any]:
    """Return the names bound in a frame, those of a function as a copy that nothing else keeps.

    Until Python 3.12 a frame keeps the dictionary it was asked for, and with it every tensor in there, for as long as
    the function runs. So it is emptied again, unless the user holds it too (``locals()``).
    """
    held = frame.f_locals
    if not frame.f_code.co_flags & _OPTIMIZED:
        return held
    names = dict(held)
    if sys.version_info < (3, 13) and sys.getrefcount(held) <= _HOLDERS:
        held.clear()
    return names


def name_in(frame: FrameType, value: object) -> str:
    """Return what a running frame calls a value; empty where it has no name there."""
    spaces = (names_of(frame), frame.f_globals)
    named = (name for space in spaces for name, each in list(space.items()) if each is value)
    return next((name for name in named if not name.startswith("_")), "")


# Where running code stands in its file as that is now: after an edit, with autoreload or without loading it again.
#
# IPython 9's autoreload compiles a function that was edited under the name of its file, but from a text of its own, in
# which its lines count from the first (`IPython/extensions/deduperreload`: `ast.unparse` of the function, for a method
# below ``class __autoreload_class__:``). A file that was edited and not loaded again has the same code at other lines,
# or has it no more. So code is looked for in its file by its instructions. Some differ with the text around a function:
# `NOP` stands there for a line of its own, and a call of what the same text imports is not made as that of a method.

_Found = tuple[CodeType, dict[int, int]] | None  # the code in the file, and where each instruction is in it
_BEGAN = time.time_ns()  # a file that is older was loaded as it is, as far as its lines look like it
_PASSED_OVER = frozenset({"NOP", "CACHE", "EXTENDED_ARG", "PUSH_NULL"})
_JUMPS = frozenset([*dis.hasjrel, *dis.hasjabs])
_SECONDS = 0.05  # for so long a file is not looked at again: a line that runs thousands of times asks
_RECENT: dict[int, tuple[CodeType, float, _Found]] = {}  # by the ``id`` of code, which is kept; and when it was asked
_MOST = 1024
_Steps = list[tuple[int, str, str]]  # where an instruction is, its name, and its operand as it compares


def in_file(code: CodeType, instruction: int = 0) -> tuple[CodeType, int]:
    """Return what ``code`` is in its file, and the same instruction in that; both as given where that is unknown."""
    found = _found(code)
    return (code, instruction) if found is None or found[0] is code else (found[0], found[1].get(instruction, 0))


def is_gone(code: CodeType) -> bool:
    """Return whether its file does not have this code, most often since it was edited: lines are of another text."""
    return _found(code) is None


def running_line(frame: FrameType) -> int:
    """Return the line that a frame runs."""
    return _line(frame.f_code, frame.f_lasti, frame.f_lineno)


def failing_line(entry: TracebackType) -> int:
    """Return the line at which an error went through a frame."""
    return _line(entry.tb_frame.f_code, entry.tb_lasti, entry.tb_lineno)


def _line(code: CodeType, instruction: int, line: int) -> int:
    there, at = in_file(code, instruction)
    if there is code:
        return line
    return next((found for start, stop, found in there.co_lines() if start <= at < stop and found), line)


def _found(code: CodeType) -> _Found:
    """Return what code is in its file; None where it is not there, or twice."""
    now = time.monotonic()
    recent = _RECENT.get(id(code))
    if recent is not None and now - recent[1] < _SECONDS:
        return recent[2]
    if len(_RECENT) >= _MOST:
        _RECENT.clear()
    found = _looked_up(code)
    _RECENT[id(code)] = code, now, found
    return found


def _looked_up(code: CodeType) -> _Found:
    filename = code.co_filename
    known = linecache.cache.get(filename, ())
    is_cell = len(known) > 1 and known[1] is None  # a text that Python was given, without the time of a file
    if is_cell or filename.startswith("<") or code.co_name == "<module>":
        return code, {}
    try:
        changed = os.stat(filename).st_mtime_ns  # noqa: PTH116  (asked for each line that is met)
    except (OSError, ValueError):  # no file, or gone: its lines are as Python knows them
        return code, {}
    linecache.checkcache(filename)
    first = known_line(filename, code.co_firstlineno)
    looks_so = code.co_name.startswith("<") or code.co_name in first or first.startswith("@")
    return (code, {}) if changed < _BEGAN and looks_so else _looked_for(code, changed)


@lru_cache(maxsize=_MOST)
def _looked_for(code: CodeType, changed: int) -> _Found:
    every = _in_text(code.co_filename, changed)
    if code in every:
        return code, {}
    steps = _steps(code)
    same = [each for each in every if each.co_name == code.co_name and _compared(_steps(each)) == _compared(steps)]
    named = [each for each in same if _qualified(each) == _qualified(code)]
    one = named if len(named) == 1 else same
    if len(one) != 1:
        return None
    return one[0], {was: now for (was, *_), (now, *_) in zip(steps, _steps(one[0]), strict=True)}


@lru_cache(maxsize=32)
def _in_text(filename: str, _changed: int) -> list[CodeType]:
    """Return all functions and classes in a file."""
    try:
        made = compile("".join(known_lines(filename)), filename, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):  # in the middle of an edit
        return []
    return [*codes_in(made)]


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """Yield code, and that of all functions and classes in it."""
    yield code
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from codes_in(value)


def _steps(code: CodeType) -> _Steps:
    """Return the instructions of code; texts without their white space: IPython indents their lines with a function."""
    steps: _Steps = []
    for one in dis.get_instructions(code):
        value, operand = one.argval, repr(one.argval)
        if isinstance(value, CodeType):
            operand = repr((value.co_name, _compared(_steps(value))))
        elif isinstance(value, str):
            operand = "".join(value.split())
        if one.opname not in _PASSED_OVER:
            steps.append((one.offset, one.opname.replace("METHOD", "ATTR"), "" if one.opcode in _JUMPS else operand))
    return steps


def _compared(steps: _Steps) -> list[tuple[str, str]]:
    return [(name, operand) for _, name, operand in steps]


def _qualified(code: CodeType) -> str:
    return str(getattr(code, "co_qualname", code.co_name))  # since Python 3.11
