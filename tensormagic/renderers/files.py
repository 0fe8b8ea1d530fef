"""The ways out of a report: files, figures and text. `tensormagic.api` installs them when it is imported."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

from tensormagic import renderers
from tensormagic.errors import TensorMagicError
from tensormagic.reports import Report

_FORMS = {".html": "html", ".htm": "html", ".svg": "svg", ".txt": "txt", ".json": "json"}
_PAGE = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    "<title>{title}</title><style>body{{margin:16px;background:Canvas;color-scheme:light dark}}</style></head>"
    "<body>{body}</body></html>\n"
)


def form_of(path: str | os.PathLike[str]) -> str:
    """Return the form in which a report is written to ``path``.

    Raises:
        TensorMagicError: where its ending names none.
    """
    form = _FORMS.get(Path(path).suffix.lower())
    if form is None:
        raise TensorMagicError(f"cannot save to {str(path)!r}: the ending says the format: {', '.join(_FORMS)}")
    return form


class Outlet:
    """Connects `Report.save`, `Report.figure` and ``str(report)`` with the renderers."""

    def save(self, report: Report, path: str | os.PathLike[str]) -> None:
        """Write ``report`` in the form that the ending of ``path`` names; a folder that is not there is made."""
        text, target = _as_file(report, form_of(path)), Path(path).expanduser()
        _make_folder(target.parent)
        target.write_text(text, encoding="utf-8")

    def figure(self, report: Report, kind: str) -> Any:
        """Return a plotly figure."""
        return renderers.figure(report, kind)

    def text(self, report: Report) -> str:
        """Return plain text."""
        return renderers.render(report, "txt")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:  # "file exists" would sound as if that were needed
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from error


def _as_file(report: Report, form: str) -> str:
    if form == "json":
        return json.dumps(report.to_dict(), allow_nan=False, indent=1)
    body = renderers.render(report, form)
    return _PAGE.format(title=f"tensormagic: {report.kind_name}", body=body) if form == "html" else body
