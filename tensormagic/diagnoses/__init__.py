"""From reports to findings: what is wrong, on which line, and what to do.

`RULES` is the whole behaviour as one table: to add a diagnosis, write a function in the file of its family, a line
here, and a page in ``docs/diagnoses``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tensormagic.diagnoses import (
    aliasing,
    backward_failures,
    calls,
    forward_faults,
    gradient_health,
    graph_cuts,
    loss_inputs,
    losses,
    meanings,
    mismatches,
    modules,
    no_graph,
    not_finite,
    optimizers,
    ranks,
    retained_memory,
    several_networks,
    singular,
    steps,
    unused_graphs,
    writes,
    zero_gradients,
)
from tensormagic.diagnoses.fixes import FIXES
from tensormagic.diagnoses.lines import is_code, text_of
from tensormagic.diagnoses.rule import Rule, likelihood, line_of
from tensormagic.reports import (
    FailureReport,
    Finding,
    MemoryReport,
    MemoryRunReport,
    RankReport,
    Report,
    RngRunReport,
    StartReport,
    TensorReport,
    TraceReport,
    WatchReport,
    WritesReport,
)

# fmt: off
RULES: tuple[Rule, ...] = (
    Rule("TM101", "an impossible view", FailureReport, mismatches.rule_of("TM101"), "mismatch"),
    Rule("TM102", "an unintended copy", TraceReport, calls.hidden_copy, "observations"),
    Rule("TM103", "mixed memory formats", TraceReport, calls.mixed_formats, "observations"),
    Rule("TM104", "uninitialised memory that is read", TraceReport, calls.uninitialised, "observations"),
    Rule("TM105", "both operands are broadcast", TraceReport, calls.both_broadcast, "observations"),
    Rule("TM106", "a view where a permute was meant", TraceReport, meanings.regrouped, "observations"),
    Rule("TM107", "an indexed sum that keeps one of several", TraceReport, meanings.lost_sums, "observations"),
    Rule("TM201", "a write changes another name", TensorReport, aliasing.shared_memory),
    Rule("TM201", "a write changes another name", WritesReport, writes.changed_names),
    Rule("TM202", "a tensor overlaps itself", TensorReport, aliasing.internal_overlap),
    Rule("TM202", "a tensor overlaps itself", WritesReport, writes.overlapping_targets),
    Rule("TM203", "a write that reads memory it is overwriting", WritesReport, writes.reads_what_it_writes),
    Rule("TM204", "a NumPy array changes with a tensor", WritesReport, writes.changed_arrays),
    Rule("TM205", "a small view keeps a large storage", TensorReport, aliasing.small_view_of_large_storage),
    Rule("TM205", "a small view keeps a large storage", WatchReport, aliasing.storage_keeping_views),
    Rule("TM205", "a small view keeps a large storage", MemoryReport, aliasing.storage_keeping_views),
    Rule("TM206", "stored views of one buffer", TraceReport, meanings.stored_views, "observations"),
    Rule("TM301", "a saved tensor changed in place", FailureReport,
         backward_failures.changed_after_saving, "backward.modified"),
    Rule("TM301", "a saved tensor changed in place", TraceReport, backward_failures.caught_change, "swallowed_errors"),
    Rule("TM302", "a saved tensor changed without autograd noticing", TraceReport,
         meanings.changed_unseen, "silent_errors.unseen"),
    Rule("TM303", "a cut gradient of something that should learn", TraceReport, graph_cuts.cut_on_the_way),
    Rule("TM304", "backward through a freed graph", FailureReport, backward_failures.freed_graph, "backward.freed"),
    Rule("TM304", "backward through a freed graph", TraceReport,
         backward_failures.caught_freed_graph, "swallowed_errors"),
    Rule("TM305", "backward on a non-scalar", FailureReport,
         backward_failures.not_a_scalar, says=backward_failures.NOT_A_SCALAR),
    Rule("TM306", "backward without a graph", FailureReport, no_graph.refused_backward, says=no_graph.REFUSAL),
    Rule("TM306", "backward without a graph", TraceReport, no_graph.backward_without_history, "losses_without_graph"),
    Rule("TM307", "the gradient of a non-leaf", TraceReport, meanings.gradient_of_non_leaf, "silent_errors.reads"),
    Rule("TM308", "a leaf changed in place", FailureReport,
         backward_failures.write_to_a_leaf, says=backward_failures.ON_A_LEAF),
    Rule("TM309", "gradients that are never zeroed", TraceReport, steps.accumulated),
    Rule("TM310", "gradients zeroed before the step", TraceReport, steps.emptied),
    Rule("TM311", "wrong gradients from a custom Function", FailureReport,
         backward_failures.custom_function_return, "backward.returned"),
    Rule("TM311", "wrong gradients from a custom Function", TraceReport,
         meanings.wrong_gradients, "swallowed_errors or silent_errors.overwritten"),
    Rule("TM312", "a graph that grows from step to step", TraceReport, gradient_health.growing_graph),
    Rule("TM313", "a term of the loss without a gradient", TraceReport, losses.terms_without_gradient),
    Rule("TM314", "an advantage or a target that is not detached", TraceReport, losses.undetached, "observations"),
    Rule("TM315", "gradients that keep their graph", TraceReport, steps.graphed_gradients),
    Rule("TM316", "gradients of another network's loss", TraceReport, several_networks.foreign_gradients),
    Rule("TM317", "a gradient penalty without a graph", TraceReport, losses.penalties_without_graph),
    Rule("TM318", "a backward that does not fit its forward", TraceReport, zero_gradients.unfit_backward),
    Rule("TM318", "a backward that does not fit its forward", StartReport,
         backward_failures.wrong_backward, "function"),
    Rule("TM319", "a hook that is registered again and again", TraceReport, gradient_health.repeated_hooks, "hooks"),
    Rule("TM320", "a graph that no backward goes through", TraceReport, unused_graphs.unused_graph, "unused_graphs"),
    Rule("TM401", "values that are NaN or infinite", TensorReport, not_finite.bad_values),
    Rule("TM401", "a forward that is NaN or infinite", TraceReport, forward_faults.forward_not_finite),
    Rule("TM402", "the first NaN or infinite gradient", TraceReport, not_finite.first_bad_gradient),
    Rule("TM403", "a vanishing gradient", TraceReport, gradient_health.vanishing),
    Rule("TM404", "an exploding gradient", TraceReport, gradient_health.exploding),
    Rule("TM405", "a gradient that is exactly zero", TraceReport, zero_gradients.gradient_exactly_zero),
    Rule("TM406", "NaN from the branch that `where` hides", TraceReport, singular.nan_from_what_was_not_taken),
    Rule("TM407", "half-precision underflow or overflow", TraceReport, not_finite.narrow_gradients),
    Rule("TM408", "units that stay the same", TraceReport, several_networks.alike_units, "training.alike"),
    Rule("TM501", "memory kept by the history of outputs", WatchReport, retained_memory.kept_by_history),
    Rule("TM501", "memory kept by the history of outputs", MemoryReport, retained_memory.kept_by_history),
    Rule("TM502", "memory kept by the last error", WatchReport, retained_memory.kept_by_traceback),
    Rule("TM502", "memory kept by the last error", MemoryReport, retained_memory.kept_by_traceback),
    Rule("TM503", "memory kept by stored graphs", WatchReport, retained_memory.kept_by_graphs),
    Rule("TM503", "memory kept by stored graphs", MemoryRunReport, retained_memory.graphs_that_stay),
    Rule("TM503", "memory kept by stored graphs", MemoryReport, retained_memory.kept_by_graphs),
    Rule("TM504", "memory that grows with every run", WatchReport, retained_memory.grows),
    Rule("TM504", "memory that grows with every run", MemoryRunReport, retained_memory.grows_in_a_run),
    Rule("TM601", "a parameter without a gradient", TraceReport, modules.parameter_without_gradient),
    Rule("TM601", "a parameter without a gradient", WatchReport, optimizers.without_gradient),
    Rule("TM602", "a parameter in no optimizer", TraceReport, optimizers.in_no_optimizer),
    Rule("TM602", "a parameter in no optimizer", WatchReport, optimizers.stands_in_no_optimizer),
    Rule("TM603", "a plain tensor instead of a Parameter or a buffer", TraceReport, modules.loose_tensors),
    Rule("TM603", "a plain tensor instead of a Parameter or a buffer", WatchReport, modules.loose_tensors),
    Rule("TM604", "an optimizer of unused parameters", TraceReport, optimizers.of_unused_parameters),
    Rule("TM605", "modules in a plain list or dictionary", TraceReport, modules.hidden_modules),
    Rule("TM605", "modules in a plain list or dictionary", WatchReport, modules.hidden_modules),
    Rule("TM606", "a model in the wrong mode", TraceReport, losses.wrong_mode),
    Rule("TM607", "a step without a backward", TraceReport, steps.without_backward),
    Rule("TM608", "softmax or sigmoid twice, or missing, before the loss", TraceReport,
         loss_inputs.normalised_twice, "observations"),
    Rule("TM609", "tied weights that came apart", TraceReport, modules.untied_weights),
    Rule("TM609", "tied weights that came apart", WatchReport, modules.untied_weights),
    Rule("TM610", "dropout that eval() does not reach", TraceReport, meanings.unreachable_dropout, "observations"),
    Rule("TM611", "kl_div of values that are not logarithms", TraceReport, loss_inputs.no_logarithms, "observations"),
    Rule("TM612", "softmax over the wrong dimension", TraceReport, loss_inputs.softmax_elsewhere, "observations"),
    Rule("TM613", "a recurrent layer fed batch first", TraceReport, meanings.last_sample, "observations"),
    Rule("TM614", "one module several times in a container", TraceReport, modules.repeated_modules),
    Rule("TM614", "one module several times in a container", WatchReport, modules.repeated_modules),
    Rule("TM615", "an attribute that freezes nothing", TraceReport, modules.flags_without_effect),
    Rule("TM615", "an attribute that freezes nothing", WatchReport, modules.flags_without_effect),
    Rule("TM616", "an optimizer made again in every step", TraceReport, steps.made_anew),
    Rule("TM617", "steps that leave the weights where they are", TraceReport, steps.parameters_not_updating),
    Rule("TM618", "clip_grad_norm_ without effect", TraceReport, steps.clipping_without_effect, "training.clips"),
    Rule("TM619", "a frozen batch normalisation that drifts", TraceReport, steps.drifting_norms, "training.drifting"),
    Rule("TM620", "an iterator that is used up", TraceReport, several_networks.used_up_iterators, "training.used_up"),
    Rule("TM621", "a load that loads nothing", TraceReport, several_networks.loads_without_effect, "training.loads"),
    Rule("TM622", "an optimizer that makes no step", TraceReport, several_networks.never_stepped, "training.idle"),
    Rule("TM623", "a target network left behind", TraceReport, several_networks.targets_left_behind),
    Rule("TM624", "a frozen parameter that moves", TraceReport, several_networks.frozen_moves, "training.frozen"),
    Rule("TM625", "a step with scaled gradients", TraceReport, steps.scaled_gradients),
    Rule("TM626", "a target that its loss does not take", TraceReport, loss_inputs.unfit_target, "observations"),
    Rule("TM627", "a method that is not called", TraceReport, several_networks.not_called, "cell.lines"),
    Rule("TM701", "draws from an unseeded generator", TraceReport, calls.unseeded_draws, "observations"),
    Rule("TM701", "draws from a generator that the system seeded", RngRunReport, calls.unseeded_run),
    Rule("TM702", "a generator on another device", FailureReport, mismatches.rule_of("TM702"), "mismatch"),
    Rule("TM703", "random numbers that repeat", TraceReport, steps.same_numbers_again),
    Rule("TM703", "random numbers that repeat", RngRunReport, calls.seeded_again),
    Rule("TM704", "workers that draw the same", TraceReport, calls.same_in_every_worker, "observations"),
    Rule("TM801", "operands on different devices", FailureReport, mismatches.rule_of("TM801"), "mismatch"),
    Rule("TM802", "mismatching dtypes", FailureReport, mismatches.rule_of("TM802"), "mismatch"),
    Rule("TM803", "a synchronisation in every step", TraceReport, calls.waits_in_every_step, "observations"),
    Rule("TM804", "mismatching shapes", FailureReport, mismatches.rule_of("TM804"), "mismatch"),
    Rule("TM805", "a promotion to float64", TraceReport, calls.promoted_to_double, "observations"),
    Rule("TM806", "uint8 arithmetic that wrapped", TraceReport, meanings.wrapped, "observations"),
    Rule("TM807", "a class or an index that is not there", FailureReport, mismatches.rule_of("TM807"), "mismatch"),
    Rule("TM900", "ranks that left no report", RankReport, ranks.missing),
    Rule("TM901", "parameters that differ between ranks", RankReport, ranks.parameters_differ),
    Rule("TM902", "gradients that were not reduced", RankReport, ranks.gradients_not_reduced),
    Rule("TM903", "learning rates that differ between ranks", RankReport, ranks.rates_differ),
    Rule("TM904", "buffers that differ between ranks", RankReport, ranks.buffers_differ),
    Rule("TM905", "data that repeats between ranks or epochs", RankReport, ranks.same_inputs),
    Rule("TM905", "data that repeats between ranks or epochs", TraceReport, ranks.same_order, "training.same_order"),
    Rule("TM906", "collectives that do not match between ranks", RankReport, ranks.collectives_part),
    Rule("TM907", "NaN or infinity on some ranks only", RankReport, ranks.not_finite_on_some),
    Rule("TM908", "ranks that make different numbers of passes", RankReport, ranks.passes_differ),
    Rule("TM909", "the same random numbers on all ranks", RankReport, ranks.same_generators),
    Rule("TM910", "batches of different sizes on ranks", RankReport, ranks.uneven_batches),
    Rule("TM911", "an optimizer made before sharding", TraceReport, optimizers.made_before_sharding),
    Rule("TM912", "unexpected placements of a DTensor", RankReport, ranks.placements_differ),
    Rule("TM912", "unexpected placements of a DTensor", TraceReport, ranks.unexpected_placements, "parallel"),
    Rule("TM913", "clipped by the norm of a shard", RankReport, ranks.clipped_by_shard),
    Rule("TM914", "a rank that takes more memory", RankReport, ranks.memory_uneven),
    Rule("TM915", "a rank for which the others wait", RankReport, ranks.straggler),
    Rule("TM916", "tensor parallelism across machines", RankReport, ranks.mesh_across_hosts),
)
# fmt: on


def diagnose(report: Report) -> tuple[Finding, ...]:
    """Return every finding about ``report``, the most severe first, within a severity the likeliest (`likelihood`).

    What is found about the call that ended a run is found about the run, unless an error with the same code says more.
    """
    found = _found(report)
    if isinstance(report, TraceReport) and report.failure is not None:
        known = {finding.code for finding in found if finding.severity == "error"}
        found += [finding for finding in _found(report.failure) if finding.code not in known]
    return tuple(sorted(_of_one_cause(found), key=likelihood))


def _of_one_cause(found: list[Finding]) -> list[Finding]:
    """Return what was found, each cause once.

    A copy is no news where the reshape that made it mixes elements, nor that gradients explode where steps use scaled
    ones, nor what comes of a method that is not called; a freed graph that belongs to a weight which is no Parameter
    has that one's cure.
    """
    caused = {several_networks.CAUSED[one.subject.rpartition(".")[2]] for one in found if one.code == "TM627"}
    found = [one for one in found if one.code not in caused]
    mixed, scaled = {line_of(one) for one in found if one.code == "TM106"}, any(one.code == "TM625" for one in found)
    found = [one for one in found if one.code != "TM102" or line_of(one) not in mixed]
    found = [one for one in found if one.code != "TM404" or not scaled]
    cure = next((one for one in found if one.code == "TM603" and "made by" in one.evidence), None)
    if cure is None:
        return found
    return [replace(one, remedy=cure.remedy) if one.code == "TM304" else one for one in found]


def _found(report: Report) -> list[Finding]:
    return [with_fix(found, report) for rule in RULES if _concerns(rule, report) for found in rule.check(report)]


def with_fix(finding: Finding, report: Report) -> Finding:
    """Return the finding with its fix, where there is one that is certain."""
    line = text_of(finding.location)
    fix = FIXES.get(finding.code)
    if fix is None or finding.fix or not is_code(line):
        return finding
    made = fix(finding, report, line)
    return replace(finding, fix=made) if made and made != line and is_code(made) else finding


def _concerns(rule: Rule, report: Report) -> bool:
    """Return whether there is anything in a report that a rule is about."""
    if not isinstance(report, rule.reads) or rule.says not in getattr(report, "error", ""):
        return False
    return not rule.needs or any(_has(report, one.split(".")) for one in rule.needs.split(" or "))


def _has(report: Report, path: list[str]) -> bool:
    there: Any = report
    for name in path:
        there = there and getattr(there, name)
    return bool(there)
