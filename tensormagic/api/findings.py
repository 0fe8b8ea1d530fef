"""What every report goes through before it is handed over: the diagnoses."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from tensormagic.diagnoses import diagnose
from tensormagic.reports import Report

AnyReport = TypeVar("AnyReport", bound=Report)


def diagnosed(report: AnyReport) -> AnyReport:
    """Return the report with what was found in it."""
    return dataclasses.replace(report, findings=diagnose(report))
