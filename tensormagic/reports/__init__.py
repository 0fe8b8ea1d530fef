"""Plain data: what collectors leave and renderers read. Imports nothing but the standard library."""

from tensormagic.reports.aliases import Alias
from tensormagic.reports.base import FORMAT_VERSION, Outlet, Report, install_outlet
from tensormagic.reports.finding import SEVERITIES, Finding, Gap, Location, Severity
from tensormagic.reports.overlay import (
    OverlayElement,
    OverlayMember,
    OverlayPair,
    OverlayReport,
    OverlayRow,
    OverlayStorage,
)
from tensormagic.reports.slices import BadSlice, DimensionSlices, LargeSlice
from tensormagic.reports.storage import (
    Grid,
    LayoutReport,
    MemoryFormat,
    StorageReport,
    Strip,
    StripCell,
)
from tensormagic.reports.tensor import AutogradReport, Statistics, TensorReport
from tensormagic.reports.trace import (
    UNREADABLE,
    UNTOUCHED,
    Birth,
    Cell,
    Edge,
    Frame,
    GradientStatistics,
    Graph,
    LiveFrame,
    Node,
    ParameterSeries,
    Pass,
    SavedTensor,
    State,
    TraceReport,
)
from tensormagic.reports.verdict import CopyVerdict, Sharing, Step
from tensormagic.reports.views import Barrier, ViewFailure, ViewReport

__all__ = [
    "FORMAT_VERSION",
    "SEVERITIES",
    "UNREADABLE",
    "UNTOUCHED",
    "Alias",
    "AutogradReport",
    "BadSlice",
    "Barrier",
    "Birth",
    "Cell",
    "CopyVerdict",
    "DimensionSlices",
    "Edge",
    "Finding",
    "Frame",
    "Gap",
    "GradientStatistics",
    "Graph",
    "Grid",
    "LargeSlice",
    "LayoutReport",
    "LiveFrame",
    "Location",
    "MemoryFormat",
    "Node",
    "Outlet",
    "OverlayElement",
    "OverlayMember",
    "OverlayPair",
    "OverlayReport",
    "OverlayRow",
    "OverlayStorage",
    "ParameterSeries",
    "Pass",
    "Report",
    "SavedTensor",
    "Severity",
    "Sharing",
    "State",
    "Statistics",
    "Step",
    "StorageReport",
    "Strip",
    "StripCell",
    "TensorReport",
    "TraceReport",
    "ViewFailure",
    "ViewReport",
    "install_outlet",
]
