"""The ways out of a report: files, figures and text; the first report that is drawn imports this.

A file appears whole or not at all: what is written first is a neighbour with a name of its own, which then takes the
place of what stood there. A save that fails leaves the old file as it was, and no other.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from tensormagic import renderers
from tensormagic.errors import TensorMagicError
from tensormagic.renderers.basics.markup import escape
from tensormagic.renderers.bundles import bundle
from tensormagic.reports import Report

_FORMS = {".html": "html", ".htm": "html", ".svg": "svg", ".txt": "txt", ".json": "json"}
_PACKED = {".gz", ".bz2", ".xz", ".zip", ".zst"}
_PICTURES = {".png", ".jpg", ".jpeg", ".webp", ".gif", ".pdf"}
_PAGE = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    "<title>{title}</title><style>body{{margin:16px;background:Canvas;color-scheme:light dark}}"
    "main>:is(h1,h2){{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}}</style></head>"
    "<body><main><h1>tensormagic</h1><h2>{title}</h2>{body}</main></body></html>\n"
)


def form_of(path: str | os.PathLike[str]) -> str:
    """Return the form in which a report is written to ``path``.

    Raises:
        TensorMagicError: where its ending names none; what is given, what there is, and what to do instead.
    """
    suffix = Path(path).suffix.lower()
    form = _FORMS.get(suffix)
    if form is None:
        described = f"cannot save to {os.fspath(path)!r}: the file's extension selects the format: {', '.join(_FORMS)}"
        raise TensorMagicError(described + _advice(suffix))
    return form


def _advice(suffix: str) -> str:
    """Return what to do instead of an ending that people try."""
    if suffix in _PACKED:
        return f"; compressed files are not supported: save without {suffix}, and compress the file yourself"
    if suffix in _PICTURES:
        return f"; {suffix} needs a browser: save as .svg, or as .html and choose Export there (PNG), or print it (PDF)"
    return ""


class Outlet:
    """Connects `Report.save`, `Report.figure` and ``str(report)`` with the renderers."""

    def save(self, report: Report, path: str | os.PathLike[str], *, slide: bool = False) -> None:
        """Write ``report`` in the form that the ending of ``path`` names; a folder that is not there is made."""
        form = form_of(path)
        if slide and form != "html":
            raise TensorMagicError(f"slides are a page: save to .html, not to {os.fspath(path)!r}")
        try:
            target = Path(path).expanduser().resolve()
        except (ValueError, RuntimeError) as error:  # a NUL in it, a link to itself, a ~ of nobody
            raise TensorMagicError(f"cannot create the file {os.fspath(path)!r}: {error}") from error
        text = _as_file(report, form, slide=slide)
        _make_folder(target.parent)
        _replace(target, text)

    def figure(self, report: Report, kind: str) -> Any:
        """Return a plotly figure."""
        return renderers.figure(report, kind)

    def text(self, report: Report) -> str:
        """Return plain text."""
        return renderers.render(report, "txt")

    def bundle(self, report: Report) -> dict[str, str]:
        """Return all forms that a host may choose from."""
        return bundle(report)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:  # "file exists" would sound as if that were needed
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from error


def _replace(target: Path, text: str) -> None:
    """Put ``text`` where ``target`` is, all of it or nothing; a link is followed, permissions stay what they were."""
    target = target.resolve()
    _refuse_what_must_stay(target)
    part = target.with_name(f".{target.name[:80]}.{uuid4().hex[:8]}.part")
    try:
        with part.open("x", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        if target.exists():
            part.chmod(stat.S_IMODE(target.stat().st_mode))
        part.replace(target)
    except BaseException as error:
        _put_away(part, target, error)
        raise


def _put_away(part: Path, target: Path, error: BaseException) -> None:
    """Remove what was begun; an error names the file that was asked for, not the neighbour that nobody knows."""
    with suppress(OSError):
        part.unlink()
    if isinstance(error, OSError):
        error.filename = str(target)
        del error.filename2  # set to None it would be shown


def _refuse_what_must_stay(target: Path) -> None:
    """A replacement would go around a file's own protection: writing to it would have been refused."""
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))


def _as_file(report: Report, form: str, *, slide: bool) -> str:
    if form == "json":
        return json.dumps(report.to_dict(), allow_nan=False, indent=1)
    body = renderers.render(report, form, **({"in_file": True, "slide": slide} if form == "html" else {}))
    return _PAGE.format(title=escape(f"tensormagic: {report.kind_name}"), body=body) if form == "html" else body
