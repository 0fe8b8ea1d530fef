"""Every kind of report that has a renderer, with its samples: what tests of all panels go through.

A new kind is a line in ``PANELS``; its samples come from the line in `test_every_renderer`, and a
kind without a sample fails the tests that read this table.
"""

from __future__ import annotations

from collections import defaultdict

from tensormagic.reports import Report
from tensormagic.views import forms_of
from tests.views.test_every_renderer import RENDERERS as TESTED


def _samples() -> dict[str, dict[str, Report]]:
    found: dict[str, dict[str, Report]] = defaultdict(dict)
    for renderer in TESTED:
        for name, report in renderer.samples.items():
            found[report.kind_name][name] = report
    return dict(found)


SAMPLES = _samples()
FORMS = {kind: forms_of(type(next(iter(reports.values())))) for kind, reports in SAMPLES.items()}
