"""What every report can do: be made quickly, saved, loaded, compared, and drawn."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields, make_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from tensormagic.errors import ReportFormatError
from tensormagic.reports.codec import decode, encode
from tensormagic.reports.finding import Finding

# What every report can do: be saved, loaded, compared, and drawn.
#
# Reports are plain data and know nothing of renderers. ``save`` and ``figure`` go through the `Outlet` of a module
# that is imported when a report is first drawn: until then it costs nothing.

FORMAT_VERSION = 1
_DRAWS = "tensormagic.renderers.files"  # a name, no import: plain data needs nothing that is above it

ReportType = TypeVar("ReportType", bound="Report")


class Outlet(Protocol):
    """What the layer above reports provides: ways out of plain data."""

    def save(self, report: Report, path: str | os.PathLike[str], *, slide: bool = False) -> None:
        """Write the report in the format that the file's ending names; ``slide``: for a wall."""

    def figure(self, report: Report, kind: str) -> Any:
        """Return a plotly figure of that kind."""

    def text(self, report: Report) -> str:
        """Return the report as plain text."""

    def bundle(self, report: Report) -> dict[str, str]:
        """Return the report by media type, in all forms that a host may choose from; this never raises."""


def _outlet() -> Outlet:
    found: Outlet = import_module(_DRAWS).Outlet()
    return found


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
        """Build a report from what `to_dict` returned.

        Raises:
            ReportFormatError: for another kind of report, another format version, or other data.
        """
        given = data.get("tensormagic") if isinstance(data, dict) else data
        if given != cls.kind_name or cls is Report:
            raise ReportFormatError(f"expected a saved {cls.kind_name!r} report, but this is {given!r:.80}")
        _require_format(data.get("format"))
        report: ReportType = decode(data, cls)
        report.check()
        return report

    @classmethod
    def load(cls: type[ReportType], path: str | os.PathLike[str]) -> ReportType:
        """Read a report that `save` wrote as ``.json``.

        Raises:
            ReportFormatError: where the file cannot be read, or holds no such report; the message names the file.
        """
        try:
            return cls.from_dict(json.loads(Path(path).expanduser().read_text(encoding="utf-8")))
        except OSError as error:
            raise ReportFormatError(f"cannot read {os.fspath(path)!r}: {error.strerror}") from error
        except (ValueError, RecursionError) as error:  # a ReportFormatError is a ValueError too
            described = str(error) if isinstance(error, ReportFormatError) else f"it is not a JSON file: {error}"
            raise ReportFormatError(f"cannot load {os.fspath(path)!r}: {described}") from error

    def check(self) -> None:
        """Raise ReportFormatError where a part points at what is not there; a report that was read is checked."""

    def save(self, path: str | os.PathLike[str], *, slide: bool = False) -> None:
        """Write the report to ``path``; its ending (.html, .json, .txt, .svg) says in which format.

        Args:
            path: The file; what stands there is replaced, whole or not at all. Folders are made, ``~`` is home.
            slide: For a wall: large type, one part at a time; only for .html.

        Raises:
            TensorMagicError: for an ending that no format has, or a report that has not this format.
            OSError: where the file cannot be written; what stood there is left.
        """
        _outlet().save(self, path, slide=slide)

    def figure(self, kind: str) -> Any:
        """Return a ``plotly.graph_objects.Figure`` of that kind."""
        return _outlet().figure(self, kind)

    def __str__(self) -> str:
        """Return the report as plain text, at most 100 columns wide."""
        return _outlet().text(self)

    def _repr_mimebundle_(self, **_include_exclude: Any) -> dict[str, str]:
        """Show the report as the value of a cell, also where the extension is not loaded."""
        return _outlet().bundle(self)

    def _repr_html_(self) -> str:
        """Show the report in hosts that ask for HTML alone, such as marimo."""
        return _outlet().bundle(self)["text/html"]


# Makes frozen records in a quarter of the time: a graph of a hundred thousand nodes has half a million of them.
#
# The ``__init__`` of a frozen dataclass goes through ``object.__setattr__`` for every field. One that is not frozen
# stores them directly; where both have the same slots, a record may be made as the one and become the other.

Record = TypeVar("Record")


def quickly(cls: type[Record]) -> Callable[..., Record]:
    """Return what makes records of a frozen, slotted dataclass that derives from no other, and is called as it is."""

    def become(self: Any) -> None:
        self.__class__ = cls

    own = [(each.name, Any, _as_given(each)) for each in fields(cls)]  # type: ignore[arg-type]
    return make_dataclass(cls.__name__, own, slots=True, namespace={"__post_init__": become})


def _as_given(each: Field[Any]) -> Any:
    return field(default=each.default, default_factory=each.default_factory)
