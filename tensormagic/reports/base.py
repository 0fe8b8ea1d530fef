"""What every report has and can do: findings, places and gaps; be made quickly, saved, loaded, compared, and drawn."""

from __future__ import annotations

import dataclasses
import gc
import json
import math
import os
import threading
import types
import typing
from array import array
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, is_dataclass, make_dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from tensormagic.errors import ReportFormatError, TensorMagicError
from tensormagic.words import shortened

Severity = Literal["error", "warning", "note"]
Scalar = bool | int | float | str | None

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class Location:
    """A line of the user's own source."""

    filename: str  #: As Python names it; for a notebook cell, the kernel's made-up file name.
    line: int  #: Line number in that file or cell, from 1.
    text: str = ""  #: The line itself, stripped; empty where it cannot be read.
    cell: int | None = None  #: The execution count of the cell (the 5 of ``In [5]``), or None outside a notebook.
    function: str = ""  #: The function the line is in; empty at the top level.

    @property
    def label(self) -> str:
        """Where, in words: ``cell 5, line 12`` or ``model.py, line 12``."""
        place = f"cell {self.cell}" if self.cell is not None else self.filename.replace("\\", "/").rsplit("/", 1)[-1]
        return f"{place}, line {self.line}"


@dataclass(frozen=True, slots=True)
class Gap:
    """Something that could not be read: which section of the report, and why. Shown, never hidden."""

    section: str
    reason: str


@dataclass(frozen=True, slots=True)
class RelatedLine:
    """A second line that a finding needs to be understood: what happened there (``"saved by pow"``), and where."""

    what: str
    location: Location


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or worth knowing."""

    code: str  #: Stable, e.g. ``"TM402"``; ``docs/diagnoses/TM402.md`` explains it.
    severity: Severity  #: ``"error"``, ``"warning"`` or ``"note"``.
    message: str  #: One plain sentence with the user's own names and numbers.
    location: Location | None = None  #: The line it is about, where there is one.
    evidence: dict[str, Scalar] = field(default_factory=dict)  #: The numbers the sentence rests on.
    remedy: str = ""  #: What to do, in words or code; empty where nothing needs doing.
    subject: str = ""  #: The name of the tensor, parameter or node it is about.
    node: tuple[int, int] | None = None  #: ``(graph, node)`` indices into the trace's graphs, or None.
    #: Other lines that matter, each with what happened there: where the tensor was saved that ``location`` changed.
    related: tuple[RelatedLine, ...] = ()
    #: The line, or lines, to put in place of that of ``location``: code that works as it is pasted, with the user's own
    #: names. Empty where what is right depends on what is meant.
    fix: str = ""

    @property
    def url(self) -> str:
        """The page of the documentation that explains this code, relative to the project; `help` shows it anywhere."""
        return f"docs/diagnoses/{self.code}.md"

    @property
    def help(self) -> str:
        """What to type into a notebook to read that page: it comes with the package, and needs no network."""
        return f"%tensormagic help {self.code}"


AnyData = TypeVar("AnyData")


def with_cells(data: AnyData, cell_number: Callable[[str], int | None]) -> AnyData:
    """Return plain data with the cell's number in every `Location` that has none; what does not change is kept.

    Args:
        data: A report, or a part of one: what collects without a notebook knows files alone.
        cell_number: Gives a cell's execution count from its file name, or None.
    """
    given: Any = data
    if isinstance(given, Location):
        number = cell_number(given.filename) if given.cell is None else None
        given = given if number is None else replace(given, cell=number)
    elif type(given) is tuple:
        made = tuple(with_cells(item, cell_number) for item in given)
        given = made if any(one is not other for one, other in zip(made, given, strict=True)) else given
    elif is_dataclass(given) and not isinstance(given, type):
        every = ((each.name, getattr(given, each.name)) for each in fields(given))
        changed = {name: new for name, value in every if (new := with_cells(value, cell_number)) is not value}
        given = replace(given, **changed) if changed else given
    described: AnyData = given
    return described


# Turns report dataclasses into JSON-ready dictionaries and back, from their type hints alone.
#
# JSON has no NaN and no infinities, and a report must keep them apart from each other and from "nothing": non-finite
# floats travel as ``{"float": "nan"}``, ``"inf"`` or ``"-inf"``, which no text can be mistaken for. Packed arrays
# travel as lists.

UNSAVED: Mapping[str, bool] = types.MappingProxyType({"saved": False, "encoded": True})  # of a field that is in no file
_FLOAT = "float"
_PLAIN = {str: "text", int: "a whole number", bool: "true or false"}
# Fields that were called otherwise in files saved before 0.1.0: the name of today, and the older one.
RENAMED = {
    "first_nonfinite": "births",
    "forward_nonfinite": "forward_birth",
    "allocated_at": "born",
    "freed_at": "died",
    "losses_without_graph": "rootless",
    "swallowed_errors": "caught",
    "silent_errors": "quiet",
    "unknown_parameters": "strangers",
    "unknown_shapes": "stranger_shapes",
    "unknown_idle": "strangers_idle",
    "unknown_owner": "strangers_of",
    "last_norms": "standing",
    "unregistered_tensors": "loose",
    "unregistered_modules": "hidden",
    "modified": "spoilt",
    "pass_context": "circumstances",
    "described": "told",
    "paused": "resting",
    "zero_rate_steps": "resting",
    "samples": "moments",
    "freeable": "releases",
    "sampling": "pacing",
    "unsampled": "unpaced",
    "nonfinite_source": "first_bad",
    "saved": "kept",
    "retained": "kept",
    "unchanged": "still",
    "ranges": "stretches",
    "path": "way",
    "stack": "way",
    "pass_norms": "brought",
    "step_norms": "used",
    "last_pass_norm": "brought",
    "unsharded": "whole",
    "partial_sums": "parts",
}
_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def encode(value: Any) -> Any:
    """Return ``value`` as JSON-ready plain data: dictionaries, lists, strings, numbers, booleans, None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else {_FLOAT: str(value)}
    if value is None or isinstance(value, bool | int | str):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: encode(getattr(value, name)) for name in _saved(type(value))}
    if isinstance(value, dict):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, tuple | list | array):
        return [encode(item) for item in value]
    raise ReportFormatError(f"a report holds plain data only, but here is a {type(value).__name__}: {value!r:.80}")


@cache
def _saved(cls: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(cls) if field.metadata.get("saved", True))


def decode(data: Any, hint: Any) -> Any:
    """Build the value that ``hint`` describes from JSON-ready ``data``; the inverse of `encode`.

    Raises:
        ReportFormatError: where ``data`` does not have the shape that ``hint`` asks for.
    """
    try:
        return _decode(data, hint)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        name = getattr(hint, "__name__", str(hint))
        raise ReportFormatError(f"this is not a saved {name}: {type(error).__name__}: {error!s:.200}") from error


def _decode(data: Any, hint: Any) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in {typing.Union, types.UnionType}:
        return _decode_union(data, arguments)
    if origin is tuple:
        alike = len(arguments) == 2 and arguments[1] is Ellipsis
        kinds = arguments[:1] * len(data) if alike else arguments
        return tuple(_decode(item, kind) for item, kind in zip(data, kinds, strict=True))
    if origin is dict:
        return {key: _decode(item, arguments[1]) for key, item in data.items()}
    if hint is array:
        return array("f", [_decode_float(item) for item in data])
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        given = {name: name if name in data else RENAMED.get(name, name) for name in _hints(hint)}
        hints = _hints(hint).items()
        return hint(**{name: _decode(data[given[name]], one) for name, one in hints if given[name] in data})
    return _decode_float(data) if hint is float else _decode_plain(data, hint)


def _decode_plain(data: Any, hint: Any) -> Any:
    """Return text, whole numbers, booleans and words of a fixed list, where they are what they should be."""
    if hint in _PLAIN and type(data) is not hint:
        raise TypeError(f"expected {_PLAIN[hint]}, but here is {data!r:.80}")
    if hint is int and abs(data) >> 64:
        raise ValueError("a whole number of more than 64 bits")
    if typing.get_origin(hint) is typing.Literal and data not in typing.get_args(hint):
        raise ValueError(f"expected one of {typing.get_args(hint)}, but here is {data!r:.80}")
    return data


def _decode_float(data: Any) -> float:
    if isinstance(data, dict):
        return _NON_FINITE[data[_FLOAT]]
    if type(data) not in {int, float}:
        raise TypeError(f"expected a number, but here is {data!r:.80}")
    return float(data)


def _decode_union(data: Any, arguments: tuple[Any, ...]) -> Any:
    if data is None and type(None) in arguments:
        return None
    candidates = [argument for argument in arguments if argument is not type(None)]
    if len(candidates) == 1:
        return _decode(data, candidates[0])
    if type(data) in candidates:
        return _decode(data, type(data))
    if float in candidates:
        return _decode_float(data)
    for candidate in candidates:
        with suppress(TypeError, ValueError, KeyError, AttributeError):
            return _decode(data, candidate)
    raise TypeError(f"expected {' or '.join(map(str, candidates))}, but here is {data!r:.80}")


@cache
def _hints(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


# What every report can do: be saved, loaded, compared, and drawn.
#
# Reports are plain data and know nothing of renderers: modules above them, named here and imported when a report is
# first drawn. Until then they cost nothing.

FORMAT_VERSION = 1
_VIEWS = "tensormagic.views"

ReportType = TypeVar("ReportType", bound="Report")


def _require_format(version: object) -> None:
    if version == FORMAT_VERSION and type(version) is int:
        return
    described = f"this report has format {version!r}; this version reads format {FORMAT_VERSION}"
    if isinstance(version, int) and version > FORMAT_VERSION:
        described += ". It was saved by a newer tensormagic: upgrade with pip install -U tensormagic"
    raise ReportFormatError(described)


@dataclass(frozen=True, slots=True)
class Report:
    """Base of all reports: frozen plain data, without a tensor inside."""

    kind_name: ClassVar[str] = "report"
    findings: tuple[Finding, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-ready plain data, with its kind and format version."""
        return {"tensormagic": self.kind_name, "format": FORMAT_VERSION, **encode(self)}

    @classmethod
    def from_dict(cls: type[ReportType], data: dict[str, Any]) -> ReportType:
        """Build a report from what `to_dict` returned: of this class, or of `Report` any.

        Raises:
            ReportFormatError: for another kind of report, another format version, or other data.
        """
        given = data.get("tensormagic") if isinstance(data, dict) else data
        every = vars(import_module("tensormagic.reports")).values() if cls is Report else (cls,)
        kinds = (one for one in every if isinstance(one, type) and issubclass(one, cls) and one is not Report)
        kind = next((one for one in kinds if one.kind_name == given), None)
        if kind is None:
            wanted = "" if cls is Report else f"{cls.kind_name!r} "
            raise ReportFormatError(f"expected a saved {wanted}report, but this is {given!r:.80}")
        _require_format(data.get("format"))
        report: ReportType = decode(data, kind)
        report.check()
        return report

    @classmethod
    def load(cls: type[ReportType], path: str | os.PathLike[str]) -> ReportType:
        """Read a report that `save` wrote as ``.json``: of this class, or of `Report` any.

        Raises:
            ReportFormatError: where the file cannot be read, or holds no such report; the message names the file.
            TensorMagicError: where ``path`` is not a path.
        """
        file = given_path(path, "load()")
        try:
            return cls.from_dict(json.loads(file.read_text(encoding="utf-8")))
        except OSError as error:
            raise ReportFormatError(f"cannot read {os.fspath(path)!r}: {error.strerror}") from error
        except (ValueError, RecursionError) as error:  # a ReportFormatError is a ValueError too
            described = str(error) if isinstance(error, ReportFormatError) else f"it is not a JSON file: {error}"
            raise ReportFormatError(f"cannot load {os.fspath(path)!r}: {described:.500}") from error

    def check(self) -> None:
        """Raise ReportFormatError where a part points at what is not there; a report that was read is checked."""

    def save(self, path: str | os.PathLike[str], *, slide: bool = False) -> None:
        """Write the report to ``path``; its ending (.html, .json, .txt, .svg) says in which format.

        Args:
            path: The file; what is there is replaced, whole or not at all. Folders are made, ``~`` is home.
            slide: For a wall: large type, one part at a time; only for .html.

        Raises:
            TensorMagicError: for an ending that no format has, a report that has not this format, or what is no path.
            OSError: where the file cannot be written; what stood there is left.
        """
        import_module(f"{_VIEWS}.page.files").save(self, given_path(path, "save()"), slide=slide)

    def figure(self, kind: str = "") -> Any:
        """Return a ``plotly.graph_objects.Figure`` of that kind; without one, of the first that the report has."""
        return import_module(f"{_VIEWS}.page.figures").figure(self, kind)

    def __str__(self) -> str:
        """Return the report as plain text, at most 100 columns wide."""
        text: str = import_module(_VIEWS).render(self, "txt")
        return text

    def _repr_mimebundle_(self, **_include_exclude: Any) -> dict[str, str]:
        """Show the report as the value of a cell, also where the extension is not loaded; this never raises."""
        bundle: dict[str, str] = import_module(f"{_VIEWS}.page.files").bundle(self)
        return bundle

    def _repr_html_(self) -> str:
        """Show the report in hosts that ask for HTML alone, such as marimo."""
        return self._repr_mimebundle_()["text/html"]


def given_path(given: str | os.PathLike[str], call: str) -> Path:
    """Return the path that a user gave a function; ``~`` is home.

    Raises:
        TensorMagicError: where it is none, or in the home of a user that there is not.
    """
    try:
        return Path(given).expanduser()
    except TypeError:
        raise TensorMagicError(f"{call} takes a path, but was given {shortened(repr(given), 80)}") from None
    except RuntimeError:
        raise TensorMagicError(f"{call}: there is no home folder for {shortened(repr(given), 80)}") from None


# Makes frozen records in a quarter of the time: a graph of a hundred thousand nodes has half a million of them.
#
# The ``__init__`` of a frozen dataclass goes through ``object.__setattr__`` for every field. One that is not frozen
# stores them directly; where both have the same slots, a record may be made as the one and become the other.

Record = TypeVar("Record")


def quickly(cls: type[Record]) -> Callable[..., Record]:
    """Return what makes records of a frozen, slotted dataclass that derives from no other, and is called as it is."""

    def become(self: Any) -> None:
        self.__class__ = cls

    own = [(each.name, Any, field(default=each.default, default_factory=each.default_factory)) for each in fields(cls)]  # type: ignore[arg-type]
    return make_dataclass(cls.__name__, own, slots=True, namespace={"__post_init__": become})


# Python's search for reference cycles waits while something large is built that has none.
#
# The search starts by itself after so many new objects, and then goes through all that are young, from time to time
# through all there are. While a report of a hundred thousand nodes is built or drawn nothing is to be found, and
# looking took a quarter of the time. What is not needed any more is freed at once as ever: that is done by counting
# references.


@contextmanager
def gc_paused() -> Iterator[None]:
    """Let no search for cycles begin until the block ends; may be nested.

    Only on the main thread, and only around code of this package: there nothing of the user's can run in between,
    which might switch the search off for itself, ask whether it is on, or fork. On another thread, as that of a live
    panel is, the user's code goes on meanwhile, and nothing changes.
    """
    if threading.current_thread() is not threading.main_thread() or not gc.isenabled():
        yield
        return
    try:
        gc.disable()
        yield
    finally:
        gc.enable()
