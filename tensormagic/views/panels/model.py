"""A model as a tree (``%model``): a line a module, with what is known of it; columns that say nothing are left out."""

from __future__ import annotations

from tensormagic.reports import ModelReport, ModuleRow
from tensormagic.views.nodes import Cell, Column, Findings, Node, Panel, Words, clipped, filled, table_of
from tensormagic.words import count, listed, number_of_bytes, percent, plural, short_number, shortened, tuple_text

MOST = (400, 80)  # rows in a page, in a terminal
MOST_SHAPES = 2
NBSP = "\u00a0"  # a space that a page keeps
_SHAPES = {
    "forward": "Output: what each module returned when this forward ran.",
    "trace": "Output: what the last operation recorded in each module made, in the last traced run.",
}


def view(report: ModelReport) -> Panel:
    """Return the panel; below the title what takes how much memory, and where the shapes are from."""
    root = report.rows[0]

    def mode(row: ModuleRow) -> Cell:  # where it is another than that of the whole model
        return Words("train" if row.training else "eval", "warning") if row.training != root.training else ""

    columns = (*_COLUMNS, Column("mode", mode), Column("optimizer", lambda row: optimizer(row, report)))
    more = ("more module", "more modules")
    tree = filled(table_of(columns, report.rows, most=MOST, more=more, label="Modules"))
    body: list[Node] = [Findings(report.findings, report.gaps), tree]
    facts: list[Cell] = [shortened(root.type_name, 40), totals(root), "train mode" if root.training else "eval mode"]
    parts = {"parameters": report.parameter_bytes, "buffers": report.buffer_bytes,
             "gradients": report.gradient_bytes, "optimizer state": report.state_bytes}  # fmt: skip
    memory = ", ".join(f"{name} {number_of_bytes(nbytes)}" for name, nbytes in parts.items() if nbytes)
    second = [plural(report.modules, "module") + (f": {memory}" if memory else "")]
    if report.meta_bytes:
        second.append(f"on the meta device, which holds nothing: would take {number_of_bytes(report.meta_bytes)}")
    if unmade := [row.path for row in report.rows if row.unmade]:
        lazy = [path for path in unmade if not any(other.startswith(f"{path}.") for other in unmade)]
        second.append(f"made by the first forward: parameters of {listed(clipped(path, 40) for path in lazy)}")
    hint = f"For the shapes of outputs: `%model {clipped(report.model)}(x)`, with your own input."
    second.append(_SHAPES.get(report.shapes_from, hint))
    return Panel("model", "tensor", clipped(report.model), facts, body, f"The model {report.model}", second)


def name(row: ModuleRow) -> str:
    """Return what a module is called in the one around it, indented below that."""
    return NBSP * 2 * row.depth + shortened(row.path.rpartition(".")[2] if row.depth else row.path, 40)


def shapes(row: ModuleRow) -> str:
    """Return what a module made, and how often, where that was more than once."""
    more = f" +{len(row.shapes) - MOST_SHAPES}" if len(row.shapes) > MOST_SHAPES else ""
    times = f" \u00d7{count(row.calls)}" if row.calls > 1 else ""
    return ", ".join(map(tuple_text, row.shapes[:MOST_SHAPES])) + more + times


def parameters(row: ModuleRow) -> str:
    """Return how many there are, how many of them are frozen or tied, and whether a lazy module has to make some."""
    frozen = row.parameters - row.trainable
    if row.unmade:
        return f"{count(row.parameters)}, more not made yet" if row.parameters else "not made yet"
    tied = f", {count(row.shared)} shared with {listed((clipped(path, 40) for path in row.shared_with), most=1)}"
    tied = tied if row.shared else ""
    if not frozen:
        return count(row.parameters) + tied if row.parameters else ""
    return (f"{count(row.parameters)}, {count(frozen)} frozen" if row.trainable else f"{count(frozen)} frozen") + tied


def optimizer(row: ModuleRow, report: ModelReport) -> Cell:
    """Return which optimizers hold its parameters; where one holds some of the model, also that none holds these."""
    if not row.trainable or not report.optimizers:
        return ""
    if not row.optimized:
        return Words("none", "warning")
    names = ", ".join(clipped(name, 20) for name in row.optimizers)
    part = "" if row.optimized == row.trainable else f": {percent(row.optimized, row.trainable)}"
    return names + part.replace(" ", NBSP).replace(NBSP + "%", " %")


_COLUMNS = (
    Column("module", name, "name"),
    Column("class", lambda row: Words(shortened(row.type_name, 30), "code", row.details)),
    Column("output", shapes, "code"),
    Column("parameters", parameters, "number"),
    Column("memory", lambda row: number_of_bytes(row.nbytes) if row.nbytes else "", "number", in_terminal=False),
    Column("gradient", lambda row: "" if row.gradient is None else short_number(row.gradient), "number"),
    Column("update", lambda row: "" if row.update is None else short_number(row.update), "number"),
)


def totals(root: ModuleRow) -> str:
    """Return how many parameters there are, and how many of them are trained."""
    if root.unmade and not root.parameters:
        return "parameters not made yet"
    described = plural(root.parameters, "parameter") + (", more not made yet" if root.unmade else "")
    return described if root.trainable == root.parameters else f"{described}, {count(root.trainable)} trainable"
