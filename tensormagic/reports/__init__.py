"""Plain data: what collectors leave and renderers read. Imports nothing but the standard library."""

from types import ModuleType as _ModuleType

from tensormagic.reports.aliases import (
    Alias as Alias,
    AliasGroup as AliasGroup,
    AliasMember as AliasMember,
    AliasPair as AliasPair,
    AliasReport as AliasReport,
    Holder as Holder,
    HoldersReport as HoldersReport,
    OverlayElement as OverlayElement,
    OverlayMember as OverlayMember,
    OverlayPair as OverlayPair,
    OverlayReport as OverlayReport,
    OverlayRow as OverlayRow,
    OverlayStorage as OverlayStorage,
)
from tensormagic.reports.autograd import (
    BEYOND as BEYOND,
    NOTHING as NOTHING,
    AutogradDetails as AutogradDetails,
    GradientFacts as GradientFacts,
    Hook as Hook,
    LivePath as LivePath,
    Path as Path,
    PathNode as PathNode,
    PathStep as PathStep,
    SavedState as SavedState,
    WhyGroup as WhyGroup,
    WhyReport as WhyReport,
)
from tensormagic.reports.base import (
    FORMAT_VERSION as FORMAT_VERSION,
    SEVERITIES as SEVERITIES,
    Finding as Finding,
    Gap as Gap,
    Location as Location,
    RelatedLine as RelatedLine,
    Report as Report,
    Severity as Severity,
)
from tensormagic.reports.comparison import (
    ComparisonReport as ComparisonReport,
    GraphDifference as GraphDifference,
    LossPair as LossPair,
    Moment as Moment,
    NodeDifference as NodeDifference,
    NodeMention as NodeMention,
    NormDifference as NormDifference,
    ParameterDifference as ParameterDifference,
    Side as Side,
)
from tensormagic.reports.failure import (
    Clashing as Clashing,
    FailureReport as FailureReport,
    LossWithoutGraph as LossWithoutGraph,
    Mismatch as Mismatch,
    ModelInScope as ModelInScope,
    Operand as Operand,
)
from tensormagic.reports.graph import (
    MEASURES as MEASURES,
    UNREADABLE as UNREADABLE,
    UNTOUCHED as UNTOUCHED,
    Cut as Cut,
    CutKind as CutKind,
    Edge as Edge,
    FirstNonfinite as FirstNonfinite,
    ForwardNonfinite as ForwardNonfinite,
    ForwardValues as ForwardValues,
    Frame as Frame,
    GradientStatistics as GradientStatistics,
    Graph as Graph,
    LeftOut as LeftOut,
    Node as Node,
    NonfiniteOrigin as NonfiniteOrigin,
    NonfiniteSource as NonfiniteSource,
    SavedTensor as SavedTensor,
    SmallValues as SmallValues,
)
from tensormagic.reports.memory import (
    CATEGORIES as CATEGORIES,
    Category as Category,
    DeviceGain as DeviceGain,
    DeviceMemory as DeviceMemory,
    FreeableKind as FreeableKind,
    FreeableMemory as FreeableMemory,
    FreeHistoryReport as FreeHistoryReport,
    LiveStorage as LiveStorage,
    MemoryReport as MemoryReport,
    OutOfMemory as OutOfMemory,
    ProcessUse as ProcessUse,
)
from tensormagic.reports.memory_run import (
    AllocatedBlock as AllocatedBlock,
    AllocatorLine as AllocatorLine,
    AllocatorRun as AllocatorRun,
    FunctionMemory as FunctionMemory,
    Leak as Leak,
    LineMemory as LineMemory,
    MemoryFrame as MemoryFrame,
    MemoryRunReport as MemoryRunReport,
    Timeline as Timeline,
)
from tensormagic.reports.ops import (
    PHASES as PHASES,
    NodeCosts as NodeCosts,
    OpsReport as OpsReport,
    OpUse as OpUse,
    Phase as Phase,
    Total as Total,
)
from tensormagic.reports.ranks import (
    EVERYTHING as EVERYTHING,
    Arrivals as Arrivals,
    Box as Box,
    Difference as Difference,
    Placed as Placed,
    RankReport as RankReport,
    RankRow as RankRow,
)
from tensormagic.reports.rng import (
    Draw as Draw,
    DrawSum as DrawSum,
    GeneratorState as GeneratorState,
    RngComparison as RngComparison,
    RngReport as RngReport,
    RngRunReport as RngRunReport,
)
from tensormagic.reports.run import (
    RunReport as RunReport,
)
from tensormagic.reports.snapshot import (
    BlockState as BlockState,
    RangeState as RangeState,
    RefusedAllocation as RefusedAllocation,
    Segment as Segment,
    SnapshotBlock as SnapshotBlock,
    SnapshotDevice as SnapshotDevice,
    SnapshotRange as SnapshotRange,
    SnapshotReport as SnapshotReport,
)
from tensormagic.reports.storage import (
    Barrier as Barrier,
    CopyVerdict as CopyVerdict,
    Grid as Grid,
    LayoutReport as LayoutReport,
    MemoryFormat as MemoryFormat,
    Sharing as Sharing,
    Step as Step,
    StorageReport as StorageReport,
    Strip as Strip,
    StripCell as StripCell,
    ViewFailure as ViewFailure,
    ViewReport as ViewReport,
)
from tensormagic.reports.tensor import (
    NOT_STORED as NOT_STORED,
    OUTSIDE as OUTSIDE,
    AutogradReport as AutogradReport,
    BadSlice as BadSlice,
    Component as Component,
    DimensionSlices as DimensionSlices,
    Fact as Fact,
    ImageFrame as ImageFrame,
    KindReport as KindReport,
    LargeSlice as LargeSlice,
    SignalLine as SignalLine,
    Statistics as Statistics,
    StoredGroup as StoredGroup,
    StoredLine as StoredLine,
    StoredList as StoredList,
    StoredMap as StoredMap,
    TensorPicture as TensorPicture,
    TensorReport as TensorReport,
)
from tensormagic.reports.tensors import (
    MemoryTotal as MemoryTotal,
    ModelReport as ModelReport,
    ModuleRow as ModuleRow,
    TensorRow as TensorRow,
    TensorTable as TensorTable,
)
from tensormagic.reports.trace import (
    Cell as Cell,
    Level as Level,
    LiveFrame as LiveFrame,
    ParameterSeries as ParameterSeries,
    Pass as Pass,
    PassContext as PassContext,
    SavedTotals as SavedTotals,
    Schedule as Schedule,
    State as State,
    StepSampling as StepSampling,
    TraceReport as TraceReport,
)
from tensormagic.reports.training import (
    Accumulation as Accumulation,
    Clipping as Clipping,
    FrozenUpdate as FrozenUpdate,
    GraphGrowth as GraphGrowth,
    HookKind as HookKind,
    IdleOptimizer as IdleOptimizer,
    ModelMode as ModelMode,
    Observation as Observation,
    ObservationKind as ObservationKind,
    OptimizerUse as OptimizerUse,
    Parallel as Parallel,
    PartialSum as PartialSum,
    RepeatedHook as RepeatedHook,
    RunningSum as RunningSum,
    SameOrder as SameOrder,
    Spread as Spread,
    StateLoad as StateLoad,
    StepKind as StepKind,
    StepPattern as StepPattern,
    Training as Training,
    UnshardedParameters as UnshardedParameters,
    UntrainedNorm as UntrainedNorm,
    UsedUpIterator as UsedUpIterator,
)
from tensormagic.reports.watch import (
    ArgumentCheck as ArgumentCheck,
    Extent as Extent,
    FlagWithoutEffect as FlagWithoutEffect,
    FunctionCheck as FunctionCheck,
    GraphForm as GraphForm,
    Growth as Growth,
    HeldSize as HeldSize,
    ModulesReport as ModulesReport,
    Overfit as Overfit,
    Probe as Probe,
    RepeatedModule as RepeatedModule,
    RetainedMemory as RetainedMemory,
    StartReport as StartReport,
    StorageKeepingView as StorageKeepingView,
    StoredGraph as StoredGraph,
    UnchangedParameters as UnchangedParameters,
    UnregisteredModules as UnregisteredModules,
    UnregisteredTensor as UnregisteredTensor,
    UntiedPair as UntiedPair,
    WatchReport as WatchReport,
)
from tensormagic.reports.writes import (
    ChangedName as ChangedName,
    Clash as Clash,
    Write as Write,
    WritesReport as WritesReport,
)

# All of these: constants, classes, functions. The modules that they come from are found under their own names.
__all__ = [
    name
    for name in sorted(dir(), key=lambda name: (not name.isupper(), name))
    if not (name.startswith("_") or isinstance(globals()[name], _ModuleType))
]
