"""Checkpoints and parameters: files that torch.load refuses, weights of another model, what a module cannot hold."""

from __future__ import annotations

import ast
import re
from pickletools import opcodes

from tensormagic.diagnoses.lines import call_on, statement_of, text_of, under_no_grad, update_by_hand
from tensormagic.diagnoses.mismatches.call import Call, mismatch
from tensormagic.diagnoses.mismatches.table import Messages
from tensormagic.reports import Mismatch
from tensormagic.words import article, listed

says = Messages(globals())

# What puts a prefix before all names of a model that it wraps.
_WRAPPERS = {"module.": "nn.DataParallel or DistributedDataParallel", "_orig_mod.": "torch.compile"}
# What is not a dictionary of weights: a file, or what has no state_dict or that of something else.
FILES = ("pathlib.", "_io.", "tempfile.")
NO_MODELS = ("torch.Tensor", "torch.nn.parameter.", "torch.optim.", "numpy.", "collections.")
# Under these names programs store the weights beside other things.
_WEIGHTS = ("model_state_dict", "state_dict", "model", "net", "model_state")


says.table(r"""
# -- files that are no checkpoints, or not as they were saved

PytorchStreamReader failed.*finding central directory|Ran out of input|^$
    if: reads_a_file(call) and (call.error or call.report.error_type == "EOFError")
    argument: The file is empty, or only the beginning of one: it was saved or copied in part.

PytorchStreamReader failed reading|^\d+$|invalid load key, '.|Weights only load failed.*?Unsupported operand {got}
    if: reads_a_file(call) and not (got and is_opcode(got))
    argument: The file is not a checkpoint, or is damaged: look at how it begins. A page of a website and a pointer of
        Git LFS are text.

Weights only load failed.*?Unsupported operand 149\b
    argument: The file holds a pickle of protocol 4 or later, and torch.load only reads protocol 2 unless
        weights_only=False. What pickle.dump wrote is read by pickle.load, if you trust it.

file in archive is not in a subdirectory|failed locating file data\.pkl
    argument: The file is a zip archive, but not one that torch.save wrote: there is no data.pkl in a folder of it.

failed locating file constants\.pkl
    argument: The file was not written by torch.jit.save: a checkpoint is read with torch.load.
    maybe: {call.report.call.replace(".jit.", ".")} when call.report.call.startswith("torch.jit.load(")

Cannot use ``weights_only=True`` with TorchScript archives
    argument: The file is a model that torch.jit.save wrote, not a checkpoint.
    maybe: {call.report.call.replace("torch.", "torch.jit.", 1)} when call.report.call.startswith("torch.load(")

Can't get attribute '(?P<name>\w+)' on <module '(?P<module>[\w.]+)'|module '(?P<home>[\w.]+)' has no attribute \
'(?P<gone>\w+)'$
    if: reads_a_file(call)
    with named: name or gone; with here: module or home
    argument: The file names {named} of {here}, which has none: define or import it there before. A file of
        net.state_dict() needs no class.

Can't (?:pickle|get) local object '(?P<name>[^']+)'|Can't pickle local object <(?:function|class) '?(?P<local>[^'\s]+)\
|Can't pickle <function (?P<other>\S+) at \w+>: (?:attribute|it's not found)
    with path: name or local or other
    with what: "a lambda" if "<lambda>" in path else path.rpartition(".")[2]
    with rest: ", or save net.state_dict()" if reads_a_file(call, "save") else ""
    argument: Files and other processes refer to functions and classes by name, and {what} cannot be found that way:
        define it with def or class at the top of a module{rest}.

Parent directory (?P<folder>.+?) does not exist
    argument: There is no folder {folder} to save to.
    maybe: os.makedirs({folder!r}, exist_ok=True)

mmap can only be used with files saved with
    argument: The file has the format of torch before 1.6, which cannot be mapped: leave out mmap=True.

Weights only load failed.*?GLOBAL (?P<name>[\w.]+) whose module \S+ is blocked
    argument: Reading this file would call {name}: it is not a checkpoint of weights, and may do harm.

Weights only load failed.*?GLOBAL (?P<name>[\w.]+)
    with what: "`float(x)` for a number of NumPy's" if name.startswith("numpy.") else "`net.state_dict()` instead"
    argument: The file holds {an_object(name)} ({name}), and torch.load reads tensors, numbers, lists and dicts alone:
        any other object can run code. Save {what}; read a file whole only if you trust it.
    with own: not name.startswith(("numpy.", "torch.", "builtins.")); with code: name.removeprefix("__main__.")
    maybe: torch.serialization.add_safe_globals([{code}]) when own
    maybe: {call.with_keyword("torch.load", "weights_only", False)}

Attempting to deserialize object on (?:a )?(?P<device>[A-Z]+) device(?P<at> \d+)?
    with where: f"{device} device{at}, which is not here" if at else f"a {device} device, and torch finds none here"
    argument: The file was saved from {where}.
    maybe: {call.with_keyword("torch.load", "map_location", "cpu")}
""")


def an_object(name: str) -> str:
    """Return the class of an object as a sentence has it, without its module: ``a Linear``."""
    return article(name.rpartition(".")[2])


def is_opcode(byte: int) -> bool:
    """Return whether a pickle can hold this byte where an instruction is expected."""
    return any(each.code == chr(byte) for each in opcodes)


def reads_a_file(call: Call, name: str = "load") -> bool:
    """Return whether it was ``torch.load`` that was called, or ``torch.save``."""
    return call.report.function == f"torch.{name}"


# -- load_state_dict -------------------------------------------------------------------------------------------------


def loaded(call: Call) -> tuple[str, str]:
    """Return the code of the model and of the weights that it was given."""
    found = call_on(call.report.call, "load_state_dict")
    if found is None or not isinstance(found.func, ast.Attribute):
        return "net", "state"
    given = [*found.args, *(one.value for one in found.keywords if one.arg == "state_dict")]
    return ast.unparse(found.func.value), ast.unparse(given[0]) if given else "state"


says.table(r"""
Expected state_dict to be dict-like, got <class '(?P<kind>[\w.]+)'>
    with names: loaded(call)
    argument: A model loads a dictionary of its weights, not {an_object(kind)}.
    with file: kind == "str" or kind.startswith(FILES); with own: "." in kind and not kind.startswith(NO_MODELS)
    maybe: {names[0]}.load_state_dict(torch.load({names[1]})) when file
    maybe: {names[0]}.load_state_dict({names[1]}.state_dict()) when own and not file
    maybe: {names[0]}.load_state_dict({names[1]}()) when kind == "method"

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
    owner, given = loaded(call)
    if prefix := _prefix(missing, unexpected):
        rule = f"The names in the checkpoint that do not fit begin with `{prefix}`, and the model's do not."
        if prefix in _WRAPPERS:
            wrapper = f"it was saved from a model in {_WRAPPERS[prefix]}"
            rule = f"All names in the checkpoint begin with `{prefix}`: {wrapper}."
        bare = f'{{name.removeprefix("{prefix}"): value for name, value in {given}.items()}}'
        return mismatch("argument", rule, maybe=[f"{owner}.load_state_dict({bare})"])
    if prefix := _prefix(unexpected, missing):
        if prefix in _WRAPPERS:
            inner, wrapper = f"{owner}.{prefix[:-1]}", f"is in {_WRAPPERS[prefix]}, which puts"
            rule = f"The model {wrapper} `{prefix}` before all names, and the checkpoint is not: load into `{inner}`."
            return mismatch("argument", rule, maybe=[f"{inner}.load_state_dict({given})"])
        rule = f"The names in the checkpoint that do not fit are in the model with `{prefix}` before them."
        named = f'name if name in {owner}.state_dict() else "{prefix}" + name'
        loaded_so = f"{owner}.load_state_dict({{{named}: value for name, value in {given}.items()}})"
        return mismatch("argument", rule, maybe=[loaded_so])
    if key := next((name for name in _WEIGHTS if name in unexpected), ""):
        rule = f"The checkpoint holds more than weights, {listed(list(unexpected))}: the model's are under {key!r}."
        return mismatch("argument", rule, maybe=[f"{owner}.load_state_dict({given}[{key!r}])"])
    names, where = (missing, "not in it") if missing else (unexpected, "in it and in no layer")
    if not names:
        return None
    rest = f", and {len(names) - 1} more" if len(names) > 1 else ""
    return mismatch("argument", f"The checkpoint must have the names of the {model}: {names[0]} is {where}{rest}.")


def _prefix(names: tuple[str, ...], others: tuple[str, ...]) -> str:
    """Return what others have before names that are the same without it; empty where there is no such prefix.

    That torch misses no count of batches has no meaning.
    """
    same = max((name for name in names if others and others[0].endswith(f".{name}")), key=len, default="")
    prefix = others[0].removesuffix(same) if same else ""
    differ = set(names) ^ {name.removeprefix(prefix) for name in others}
    return prefix if all(name.endswith("num_batches_tracked") for name in differ) else ""


def _keys(message: str, which: str) -> tuple[str, ...]:
    found = re.search(rf"{which} key\(s\) in state_dict: (.*?)\. ", message, re.DOTALL)
    return tuple(re.findall(r'"(.*?)"', found[1])) if found is not None else ()


# -- modules ---------------------------------------------------------------------------------------------------------


@says(r"cannot assign '(?P<kind>.*?)' as parameter '(?P<name>\w+)' \(torch.nn.Parameter or None expected\)")
def _of_a_plain_tensor(call: Call, kind: str, name: str) -> Mismatch:
    if not kind.endswith("Tensor"):
        rule = f"The place of the parameter {name} is for an nn.Parameter or None, not {an_object(kind)}."
        return mismatch("argument", rule)
    text = text_of(call.report.location)
    line, update, way = statement_of(text), update_by_hand(text, of_leaf=True), ""
    if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Attribute) and len(line.targets) == 1:
        way = f"{ast.unparse(line.targets[0])} = nn.Parameter({ast.unparse(line.value)})"
    way = under_no_grad(update.in_place) if update and way else way
    return mismatch("argument", f"A plain tensor cannot take the place of the parameter {name}.", maybe=[way])


says.table(r"""
Module \[(?P<model>ModuleList|ModuleDict)\] is missing the required "forward" function
    argument: A {model} holds layers and does not call them: call them one by one, or put them in an nn.Sequential.

^list is not a Module subclass
    argument: An nn.Sequential takes its layers one by one, not in a list: unpack the list with *.

^torch\.nn\.functional\.(?P<name>\w+) is not a Module subclass
    argument: An nn.Sequential holds modules, and F.{name} is a function: torch.nn has a module for most of these.

^(?!torch\.\w*Tensor )[\w.]+\.(?P<name>[A-Z]\w+) is not a Module subclass
    argument: An nn.Sequential holds modules, and {name} is a class: create an instance, {name}(…).

Module \[(?P<model>\w+)\] is missing the required "forward" function
    argument: A module is called through its method forward, and {model} has none: look at its name and its indentation.

""")
