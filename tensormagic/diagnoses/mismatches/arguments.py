"""Arguments that are no tensors, or not what the call takes: wrong classes, several results, values out of range.

Also what torch says of operands that Python did not keep, where the message itself tells whose number is whose.
"""

from __future__ import annotations

import ast
import re
from math import prod
from typing import Annotated

from tensormagic.diagnoses.mismatches.call import (
    Call,
    First,
    Given,
    Messages,
    argument,
    article,
    mismatch,
    needed,
    whole,
)
from tensormagic.diagnoses.mismatches.dtypes import dtype_of
from tensormagic.reports import Mismatch
from tensormagic.words import count, listed, plural

says = Messages()


def _the_only_one(call: Call) -> Given | None:
    return call.tensors[0] if len(call.tensors) == 1 else call.tensor("input|self", 0)


def _first_given(call: Call) -> Given | None:
    return call.given[0] if call.given else None


def _called(call: Call) -> str:
    return call.title.replace("torch.nn.functional.", "F.")


Single = Annotated[Given, _the_only_one]
FirstGiven = Annotated[Given, _first_given]


# -- what is no tensor at all: several results, None in place of a gradient, a module, text, a table ---------------

_PAIR = ("values", "indices")
# What several results of one call are called.
_RESULTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("max", "min", "median", "nanmedian", "mode", "sort"), _PAIR),
    **dict.fromkeys(("topk", "kthvalue", "cummax", "cummin"), _PAIR),
    "aminmax": ("min", "max"), "slogdet": ("sign", "logabsdet"), "eigh": ("eigenvalues", "eigenvectors"),
    "eig": ("eigenvalues", "eigenvectors"), "svd": ("U", "S", "Vh"), "qr": ("Q", "R"),
    "frexp": ("mantissa", "exponent"),
    "lstsq": ("solution", "residuals", "rank", "singular_values"),
}  # fmt: skip
_RESULT_TYPE = re.compile(r"torch\.return_types\.(?:linalg_)?(\w+?)(?:\(|\b)")


@says(r"torch\.return_types\.(?:linalg_)?(\w+)|can only concatenate tuple")
def _several_results(call: Call, kind: str) -> Mismatch | None:
    pairs = ((one, _fields_of(one)) for one in call.given if not (one.operand.is_tensor and one.operand.dtype))
    given, fields = next(((one, fields) for one, fields in pairs if fields), (None, _RESULTS.get(kind, ())))
    if not fields:
        return None
    what = given.name if given is not None else "one of what it was given"
    names = ", ".join(fields)
    rule = (
        f"The call takes one tensor, but {what} holds {plural(len(fields), 'result')}, ({names}): select one of them."
    )
    if given is None:
        return mismatch("argument", rule)
    return mismatch("argument", rule, whole(given, f"({names})", "Tensor"), works=[f"{given.code}.{fields[0]}"])


def _fields_of(given: Given) -> tuple[str, ...]:
    """Return the names of the results that an operand is: by its class, or by the call that it is the result of."""
    kind = _RESULT_TYPE.match(given.operand.text)
    if kind:
        return _RESULTS.get(kind[1], ())
    try:
        body = ast.parse(given.code, mode="eval").body
    except (SyntaxError, ValueError):
        return ()
    method = body.func if isinstance(body, ast.Call) else None
    return _RESULTS.get(method.attr, ()) if isinstance(method, ast.Attribute) else ()


@says(r"'NoneType'|not NoneType")
def _no_gradient(call: Call) -> Mismatch:
    """Explain an operator that was given None for a ``.grad``."""
    nothing = (one for one in call.given if one.operand.text == "None")
    given = needed(next((one for one in nothing if one.name.endswith(".grad")), None))
    leaf = given.name.removesuffix(".grad")
    brought = f"No backward has given {leaf} a gradient since it was made or cleared"
    rule = f"{brought}: {given.name} is None."
    return mismatch("argument", rule, whole(given, "None", "Tensor"), works=[f"%why {leaf}"])


@says(r"'tuple' object has no attribute '(\w+)'")
def _parts_of_a_tuple(call: Call, attribute: str) -> Mismatch | None:
    """Explain a recurrent layer's result, its output and its state, that is taken for a tensor."""
    parts = [one for one in call.given if one.operand.place]
    name = parts[0].name.removesuffix("[0]") if parts else ""
    if not name or name == parts[0].name:
        return None
    rule = f"The tuple {name} holds {plural(len(parts), 'part')} and has no {attribute} itself: select one part."
    return mismatch("argument", rule, *map(whole, parts), works=[f"{name}[0].{attribute}"])


@says(r"'(\w+)' object has no attribute '\w+'")
def _no_such_attribute(call: Call, kind: str) -> Mismatch | None:
    """Explain that a function of torch's takes what it is given for a tensor."""
    roles = {"", "self", "input", "target", "other"}
    given = [one for one in call.given if not one.operand.is_tensor and one.operand.text and one.operand.role in roles]
    if not call.report.function or len(given) != 1:
        return None
    wrong, operand = given[0], given[0].operand
    what = operand.name or operand.text
    rule = (
        f"The argument {operand.role or wrong.name} of {_called(call)} must be a tensor, and {what} is {article(kind)}."
    )
    works = [f"torch.as_tensor({what})"] if kind in {"int", "float", "list", "ndarray"} else []
    return mismatch("argument", rule, whole(wrong, kind, "Tensor"), works=works)


@says(r"can't convert np\.ndarray of type numpy\.(\w+)")
def _not_of_numbers(call: Call, given: FirstGiven | None, dtype: str) -> Mismatch:
    what, dtype = ("text" if "str" in dtype else "Python objects"), dtype.strip("_")
    rule = f"A tensor holds numbers of one dtype, and this array holds {what} (dtype {dtype})."
    if given is None:
        return mismatch("argument", rule)
    works = [f'{call.report.function or "torch.tensor"}({given.code}.astype("float32"))']
    return mismatch("argument", rule, whole(given, dtype, "a dtype of numbers"), works=works)


@says(
    r"(?:determine the shape of object type|infer dtype of) '?(?P<kind>\w+)'?", r"too many dimensions '(?P<kind>str)'"
)
def _no_data(call: Call, given: FirstGiven | None, kind: str) -> Mismatch:
    kind = kind.replace("NoneType", "None")
    if kind == "str":
        return mismatch("argument", "A tensor holds numbers, not text: convert words or classes to numbers first.")
    what = kind if kind == "None" else article(kind)
    rule = f"The function {_called(call)} takes numbers, nested lists of numbers, and arrays, not {what}."
    if given is None:
        return mismatch("argument", rule)
    works = [f"{call.title}({given.code}.to_numpy())"] if kind in {"DataFrame", "Series", "Index"} else []
    return mismatch("argument", rule, whole(given, kind, "numbers"), works=works)


@says(r"(\w+)\.forward\(\) takes (?:from \d+ to )?(\d+) positional arguments? but (\d+) (?:was|were) given")
def _too_many_arguments(call: Call, layer: str, takes: int, got: int) -> Mismatch:
    layer = call.report.module.strip("()") or layer
    verb = "was" if got == 2 else "were"
    rule = f"The forward of {layer} takes {plural(takes - 1, 'argument')}, and {got - 1} {verb} given."
    return mismatch("argument", rule)


@says(r"(\w+)\.forward\(\) missing \d+ required positional arguments?: (.+)")
def _missing_arguments(call: Call, layer: str, names: str) -> Mismatch:
    needed = listed(re.findall(r"'(\w+)'", names))
    return mismatch("argument", f"The forward of {call.report.module.strip('()') or layer} also needs {needed}.")


@says(r"'(\w+)' object is not iterable")
def _parameters_of_a_module(call: Call, given: FirstGiven, kind: str) -> Mismatch | None:
    if not call.report.function.startswith("torch.optim."):
        return None
    named = given.operand.name
    rule = f"An optimizer takes parameters, and {named or 'what it was given'} is {article(kind)}."
    return mismatch("argument", rule, whole(given, kind), works=[f"{given.code}.parameters()"] if named else [])


@says(r"optimizer got an empty parameter list")
def _no_parameters(call: Call) -> Mismatch:
    rule = (
        "There is no parameter to train. A generator such as net.parameters() is empty after its first use, and a "
        "module does not register layers in a plain list."
    )
    return mismatch("argument", rule, *(whole(one) for one in call.given[:1]))


@says(r"embed_dim must be divisible by num_heads")
def _heads(call: Call) -> Mismatch | None:
    found = {one.operand.role: one for one in call.given if one.operand.text.isdigit()}
    if not {"embed_dim", "num_heads"} <= found.keys():
        return None
    width, heads = int(found["embed_dim"].operand.text), int(found["num_heads"].operand.text)
    fitting = min((n for n in range(1, width + 1) if width % n == 0), key=lambda n: (abs(n - heads), n))
    rule = f"The heads share embed_dim among them: {width} is not divisible by {heads}."
    return mismatch("argument", rule, whole(found["num_heads"], heads), works=[f"num_heads={fitting}"])


_CONSTRAINTS = {
    "GreaterThan": "be greater than", "GreaterThanEq": "be at least", "LessThan": "be less than",
    "Simplex": "be probabilities: none negative, together 1", "PositiveDefinite": "be positive-definite",
    "_GreaterThan": "be greater than", "_Simplex": "be probabilities: none negative, together 1",
}  # fmt: skip


@says(
    r"Expected parameter (\w+) \(.*?\) of distribution (\w+)\(.* to satisfy the constraint (.+?), "
    r"but found invalid values:\s*(.*)"
)
def _out_of_support(call: Call, name: str, distribution: str, constraint: str, values: str) -> Mismatch:
    given = argument(name)(call)
    must = _CONSTRAINTS.get(constraint.split("(", maxsplit=1)[0], "be in the distribution's domain")
    bound = re.search(r"bound=(-?[\d.]+)", constraint)
    must = f"{must} {float(bound[1]):g}" if bound else must
    rule = f"The parameter {name} of {distribution} must {must}."
    if "nan" in values:
        rule = f"The parameter {name} of {distribution} holds NaN: what computed it went wrong before this line."
    return mismatch("argument", rule, *([whole(given)] if given is not None else []))


# -- operands that Python did not keep -----------------------------------------------------------------------------


@says(r"Boolean value of Tensor with more than one value is ambiguous")
def _truth_of_what_is_gone(call: Call, given: FirstGiven) -> Mismatch | None:
    if len(call.given) != 1 or call.tensors or "`" not in given.name:
        return None
    rule = "A condition needs one truth value, and this one has several: use .all() or .any()."
    return mismatch("shape", rule, whole(given), works=[f"{given.code}.any()", f"{given.code}.all()"])


@says(r"expected m1 and m2 to have the same dtype, but got: ([\w:<> ]+?) != ([\w:<> ]+?)\s*$")
def _dtypes_of_what_is_gone(call: Call, one: str, other: str) -> Mismatch | None:
    left, right = call.given[0], call.given[1]
    if any(given.dtype or given.operand.text for given in (left, right)):
        return None
    kinds = [dtype_of(name) for name in (one, other)]
    rule = f"Both must have the same dtype: {left.name} is {kinds[0]} and {right.name} is {kinds[1]}."
    parts = (whole(left, kinds[0], kinds[1]), whole(right, kinds[1], kinds[0]))
    wide = [one for one, kind in zip((left, right), kinds, strict=True) if kind in {"float64", "int64", "int32"}]
    works = [f"{wide[0].code}.float()"] if wide and "float32" in kinds else []
    return mismatch("dtype", rule, *parts, works=works)


@says(r"could not infer output dtype\..* Got: (\w+)")
def _mean_of_what_is_gone(given: FirstGiven, got: str) -> Mismatch | None:
    if given.dtype:
        return None
    kind = dtype_of(got)
    rule = f"A mean is a floating-point number: {given.name} is {kind}."
    return mismatch("dtype", rule, whole(given, kind, "float32"), works=[f"{given.code}.float().mean()"])


# -- what the call does not take -----------------------------------------------------------------------------------


@says(r"only integers, slices .* are valid indices \(got (\w+)\)")
def _no_index(call: Call, kind: str) -> Mismatch:
    wrong = [whole(one, kind, "int64") for one in call.given if one.position == 1]
    rule = (
        f"An index is a whole number, a slice, None, ... or a tensor of whole numbers or booleans, not {article(kind)}."
    )
    return mismatch("index", rule, *wrong[:1])


@says(r"Torch not compiled with CUDA enabled|No CUDA GPUs are available|Found no NVIDIA driver")
def _no_gpu() -> Mismatch:
    rule = "Torch finds no GPU that it can use: torch.cuda.is_available() is False."
    return mismatch("argument", rule, works=['device = "cuda" if torch.cuda.is_available() else "cpu"'])


_SHAPE = r"torch\.Size\(\[(.*?)\]\)"
_SIZE_MISMATCH = re.compile(
    rf"size mismatch for (\S+): copying a param with shape {_SHAPE} from checkpoint, "
    rf"the shape in current model is {_SHAPE}"
)


@says(r"Error\(s\) in loading state_dict for (\w+)")
def _checkpoint(call: Call, model: str) -> Mismatch | None:
    sizes_differ = _SIZE_MISMATCH.findall(call.error)
    if sizes_differ:
        name, *shapes = sizes_differ[0]
        there, here = (shape.replace(", ", " × ") or "a single number" for shape in shapes)
        rest = f", and {plural(len(sizes_differ) - 1, 'other parameter')} as well" if len(sizes_differ) > 1 else ""
        return mismatch(
            "argument",
            f"The checkpoint is from a {model} with other sizes: {name} is {there} there and {here} here{rest}.",
        )
    patterns = (rf"{word} key\(s\) in state_dict: (.*?)\.\s" for word in ("Missing", "Unexpected"))
    names = [keys for pattern in patterns for keys in re.findall(pattern, call.error)]
    if not names:
        return None
    first = names[0].partition(",")[0].strip().strip('"')
    where = "not in it" if "Missing" in call.error else "in it and in no layer"
    rule = f"The checkpoint must have the names of the {model}: {first} is {where}."
    if "module." in "".join(names):
        rule += " If all its names begin with module., it was saved from nn.DataParallel: remove that prefix."
    return mismatch("argument", rule)


@says(r"implemented for strided tensors only, got: torch\.(\w+)")
def _asked_layout(call: Call, asked: Annotated[Given, argument("layout")], layout: str) -> Mismatch:
    rule = f"The call {call.title} only makes strided tensors, but layout=torch.{layout} was requested."
    return mismatch("layout", rule, whole(asked, layout, "strided"))


@says(r"unsupported tensor layout: \w+|with arguments from the 'Sparse\w+' backend|for \w+ with Sparse\w+ layout")
def _not_for_layout(call: Call) -> Mismatch:
    given = call.first(lambda one: one.operand.layout.startswith("sparse"))
    layout = given.operand.layout
    rule = f"Not every operation supports every layout: there is no {call.title} for {given.name}, which is {layout}."
    return mismatch("layout", rule, whole(given, layout, "strided"), works=[f"{given.code}.to_dense()"])


@says(r"got an unexpected keyword argument '(\w+)'")
def _no_keyword(call: Call, name: str) -> Mismatch | None:
    wrong = argument(name)(call)
    rule = f"The function {_called(call)} has no argument `{name}`."
    return mismatch("argument", rule, whole(wrong)) if wrong is not None else None


@says(r"Unrecognised padding mode (\w+)")
def _padding_mode(wrong: Annotated[Given, argument("mode")], mode: str) -> Mismatch:
    numpys = "; NumPy's edge is called replicate here" if mode == "edge" else ""
    rule = f"The padding modes are constant, reflect, replicate and circular, not {mode}{numpys}."
    return mismatch("argument", rule, whole(wrong))


@says(r"unsupported operation: (more than one element of the written-to)?.*single memory location")
def _overlapping(call: Call, first: First | None, several: str) -> Mismatch | None:
    outs = (one for one in call.given if one.operand.role == "out" or one.operand.place.startswith("out"))
    target = next(outs, first)
    if target is None or not target.operand.is_tensor:
        return None
    rule = f"A result needs its own memory: {target.name} shares some with what is read."
    if several:
        rule = (
            f"A result needs separate memory for each element: several elements of {target.name} share one place "
            "in memory."
        )
    return mismatch("layout", rule, whole(target), works=[f"{target.code}.clone()"])


@says(r"(\w+)\(\): argument '(\w+)' \(position (\d+)\) must be ([\w ]+?), not ([\w.]+)")
def _must_be(call: Call, found: re.Match[str]) -> Mismatch:
    function, name, position, wanted, got = found.groups()
    at = (one for one in call.given if one.position == int(position) - 1)
    given = argument(name)(call) or next(at, None)
    parts = [whole(given, got, wanted)] if given is not None else []
    rule = f"The argument {name} of {function}() must be a {wanted}, not {article(got)}."
    return mismatch("argument", rule, *parts, works=_made(given, wanted, got))


def _made(given: Given | None, wanted: str, got: str) -> list[str]:
    text = (given.operand.name or given.operand.text) if given is not None else ""
    if given is not None and got == "tuple" and given.operand.is_tensor and text.endswith("[0]"):
        return [text]
    if wanted == "Tensor" and got in {"int", "float", "list", "tuple", "bool", "numpy.ndarray"} and text:
        return [f"torch.as_tensor({text})"]
    return [f"[{text}, …]"] if wanted == "tuple of Tensors" and got == "Tensor" and text else []


@says(r"(\w+)\(\) received an invalid combination of arguments - got \((.*?)\), but expected")
def _no_such_call(call: Call, function: str, given: str) -> Mismatch:
    forms = re.findall(r"^ \* \((.*?)\)\s*$", call.error, re.MULTILINE)
    forms = forms or re.findall(r"but expected \((.*)\)", call.error)[:1]
    parts = (form.split(", *", maxsplit=1)[0].removeprefix("*, ").split(", ") for form in forms[:2])
    needed_ones = (", ".join(part for part in each if " = " not in part) for each in parts)  # the rest has defaults
    shown = " or ".join(dict.fromkeys(f"{function}({each})" for each in needed_ones))
    rule = f"The function {function}() takes no ({given})" + (f"; it is called as {shown}." if shown else ".")
    return mismatch("argument", rule, *(whole(one) for one in call.given if not one.operand.is_tensor))


@says(r"expected Tensor as element (\d+) in argument \d+, but got ([\w.]+)")
def _not_a_tensor(call: Call, number: str, kind: str) -> Mismatch:
    kind = kind.rpartition(".")[2]
    rule = f"All members of the list must be tensors, and the one at {number} is {article(kind)}."
    member = [whole(one, kind, "Tensor") for one in call.given if one.operand.place.endswith(f"[{number}]")]
    return mismatch("argument", rule, *member[:1])


@says(r"unsupported operand type\(s\) for (\S+): '(\w+)' and '(\w+)'")
def _unsupported_operands(call: Call, sign: str, left: str, right: str) -> Mismatch | None:
    wrong = next((one for one in call.given if not one.operand.is_tensor), None)
    at = int(left == "Tensor")
    if "Tensor" not in {left, right}:  # a Parameter goes by the name of its class
        if not call.tensors or wrong is None or wrong.position > 1:
            return None
        at = wrong.position
    other = (left, right)[at]
    what = "None (a function without return?)" if other == "NoneType" else article(other)
    rule = f"The operator {sign} combines a tensor with a tensor or a number, not with {what}."
    return mismatch("argument", rule, *([whole(wrong, other, "Tensor")] if wrong is not None else []))


@says(r"expected a non-empty list of Tensors|expects a non-empty TensorList|non-empty input tensor list")
def _needs_members() -> Mismatch:
    return mismatch("argument", "The list of tensors must hold at least one, but is empty.")


@says(r"a Tensor with \d+ elements cannot be converted to Scalar|only one element tensors can be converted")
def _one_element(given: Single) -> Mismatch:
    elements = prod(given.shape)
    rule = f"The conversion to one number takes one element: {given.sized} has {count(elements)}."
    works = [f"{given.code}.tolist()", f"{given.code}.mean().item()"]
    return mismatch("shape", rule, whole(given, f"{elements} elements", "1 element"), works=works)


@says(r"Boolean value of Tensor with (?:more than one|no) values? is ambiguous")
def _truth(given: Single) -> Mismatch:
    elements = prod(given.shape)
    rule = f"A condition needs one truth value: {given.sized} has {count(elements)}; use .all() or .any()."
    works = [f"{given.code}.any()", f"{given.code}.all()"]
    return mismatch("shape", rule, whole(given, f"{elements} elements", "1 element"), works=works)


@says(r"Can't call numpy\(\) on Tensor that requires grad")
def _has_graph(given: First) -> Mismatch:
    rule = f"NumPy does not support gradients, but {given.name} requires them: detach it from the graph first."
    return mismatch("argument", rule, whole(given, "requires_grad=True"), works=[f"{given.code}.detach().numpy()"])


@says(r"At least one of 'min' or 'max' must not be None")
def _no_bound() -> Mismatch:
    return mismatch("argument", "The function torch.clamp needs a lower bound (min), an upper one (max), or both.")


@says(r"expected sequence of length (\d+) at dim (\d+) \(got (\d+)\)")
def _ragged(wanted: str, dim: str, got: str) -> Mismatch:
    rule = f"The lists in dimension {dim} must have the same length: one has {got}, but the first has {wanted}."
    return mismatch("argument", rule)
