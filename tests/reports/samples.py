"""Hand-made reports for tests: every field filled, and the awkward values in it that saved data must survive."""

from __future__ import annotations

import math
from array import array

from tensormagic import reports
from tensormagic.reports.failure import (
    BackwardFault,
    FreedGraph,
    GradientRead,
    IgnoredGradient,
    ModifiedSavedTensor,
    NothingToTrain,
    OverwrittenGradient,
    SavedWrite,
    SilentErrors,
    SwallowedError,
    WrongReturn,
)

HOSTILE = "</script><!-- \u2028 \"'&<b> \x00 \\ é 𝛻 nan"


def tensor_report() -> reports.TensorReport:
    """Return the report of a 2 x 3 slice of a 3 x 4 matrix that holds a NaN and both infinities."""
    return reports.TensorReport(
        findings=(finding(),),
        name=HOSTILE,
        type_name="Tensor",
        role="view of a",
        dtype="float32",
        shape=(2, 3),
        device="cpu",
        layout_name="strided",
        element_size=4,
        nbytes=24,
        numel=6,
        version=3,
        is_view=True,
        flags={"is_conj": "False", HOSTILE: HOSTILE},
        data_text="tensor([[nan, inf, -inf],\n        [0., 1., 2.]])",
        storage=reports.StorageReport(address=0x7F00_0000_0040, nbytes=48, elements=12, device="cpu", resizable=True),
        layout=_layout(),
        statistics=_statistics(),
        autograd=_autograd(),
        aliases=(_alias(),),
        aliases_searched=17,
        slices=(_slices(),),
        picture=_picture(),
        gaps=(reports.Gap("autograd", "freed"),),
        kinds=(_kind(),),
        verdict=_verdict(),
        holders=_holders(),
    )


def _kind() -> reports.KindReport:
    inner = reports.TensorReport(
        name="x.values()", type_name="Tensor", role="owns its storage", dtype="float32", shape=(2,), device="cpu",
        layout_name="strided", element_size=4, nbytes=8, numel=2, version=0, is_view=False,
    )  # fmt: skip
    return reports.KindReport(
        key="sparse_csr",
        label="sparse CSR",
        summary=HOSTILE,
        facts=(reports.Fact("nnz", "2", HOSTILE), reports.Fact("block", "1")),
        components=(reports.Component("x.values()", "the stored values", inner),),
        map=reports.StoredMap(
            row_name="row", column_name="column", row_count=2, column_count=2, row_step=1, column_step=1,
            counts=((1, 0), (2, 0)), places=((0, reports.NOT_STORED), (1, reports.OUTSIDE)),
            texts=(("nan", ""), (HOSTILE, "")), title=HOSTILE, sampled=3,
        ),
        stored=reports.StoredList(
            count=9, shown=2, lines=(reports.StoredLine("values", ("nan", HOSTILE)),),
            groups=(reports.StoredGroup("row 0", 0, 1), reports.StoredGroup("row 1", 1, 1)),
            group_name="crow_indices", example=1,
        ),
        reading=(HOSTILE,),
        stored_bytes=24,
    )  # fmt: skip


def trace_report() -> reports.TraceReport:
    """Return the report of two passes through ``mul → log → sum``, the second of which met a log of zero."""
    return reports.TraceReport(
        findings=(finding(),),
        title="Net",
        state="failed",
        error=f"ValueError: {HOSTILE}",
        cell=reports.Cell(filename="<ipython-input-5>", count=5, lines=("y = (w * x).log().sum()", HOSTILE)),
        seconds=0.25,
        own_seconds=0.01,
        locations=(reports.Location("<ipython-input-5>", 1, HOSTILE, cell=5, function="step"),),
        graphs=(_graph(),),
        passes=(
            reports.Pass(number=1, step=1, graph=1, outcome="finished", seconds=0.1, reached=3, location=0),
            reports.Pass(
                number=2,
                step=2,
                graph=1,
                outcome="failed",
                seconds=0.1,
                reached=2,
                finite=False,
                pass_context=reports.PassContext(thread=HOSTILE, levels=("vmap", "grad")),
            ),
        ),
        passes_seen=2,
        inner_passes=(
            reports.Pass(2, 2, 1, "finished", 0.1, 1, pass_context=reports.PassContext(inside=2, graph=1, node=2)),
        ),
        inner_passes_seen=1,
        steps_seen=2,
        forward_nodes=6,
        parameters=(_series(),),
        gaps=(reports.Gap("saved tensors", "freed before they were read"),),
        cuts=(reports.Cut(kind="copy", op="tensor", location=0, line=1, source_name=HOSTILE, dtype="float32"),),
        ops=_ops(),
        sampling=_sampling(),
        saved=reports.SavedTotals(slots=4, storages=3, nbytes=96, leaf_bytes=8, freed=1, changed=2, unread=5),
        failure=failure_report(),
        training=_training(),
        observations=(_observation(),),
        parallel=reports.Parallel(1, 2, ("DDP",)),
        unused_graphs=UNUSED_GRAPHS,
        forked=2,
        hooks=(
            reports.RepeatedHook(
                kind="forward", function=HOSTILE, on=(HOSTILE, "net.0"), targets=7, times=3, same=False, grown=2,
                changes=True, location=reports.Location("model.py", 3, HOSTILE),
                registered=reports.Location("model.py", 4, HOSTILE),
            ),
        ),
        losses_without_graph=(
            reports.LossWithoutGraph(
                name=HOSTILE, location=0, shape=(3,), dtype="int64", grad_enabled=False, inference=True, cut=0,
                models=(reports.ModelInScope(name=HOSTILE, parameters=4, frozen=4),), count=2, expected=True,
            ),
            reports.LossWithoutGraph(),
        ),
        modules=_modules(),
        silent_errors=_quiet_faults(),
        swallowed_errors=(
            SwallowedError(
                error_type="RuntimeError", error=HOSTILE, fault=_backward_fault(), location=0, expected=True, count=3
            ),
        ),
    )  # fmt: skip


def _quiet_faults() -> SilentErrors:
    line = reports.Location("model.py", 3, HOSTILE)
    write = SavedWrite(call=HOSTILE, kind="set data", location=line, module="net.0", version=3)
    modified = ModifiedSavedTensor(
        op="pow", slot="self", name=HOSTILE, shape=(2, 3), module="net", location=line, backward=line, graph=0, node=1,
        saved_version=1, version=3, writes=(write,), writes_seen=7, others=2,
    )  # fmt: skip
    read = GradientRead(
        name=HOSTILE, op="mul", shape=(4,), location=line, made=line, leaf="x", single=True, passes=2, count=9
    )
    ignored = IgnoredGradient(
        function=HOSTILE, argument="g", location=line, applied=line, norm=2.0, graph=0, node=1
    )  # fmt: skip
    overwritten = OverwrittenGradient(
        function=HOSTILE, argument="g", location=line, applied=line, passes=3, graph=0, node=1
    )  # fmt: skip
    return SilentErrors((modified,), (read, GradientRead(name="", op="", shape=())), (ignored,), (overwritten,))


def _backward_fault() -> BackwardFault:
    line = reports.Location("model.py", 5, HOSTILE)
    freed = FreedGraph(
        op="tanh", location=line, root=HOSTILE, backward=line, whole=True, first=line, known=True, joint="addmm",
        joint_name=HOSTILE, joint_location=line, joint_again=True, joint_tuples=(HOSTILE,), shared=4, graph=0, node=1,
    )  # fmt: skip
    returned = WrongReturn(
        function=HOSTILE, problem="shape", arguments=("x", HOSTILE), argument="x", got="(2,)", expected="(3,)",
        returns=(line,), location=line, backward=line, graph=0, node=1,
    )  # fmt: skip
    return BackwardFault(_quiet_faults().unseen[0], freed, returned)


def _observation() -> reports.Observation:
    operand = reports.Operand(name=HOSTILE, shape=(4, 1), dtype="float32", device="cpu", stride=(1, 1))
    return reports.Observation(
        kind="both broadcast", op="sub", location=0, module="net.fc1", calls=8, looked=5, seen=4, nbytes=64,
        operands=(operand, operand), result=operand, made=0, detail=HOSTILE,
    )  # fmt: skip


UNUSED_GRAPHS = (
    reports.UnusedGraph(kind="kept", location=0, times=4),
    reports.UnusedGraph(kind="evaluation", location=None, times=2, model=HOSTILE),
)


def _training() -> reports.Training:
    pattern = reports.StepPattern(
        kind="accumulated", location=0, backward=0, cleared=0, count=3, first=2, last=9, longest=2
    )
    use = reports.OptimizerUse(
        name=HOSTILE, type_name="SGD", steps=9, patterns=(pattern, reports.StepPattern(kind="fresh")), left_out=5,
        holds=(0,), outlived=(0,), unknown_parameters=2, unknown_shapes=((3, 4), ()), unknown_owner=HOSTILE,
        unknown_idle=False, accumulation=reports.Accumulation(0, 2, 0.5, 9, math.inf, 0.25),
        rate=0.1, zero_rate_steps=2, graphed=2, scaled=1, repeated=3, repeated_at=7, repeated_of=4,
        foreign=2, foreign_at=0, follows=True,
    )  # fmt: skip
    growth = reports.GraphGrowth(
        backward=0, passes=4, first_size=3, last_size=12, increment=3, older=9, joined=0, reaches=0
    )
    mode = reports.ModelMode(
        model=HOSTILE, steps=9, eval_steps=3, longest=2, first=4, dropouts=1, norms=2, unused_norms=1
    )
    return reports.Training(
        optimizers=(use,), optimizers_seen=40, by_hand=use, elsewhere=(0,), growth=(growth,),
        sums=(reports.RunningSum(location=0, steps=4),),
        norms=(reports.UntrainedNorm(module=HOSTILE, location=0, batches=9, longest=3),), modes=(mode,),
        drifting=(reports.UntrainedNorm(module=HOSTILE, location=None, batches=7, longest=2),),
        clips=(reports.Clipping(location=0, calls=9, late=2, empty=1, exhausted=3),),
        alike=(0,), idle=(reports.IdleOptimizer(name=HOSTILE, holds=(0,), cleared=0),), frozen=(reports.FrozenUpdate(
            parameter=HOSTILE, optimizer=HOSTILE, steps=3, zero=True, momentum=True, weight_decay=0.1, location=0,
            frozen=0, cleared=0,
        ),), names=((HOSTILE, "net"),),
        used_up=(reports.UsedUpIterator(location=0, name=HOSTILE, type_name="generator", rounds=-1),),
        same_order=(reports.SameOrder(location=0, loader=HOSTILE, epoch=HOSTILE),),
        loads=(reports.StateLoad(location=0, module=HOSTILE, given=4, unexpected=4, missing=4, example=HOSTILE,
                                 wanted="0.weight", strip="module.", own=True),),
    )  # fmt: skip


def failure_report() -> reports.FailureReport:
    """Return the report of a matrix product whose inner dimensions differ."""
    line = reports.Location("model.py", 12, HOSTILE)
    return reports.FailureReport(
        findings=(finding(),),
        error_type="RuntimeError",
        error=f"mat1 and mat2 shapes cannot be multiplied (3x4 and 5x6) {HOSTILE}",
        function="torch.mm",
        location=line,
        stack=(line, line),
        module="net.fc1",
        operands=(
            reports.Operand(name=HOSTILE, role="self", shape=(3, 4), dtype="float32", device="cpu", stride=(4, 1),
                            layout="strided", requires_grad=True, is_leaf=False, location=line, place="tensors[0]"),
            reports.Operand(name="", role="mat2", shape=(5, 6), dtype="float64", device="cuda:0", stride=(6, 1),
                            layout="strided"),
            reports.Operand(role="dim", is_tensor=False, text=HOSTILE),
        ),
        exact=False,
        mismatch=reports.Mismatch(
            kind="shape", rule=HOSTILE, parts=(reports.Clashing(0, 1, "4", "5"), reports.Clashing(1)),
            works=("b.mm(a)", HOSTILE),
        ),
        gaps=(reports.Gap("operands", HOSTILE),),
        call=HOSTILE,
        layer_call=HOSTILE,
        unnamed=("F",), unimportable=(HOSTILE,),
        near=(HOSTILE,),
        inside="torch.nn.functional.bilinear",
        node=(0, 1),
        graph=_graph(),
        backward=_backward_fault(),
        out_of_memory=reports.OutOfMemory("cuda:0", 2**33, "torch.mm", None, HOSTILE, 2**20, 2**34, 5, 6, 7),
        memory=reports.MemoryReport(title=HOSTILE),
        nothing_to_train=NothingToTrain(HOSTILE, HOSTILE, 4, 4, (reports.UnregisteredModules(
            HOSTILE, HOSTILE, "list", 3, 6, 60, registered=4, optimized=1, with_gradient=1, trained=True, location=line,
        ),)),
        losses_without_graph=(reports.LossWithoutGraph(name=HOSTILE, location=0, cut=0, models=(
            reports.ModelInScope(name=HOSTILE, parameters=4, frozen=1),
        )),),
        cuts=(reports.Cut(kind="detach", op="detach", location=1, line=9, source_name=HOSTILE),),
        locations=(line, line),
    )  # fmt: skip


def _ops() -> reports.OpsReport:
    numbers = [array("f", [value, 2 * value]) for value in (0.5, 64.0, 0.25, 128.0)]
    return reports.OpsReport(
        uses=(
            reports.OpUse(HOSTILE, "backward", None, "net.1", 4, 0.5, 4096),
            reports.OpUse("aten.add_.Tensor", "optimizer", 0, "", 3, 0.25, 0, ("self",), 2, failed=1),
        ),
        nodes=(reports.NodeCosts(1, 2, 3, *numbers),),
        devices=("cpu", "cuda"),
        compiled_calls=2,
    )


def _sampling() -> reports.StepSampling:
    return reports.StepSampling(
        asked=reports.Schedule(budget=0.05, every=2, start=3, stop=90),
        steps=41,
        passes=44,
        ranges=((1, 1), (3, 7)),
        left_out=12,
        cost=0.046,
        first_cost=0.01,
        after_finding=8,
        partial=2,
        last_traced=False,
        last_norms=array("f", [-1.0]),
        paused=True,
        next_step=93,
        unsampled=HOSTILE,
    )


def overlay_report() -> reports.OverlayReport:
    """Return the report of a float32 and an int8 tensor over one storage of 8 bytes, and of one by itself."""
    members = (
        reports.OverlayMember(HOSTILE, "Parameter", "float32", (2,), (1,), 4, 0, 8),
        reports.OverlayMember("bytes", "Tensor", "int8", (3,), (2,), 1, 1, 3),
        reports.OverlayMember("n", "ndarray", "float64", (0, 2), (-2, 1), 8, None, None),
    )
    rows = (
        reports.OverlayRow(
            0, (1,) * 8, (reports.OverlayElement(0, (0,), reads=1), reports.OverlayElement(4, (1,), reads=2))
        ),
        reports.OverlayRow(
            1, (0, 1, 0, 1, 0, 1, None, 0), tuple(reports.OverlayElement(at, (at,), 1) for at in (1, 3, 5))
        ),
    )
    shared = reports.OverlayStorage(
        members=(0, 1),
        address=0x7F00_0000_0040,
        nbytes=8,
        device="cpu",
        start=0,
        stop=8,
        cell_bytes=1,
        rows=rows,
        readers=(1, 2, 1, 2, 1, 2, 1, 1),
        pairs=(reports.OverlayPair(0, 1, "yes", 3, 2, 3),),
        exact=False,
    )
    alone = reports.OverlayStorage(members=(2,), address=0, nbytes=0, device="meta")
    gap = reports.Gap("s", "sparse")
    return reports.OverlayReport(findings=(finding(),), members=members, storages=(shared, alone), gaps=(gap,))


def alias_report() -> reports.AliasReport:
    """Return the report of two tensors of one storage, of which one part was too hard to count."""
    member = reports.AliasMember(
        names=("a", HOSTILE),
        names_found=2,
        kind="Tensor",
        dtype="float32",
        shape=(2, 3),
        start=0,
        stop=24,
        elements=6,
        relation="view",
        base=HOSTILE,
        operations=("t", "slice"),
        version=3,
        counter=1,
        requires_grad=True,
        overlap="maybe",
        coverage=(1.0, 0.5, None),
    )
    pair = reports.AliasPair("a", HOSTILE, "maybe", None, 3)
    group = reports.AliasGroup(
        number=1,
        device="cpu",
        nbytes=24,
        storages=1,
        cell_bytes=8,
        members=(member,),
        found=1,
        pairs=(pair,),
        pairs_complete=False,
    )
    return reports.AliasReport(
        findings=(finding(),),
        groups=(group,),
        groups_found=1,
        alone=2,
        alone_bytes=48,
        tensors=3,
        arrays=1,
        asked=("a", "c"),
        unshared=("c",),
        looked=9,
        gaps=(reports.Gap("aliases", HOSTILE),),
    )


def tensor_table() -> reports.TensorTable:
    """Return the table of a collection of one tensor, with its panel."""
    row = reports.TensorRow(
        name=HOSTILE,
        kind="Tensor",
        dtype="float32",
        shape=(2, 3),
        device="cpu",
        layout="strided",
        nbytes=24,
        group=1,
        gradient="leaf",
        names=2,
    )
    return reports.TensorTable(
        findings=(finding(),),
        title="batch",
        rows=(row,),
        totals=(reports.MemoryTotal("cpu", 1, 1, 24),),
        groups=1,
        looked=2,
        panels=(tensor_report(),),
        hint=HOSTILE,
        gaps=(reports.Gap("tensors", HOSTILE),),
    )


def writes_report() -> reports.WritesReport:
    """Return the report of a run with one write that changed another name, an array and itself."""
    location = reports.Location("<ipython-input-5>", 2, HOSTILE, cell=5, function="step")
    changed = (
        reports.ChangedName(
            name=HOSTILE, relation="base", kind="Parameter", shape=(2, 3), elements=2, of_elements=6, first=(0, 1),
            marks="099000", certain=True, extent="around", noticed=True, writes=3,
        ),
        reports.ChangedName("n", "NumPy array", "ndarray", (6,), None, 6, certain=False, noticed=False),
        reports.ChangedName("history", "item of a list", "Tensor", (), 1, 1, (), "9", noticed=None, items=2),
    )  # fmt: skip
    clash = reports.Clash("reads what it writes", "x", 2, 6, wrong=1, index=(0, 1), got="nan", expected="1")
    return reports.WritesReport(
        findings=(finding(),),
        state="failed",
        error=f"ValueError: {HOSTILE}",
        cell=reports.Cell(filename="<ipython-input-5>", count=5, lines=("%%aliases", HOSTILE)),
        seconds=0.25,
        writes=(reports.Write(location, "add_", "x", (2, 3), 3, several=True, changed=changed, clash=clash),),
        writes_seen=3,
        engine_writes=2,
        names_searched=17,
        gaps=(reports.Gap("names", "too many"),),
    )


def why_report() -> reports.WhyReport:
    """Return why a gradient is None: cut off, with everything that can be told."""
    line = reports.Location("model.py", 12, HOSTILE)
    facts = reports.GradientFacts(
        name=HOSTILE, expression=HOSTILE, shape=(3, 4), dtype="float32", requires_grad=True, is_leaf=False,
        retains_grad=True, is_parameter=True, inference=True, made_by="mul", leaves=(HOSTILE, "w"), grad="present",
        numel=12, norm=math.inf, zero=3, nan=1, inf=2, relative=HOSTILE, copies=(HOSTILE,), loss=HOSTILE,
        path=reports.LivePath(end=HOSTILE, is_scalar=False, ops=("mul", HOSTILE), freed=True), scale=65536.0,
        searched=4, cut=reports.Cut(kind="detach", op="detach", location=0), locations=(line,),
    )  # fmt: skip
    return reports.WhyReport(
        findings=(finding(),), name=HOSTILE, reason="cut off", answer=HOSTILE, evidence=(HOSTILE, "Two."),
        path=(
            reports.PathStep(label=HOSTILE, kind="tensor", detail="3x4", norm=math.nan),
            reports.PathStep(label="detach", kind="cut", location=line, bad=True),
            reports.PathStep(label="1 more", kind="more"),
            reports.PathStep(label="loss", kind="loss", norm=1.0),
        ),
        remedy=(HOSTILE, "x.grad"), location=line, facts=facts, source="the last traced run",
        groups=(reports.WhyGroup(reason="unused", names=(HOSTILE,), count=2, answer=HOSTILE, fine=True),),
        gaps=(reports.Gap("way", HOSTILE),),
    )  # fmt: skip


def finding() -> reports.Finding:
    """Return a finding with evidence of every scalar kind."""
    return reports.Finding(
        code="TM402",
        severity="error",
        message=HOSTILE,
        location=reports.Location("model.py", 12, "y = x.log()"),
        evidence={"nan": 1, "norm": math.nan, "low": -math.inf, "certain": True, "name": HOSTILE, "none": None},
        remedy="add an epsilon",
        subject="w",
        node=(0, 2),
        related=(reports.RelatedLine(HOSTILE, reports.Location("model.py", 3, HOSTILE)),),
    )


def watch_report() -> reports.WatchReport:
    """Return a check that found one thing of each kind."""
    place = reports.Location("<ipython-input-5>", 3, HOSTILE, cell=5, function="step")
    return reports.WatchReport(
        findings=(finding(),),
        looked=120,
        tensors=12,
        storages=9,
        nbytes=2**25,
        modules=_modules(),
        retained=(
            reports.RetainedMemory(("Out[5]", "_5"), "history", (4, 2**20), "float32", "cpu", 2**24),
            reports.RetainedMemory((HOSTILE,), "traceback", (), "int64", "cuda:0", 8, place),
        ),
        views=(reports.StorageKeepingView("row", 16, 2**24), reports.StorageKeepingView(HOSTILE, 4, 2**20)),
        graphs=(
            reports.StoredGraph("losses", "items", 40, 40, 320, 80, 2**24, True, False, location=place),
            reports.StoredGraph(HOSTILE, "sum", 1, 4, 5000, 0, 0, False, True, complete=False),
        ),
        sizes=(reports.HeldSize("features", 5, 2**20), reports.HeldSize(HOSTILE, 1, 4)),
        growing=(reports.Growth("features", (1, 2, 3, 4, 5), (4, 8, 12, 16, 20), place),),
        unchanged=(
            reports.UnchangedParameters(
                owner="net", optimizer="opt", held=True, names=("net.side.weight", HOSTILE), numels=(4, 2),
                unchanged=(1,), trained=(0,), alike=(1,), watched=40, steps=60, location=place,
            ),
        ),
        gaps=(reports.Gap("names", "only 20\u00a0000 objects were searched"),),
    )  # fmt: skip


def _modules() -> reports.ModulesReport:
    place = reports.Location("model.py", 8, HOSTILE, function="__init__")
    return reports.ModulesReport(
        unregistered_tensors=(
            reports.UnregisteredTensor(
                name="net.scale", owner="net", module="net", shape=(4,), dtype="float32", device="cpu",
                requires_grad=True, grad_fn="MulBackward0", kept_elsewhere=True, optimized=True, siblings=2,
                registered=2, module_device="cuda:0", method="__init__", location=place,
            ),
        ),
        unregistered_modules=(reports.UnregisteredModules("net.layers", "net", "list", 3, 6, 60, 2, 1, 4,
                                                          trained=True, location=place),),
        untied=(reports.UntiedPair("net.emb.weight", HOSTILE, "net", "equal values", 160, 160, place),),
        repeated=(reports.RepeatedModule("net.blocks", "Sequential", HOSTILE, 3, 2, place),),
        flags=(reports.FlagWithoutEffect("net.requires_grad", HOSTILE, "requires_grad", True, 4, 2),),
    )  # fmt: skip


def _layout() -> reports.LayoutReport:
    return reports.LayoutReport(
        shape=(2, 3),
        stride=(4, 1),
        storage_offset=5,
        dim_names=("i", "j"),
        grid=reports.Grid(
            row_dim=0,
            column_dim=1,
            rows=(0, 1),
            columns=(0, 1, 2),
            row_count=2,
            column_count=3,
            fixed=(0, 0),
            offsets=((5, 6, 7), (9, 10, 11)),
            values=(("nan", "inf", "-inf"), ("0", "1", "2")),
            levels=((math.nan, math.inf, -math.inf), (0.0, 0.5, 1.0)),
        ),
        strip=reports.Strip(start=0, stop=12, cell_elements=1, cells=(reports.StripCell(5, 6, distinct=1, reads=1),)),
        formats=(reports.MemoryFormat("contiguous_format", holds=False, stride=(3, 1), breaking_dim=0),),
        lowest=5,
        highest=11,
        distinct=6,
        internal_overlap="no",
        jumps=(1, 1, 2, 1, 1),
        contiguous_bytes=24,
        views=reports.ViewReport(
            groups=((0,), (1,)),
            sizes=(2, 3),
            strides=(4, 1),
            barriers=(reports.Barrier(0, 1, stride=4, needed=3, inner_size=3, inner_stride=1),),
            copy_bytes=24,
        ),
    )


def _statistics() -> reports.Statistics:
    return reports.Statistics(
        count=6,
        of=6,
        finite=3,
        nan=1,
        positive_infinity=1,
        negative_infinity=1,
        zero=1,
        minimum=0.0,
        maximum=2.0,
        mean=1.0,
        std=1.0,
        norm=math.sqrt(5),
        histogram_edges=(0.0, 1.0, 2.0),
        histogram_counts=(1, 2),
        first_nan=(0, 0),
        first_positive_infinity=(0, 1),
        first_negative_infinity=(0, 2),
        sampled=3,
    )


def _slices() -> reports.DimensionSlices:
    return reports.DimensionSlices(
        dim=0, size=2, elements=3, looked=3, cell_slices=1, levels=(math.nan, 1.0), cell_bad=(3, 0), bad_count=1,
        bad=(reports.BadSlice(index=0, nan=1, inf=2),), zero_count=1, zero=(1,),
        large=(reports.LargeSlice(index=1, ratio=math.inf),),
    )  # fmt: skip


def _picture() -> reports.TensorPicture:
    line = reports.SignalLine("0", (math.nan, -1.0), (math.nan, 2.0), (3, 0))
    return reports.TensorPicture(
        "(N, T)", 0, -1.0, 2.0, "shown", images=(reports.ImageFrame("0, 1", 1, 1, "eJxj+A8AAQEBAA=="),), lines=(line,),
        of=2, step=3, size=(6,), bad=3,
    )  # fmt: skip


def _autograd() -> reports.AutogradReport:
    return reports.AutogradReport(
        requires_grad=True,
        is_leaf=False,
        grad_fn="SliceBackward0",
        retains_grad=False,
        grad="none",
        grad_shape=None,
        grad_norm=math.inf,
        hooks=0,
        leaves=("a",),
        leaf_count=1,
        sentence="made by SliceBackward0",
        details=_autograd_details(),
    )


def _verdict() -> reports.CopyVerdict:
    sharing = reports.Sharing("a", "overlap", elements=6, of_elements=12, shares_version=True)
    step = reports.Step(HOSTILE, "view", of="a", nbytes=0, reason=HOSTILE)
    apart = reports.Sharing(HOSTILE, "unknown", elements=None)
    return reports.CopyVerdict(HOSTILE, (sharing, apart), (step, step), more_steps=3, more_operands=1)


def _autograd_details() -> reports.AutogradDetails:
    slice_node = reports.PathNode("slice", "SliceBackward0", "x", (2, 3), inputs=(1, reports.NOTHING), saved="freed")
    leaf = reports.PathNode("", "AccumulateGrad", "a", (3, 4), is_leaf=True, has_grad=True)
    return reports.AutogradDetails(
        output_number=1,
        because="not a leaf: SliceBackward0 made it from something that requires grad",
        grad_because=HOSTILE,
        hooks=(reports.Hook("tensor hook", HOSTILE, "train.py, line 3"),),
        saved=(reports.SavedState("self", "changed in place", "a", (3, 4), "float32", 48, 0, 2),),
        path=reports.Path((slice_node, leaf), walked=2, complete=True),
    )


def _holders() -> reports.HoldersReport:
    place = reports.Location("model.py", 12, function="step")
    held = reports.Holder(HOSTILE, "traceback", "tensor", location=place)
    return reports.HoldersReport(
        (held, reports.Holder("y", "name", "storage", 12)), 40, 20_001, cut=HOSTILE, unreached=2
    )


def _alias() -> reports.Alias:
    return reports.Alias(
        name="a",
        relation="base",
        kind="Tensor",
        shape=(3, 4),
        overlap_elements=6,
        of_elements=12,
        overlap="yes",
        version=3,
        shares_version=True,
    )


def _graph() -> reports.Graph:
    saved = reports.SavedTensor("self", (3,), "float32", 12, "changed in place")
    statistics = reports.GradientStatistics(
        pass_number=1,
        count=3,
        norm=math.nan,
        abs_max=math.inf,
        mean=0.5,
        std=0.1,
        zero=0,
        nan=1,
        inf=1,
        subnormal=1,
        saturated=2,
    )
    return reports.Graph(
        number=1,
        nodes=(
            reports.Node(0, "AccumulateGrad", "accumulate", "accumulate", variable="w", shapes=((3,),)),
            reports.Node(1, "LogBackward0", "log", "op", location=0, saved=(saved,), statistics=statistics),
            reports.Node(2, "SumBackward0", "sum", "op", location=0, exact_location=False, shapes=((),)),
        ),
        edges=(reports.Edge(2, 1, 0, 0), reports.Edge(1, 0, 0, 0)),
        roots=(2,),
        order=(2, 1, 0),
        passes_seen=2,
        frames=(
            reports.Frame(1, array("f", [0.5, 1.0, 1.0])),
            reports.Frame(
                2,
                array("f", [reports.UNTOUCHED, math.nan, math.inf]),
                bad={"1": (1, 2)},
                forward=reports.ForwardValues(
                    array("f", [1.0, math.inf, reports.UNTOUCHED]),
                    array("f", [1.0, 0.0, 0.5, 0.25, 0.0, 0.0, math.inf, math.nan, math.nan, *[0.0] * 3, *[-1.0] * 6]),
                    bad={"1": (0, 2)},
                ),
                measures=array("f", [reports.UNTOUCHED] * 6 + [1.0, 0.5, 0.25, 0.0, 0.125, 0.0] * 2),
                parts=array("f", [0.5]),
            ),
        ),
        cuts=(
            reports.Cut(
                kind="detach", op="detach", location=0, line=1, source=1, source_name="log", source_location=0,
                earlier=True, target=2, input_number=1, shape=(3,), dtype="float32", count=2,
                left_out=(
                    reports.LeftOut(name=HOSTILE, owner="net", shape=(3,), is_parameter=True, held=True, written=True),
                    reports.LeftOut(name="x"),
                ),
            ),
            reports.Cut(kind="non-differentiable", op=HOSTILE, source_name=HOSTILE, target=1, selects=True),
        ),
        forward_nonfinite=reports.ForwardNonfinite(pass_number=2, node=1, nan=0, inf=2, count=3, given=None),
        nonfinite_source=reports.NonfiniteSource(2, 1, "made", 1, 0, 3, "x", (3,), 0, 1, certain=False),
        first_nonfinite=(
            reports.FirstNonfinite(
                pass_number=2, node=1, receiver=0, input_number=0, nan=0, inf=1, count=3, incoming_norm=1.0,
                saved_name="self", saved_zero=1, hooked=True,
            ),
        ),
        shared_edges=(1,),
    )  # fmt: skip


def _series() -> reports.ParameterSeries:
    return reports.ParameterSeries(
        name="net.weight",
        shape=(3,),
        dtype="float32",
        numel=3,
        is_parameter=True,
        requires_grad=True,
        used=True,
        owner="net",
        norms=array("f", [0.5, math.nan]),
        touched=2,
        updates=array("f", [reports.UNTOUCHED, math.inf]),
        replaced=True,
    )


def comparison_report() -> reports.ComparisonReport:
    """Return the report of two runs with something in every part."""
    moment = reports.Moment(2, 0.5, math.nan, math.nan)
    norms = reports.NormDifference(
        compared=2, first=reports.Moment(1, 1.0, 10.0, 1.0), last=moment, worst=reports.Moment(1, 0.0, 10.0, math.inf),
        from_step=1, apart_steps=2, same=False, bad_left=0, bad_right=1, bad_from_right=2, silent_left=1,
    )  # fmt: skip
    statistics = reports.GradientStatistics(1, 3, 1.0, 0.5, 0.1, 0.2, 1, 0, 0)
    place = reports.Location("<ipython-input-5>", 1, HOSTILE, cell=5)
    left = reports.NodeMention(0, "mul", "net", "y", ((3,), ()), "float32", place, statistics)
    right = reports.NodeMention(1, HOSTILE)
    return reports.ComparisonReport(
        left=reports.Side("a", "net", "finished", 2, 2, 0.5, 3, 2, 2.5, math.inf, 1),
        right=reports.Side(HOSTILE, HOSTILE, "failed", 2, 2, 0.5, 4, 3, None, None, 0, error=HOSTILE),
        steps_compared=2,
        graphs=(
            reports.GraphDifference(
                left=1, right=2, matched=1, same=False, equal=0, nodes=(reports.NodeDifference(left, right, norms),),
                nodes_found=1, only_left=(left,), only_left_found=1, only_right=(right,), only_right_found=2,
                edges_only_left=1, edges_only_right=2,
            ),
        ),
        graphs_only_left=1,
        graphs_only_right=2,
        parameters=(reports.ParameterDifference("net.weight", HOSTILE, (3,), (3, 4), norms),),
        parameters_only_left=(HOSTILE,),
        parameters_only_right=("b",),
        losses=(reports.LossPair(1, 2.5, None), reports.LossPair(2, math.nan, 1.0)),
        findings_only_left=(finding(),),
        findings_only_right=(finding(),),
        findings_both=(finding(),),
        gaps=(reports.Gap("steps", HOSTILE),),
        findings=(finding(),),
    )  # fmt: skip


def ranks_report() -> reports.RankReport:
    """Two ranks of which one had a NaN."""
    return reports.RankReport(
        title="runs/a", world_size=2,
        ranks=(
            reports.RankRow(
                rank=0, host="node1", pid=7, state="failed", error="ValueError: no", kinds=("DDP",), replicas=(0, 1),
                shares=(0, 1), coordinate=(("dp", 0),), passes=3, steps=3, loss=0.5, peak=1024,
                line="train.py, line 3", seconds=1.5,
            ),
        ),
        names=("net.weight",), compared_pass=3, compared_step=3,
        compared_after=3, pass_norms=array("f", [1.0]), step_norms=array("f", [2.0]),
        differences=(
            reports.Difference(
                what="gradients", step=2, ranks=(1,), names=("net.weight",), count=1, of=1, values=((0, 1.0), (1, 2.0)),
                reduced="some", described=((0, "R"), (1, "S(0)")), line="train.py, line 3",
            ),
        ),
        spread=(
            reports.Placed(
                name="net.weight", shape=(4, 3), placements=("S(0)",), mesh_names=("dp",), mesh_sizes=(2,),
                mesh_ranks=(0, 1),
            ),
        ),
        arrivals=reports.Arrivals(
            group="0", ranks=(0, 1), numbers=(7,), operations=("all_reduce",), lines=("train.py, line 3",),
            seconds=array("f", [0.0, 0.25]),
        ),
        bad_pass=3, bad_ranks=(1,), bad_line="train.py, line 3", gaps=(reports.Gap("ranks", HOSTILE),),
        findings=(finding(),),
    )  # fmt: skip
