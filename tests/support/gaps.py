"""The gaps of a run's own making."""

from __future__ import annotations

from tensormagic.reports import Gap, MemoryReport, MemoryRunReport


def own_gaps(report: MemoryReport | MemoryRunReport) -> list[Gap]:
    """Return a report's gaps, less what is said of graphs: other tests may have left some in the process."""
    return [gap for gap in report.gaps if gap.section != "graphs"]
