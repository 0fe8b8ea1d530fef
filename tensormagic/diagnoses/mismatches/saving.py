"""Checkpoints and parameters: files that torch.load refuses, weights of another model, what a module cannot hold."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from tensormagic.diagnoses.lines import call_on, set_keyword, statement_of, text_of, under_no_grad, update_by_hand
from tensormagic.diagnoses.mismatches.call import Call, article, mismatch
from tensormagic.diagnoses.mismatches.table import Messages
from tensormagic.reports import Mismatch
from tensormagic.words import listed

says = Messages(globals())

# What puts a prefix before all names of a model that it wraps.
_WRAPPERS = {"module.": "nn.DataParallel or DistributedDataParallel", "_orig_mod.": "torch.compile"}
# What is no dictionary of weights: a file, or what has no state_dict or that of something else.
_FILES = ("pathlib.", "_io.", "tempfile.")
_NO_MODELS = ("torch.Tensor", "torch.nn.parameter.", "torch.optim.", "numpy.", "collections.")
# Under these names programs store the weights beside other things.
_WEIGHTS = ("model_state_dict", "state_dict", "model", "net", "model_state")


def _with_ways(rule: str, *ways: str) -> Mismatch:
    return replace(mismatch("argument", rule), maybe=tuple(filter(None, ways)))


def _load(call: Call, keyword: str, *, value: bool | str) -> str:
    """Return the call of torch.load with one more argument."""
    found = call_on(call.report.call, "load")
    if found is None or ast.unparse(found.func) not in {"torch.load", "load"}:
        return f"torch.load(…, {keyword}={value!r})"
    set_keyword(found, keyword, ast.Constant(value))
    return ast.unparse(found)


@says(r"Weights only load failed.*?GLOBAL (?P<name>[\w.]+)(?P<blocked> whose module \S+ is blocked)?")
def _of_objects(call: Call, name: str, blocked: str | None) -> Mismatch:
    if blocked:
        return _with_ways(f"Reading this file would call {name}: it is no checkpoint of weights, and may do harm.")
    what = "`float(x)` for a number of NumPy's" if name.startswith("numpy.") else "`net.state_dict()` instead"
    return _with_ways(
        f"The file holds {_an_object(name)} ({name}), and torch.load reads tensors, numbers, lists and dicts alone: "
        f"any other object can run code. Save {what}; read a file whole only if you trust it.",
        _load(call, "weights_only", value=False),
    )


def _an_object(name: str) -> str:
    return article(name.rpartition(".")[2])


@says(r"Attempting to deserialize object on (?:a )?(?P<device>[A-Z]+) device(?P<at> \d+)?")
def _of_another_device(call: Call, device: str, at: str | None) -> Mismatch:
    where = f"{device} device{at}, which is not here" if at else f"a {device} device, and torch finds none here"
    return _with_ways(
        f"The file was saved from {where}.",
        _load(call, "map_location", value="cpu"),
    )


# -- load_state_dict -------------------------------------------------------------------------------------------------


def _loaded(call: Call) -> tuple[str, str]:
    """Return the code of the model and of the weights that it was given."""
    found = call_on(call.report.call, "load_state_dict")
    if found is None or not isinstance(found.func, ast.Attribute):
        return "net", "state"
    given = [*found.args, *(one.value for one in found.keywords if one.arg == "state_dict")]
    return ast.unparse(found.func.value), ast.unparse(given[0]) if given else "state"


@says(r"Expected state_dict to be dict-like, got <class '(?P<kind>[\w.]+)'>")
def _of_no_dict(call: Call, kind: str) -> Mismatch:
    model, given = _loaded(call)
    way = f"{given}.state_dict()" if "." in kind and not kind.startswith(_NO_MODELS) else ""
    way = f"torch.load({given})" if kind == "str" or kind.startswith(_FILES) else way
    return _with_ways(
        f"A model loads a dictionary of its weights, not {_an_object(kind)}.",
        f"{model}.load_state_dict({way})" if way else "",
    )


says.table(r"""
Error\(s\) in loading state_dict for (?P<model>\w+).*?size mismatch for (?P<name>\S+): copying a param with shape \
torch\.Size\(\[{saved:shape}\]\) from checkpoint, the shape in current model is torch\.Size\(\[{own:shape}\]\)
    with there: sizes(saved) if saved else "a single number"; with here: sizes(own) if own else "a single number"
    with others: call.error.count("size mismatch for ") - 1
    with rest: f", and {plural(others, 'other parameter')} as well" if others else ""
    argument: The checkpoint is from a {model} with other sizes: {name} is {there} there and {here} here{rest}.
""")


@says(r"Error\(s\) in loading state_dict for (?P<model>\w+)")
def _of_other_names(call: Call, model: str) -> Mismatch | None:
    missing, unexpected = _keys(call.error, "Missing"), _keys(call.error, "Unexpected")
    owner, given = _loaded(call)
    for prefix, wrapper in _WRAPPERS.items():
        if unexpected and _are(missing, unexpected, prefix):
            return _with_ways(
                f"All names in the checkpoint begin with `{prefix}`: it was saved from a model in {wrapper}.",
                f'{owner}.load_state_dict({{name.removeprefix("{prefix}"): value for name, value in {given}.items()}})',
            )
        if missing and _are(unexpected, missing, prefix):
            inner = f"{owner}.{prefix[:-1]}"
            return _with_ways(
                f"The model is in {wrapper}, which puts `{prefix}` before all names, and the checkpoint is not: load "
                f"it into `{inner}`.",
                f"{inner}.load_state_dict({given})",
            )
    if key := next((name for name in _WEIGHTS if name in unexpected), ""):
        return _with_ways(
            f"The checkpoint holds more than weights, {listed(list(unexpected))}: the model's are under {key!r}.",
            f"{owner}.load_state_dict({given}[{key!r}])",
        )
    names, where = (missing, "not in it") if missing else (unexpected, "in it and in no layer")
    if not names:
        return None
    rest = f", and {len(names) - 1} more" if len(names) > 1 else ""
    return mismatch("argument", f"The checkpoint must have the names of the {model}: {names[0]} is {where}{rest}.")


def _are(names: tuple[str, ...], prefixed: tuple[str, ...], prefix: str) -> bool:
    """Return whether names are those others without a prefix; that torch misses no count of batches has no meaning."""
    differ = set(names) ^ {name.removeprefix(prefix) for name in prefixed}
    return prefixed[0].startswith(prefix) and all(name.endswith("num_batches_tracked") for name in differ)


def _keys(message: str, which: str) -> tuple[str, ...]:
    found = re.search(rf"{which} key\(s\) in state_dict: (.*?)\. ", message, re.DOTALL)
    return tuple(re.findall(r'"(.*?)"', found[1])) if found is not None else ()


# -- modules ---------------------------------------------------------------------------------------------------------


@says(r"cannot assign '(?P<kind>.*?)' as parameter '(?P<name>\w+)' \(torch.nn.Parameter or None expected\)")
def _of_a_plain_tensor(call: Call, kind: str, name: str) -> Mismatch:
    if not kind.endswith("Tensor"):
        return _with_ways(f"The place of the parameter {name} is for an nn.Parameter or None, not {_an_object(kind)}.")
    text = text_of(call.report.location)
    line, update, way = statement_of(text), update_by_hand(text, of_leaf=True), ""
    if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Attribute) and len(line.targets) == 1:
        way = f"{ast.unparse(line.targets[0])} = nn.Parameter({ast.unparse(line.value)})"
    way = under_no_grad(update.in_place) if update and way else way
    return _with_ways(f"A plain tensor cannot take the place of the parameter {name}.", way)


says.table(r"""
Module \[(?P<model>ModuleList|ModuleDict)\] is missing the required "forward" function
    argument: A {model} holds layers and does not call them: call them one by one, or put them in an nn.Sequential.

Module \[(?P<model>\w+)\] is missing the required "forward" function
    argument: A module is called through its method forward, and {model} has none: look at its name and its indentation.

^(?P<kind>\w+) is not an Optimizer
    argument: A scheduler takes the optimizer whose learning rate it changes, not {article(kind)}.
""")
