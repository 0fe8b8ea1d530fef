"""REPORTS → REPORT: two runs compared with one another. Data on data: it sees neither torch nor a renderer."""

from tensormagic.comparisons.traces import compare_draws, compare_traces

__all__ = ["compare_draws", "compare_traces"]
