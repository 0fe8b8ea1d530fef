"""What was given is no tensor at all: a pair of results, None in place of a gradient, a module, text, a table.

Also what torch says of operands that Python did not keep, where the message itself tells whose number is whose.
"""

from __future__ import annotations

import ast
import re

from tensormagic.diagnoses.mismatches.call import Call, Given, mismatch, whole
from tensormagic.reports import Mismatch
from tensormagic.words import listed, plural

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
_GRADIENT = re.compile(r"(.+)\.grad")


def several_results(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Can only concatenate tuple (not "int") to tuple; must be Tensor, not torch.return_types.max."""
    pairs = ((one, _fields_of(one)) for one in call.given if not (one.operand.is_tensor and one.operand.dtype))
    given, fields = next(((one, fields) for one, fields in pairs if fields), (None, _RESULTS.get(found[1] or "", ())))
    if not fields:
        return None
    what = given.name if given is not None else "one of what it was given"
    told = ", ".join(fields)
    rule = f"The call takes one tensor, and {what} holds {plural(len(fields), 'result')}, ({told}): take one of them."
    if given is None:
        return mismatch("argument", rule)
    return mismatch("argument", rule, whole(given, f"({told})", "Tensor"), works=[f"{given.code}.{fields[0]}"])


def _fields_of(given: Given) -> tuple[str, ...]:
    """Return the names of the results that an operand is: by its class, or by the call that it is the result of."""
    kind = _RESULT_TYPE.match(given.operand.text)
    return _RESULTS.get(kind[1] if kind else _called(given), ())


def _called(given: Given) -> str:
    try:
        body = ast.parse(given.code, mode="eval").body
    except (SyntaxError, ValueError):
        return ""
    return body.func.attr if isinstance(body, ast.Call) and isinstance(body.func, ast.Attribute) else ""


def no_gradient(call: Call, _: re.Match[str]) -> Mismatch | None:
    """Unsupported operand types for *: 'float' and 'NoneType', where the None is a ``.grad``."""
    given = next((one for one in call.given if one.operand.text == "None" and _GRADIENT.fullmatch(one.name)), None)
    if given is None:
        return None
    leaf = given.name.removesuffix(".grad")
    brought = f"No backward has brought {leaf} a gradient since it was made, or since it was cleared"
    rule = f"{brought}: {given.name} is None."
    return mismatch("argument", rule, whole(given, "None", "Tensor"), works=[f"%why {leaf}"])


def no_such_attribute(call: Call, found: re.Match[str]) -> Mismatch | None:
    """'str' object has no attribute 'size': torch's function takes what it is given for a tensor."""
    given = [one for one in call.given if _is_no_tensor(one)]
    if not call.report.function or len(given) != 1:
        return None
    (wrong,) = given
    role = wrong.operand.role or wrong.name
    told = wrong.operand.name or wrong.operand.text
    rule = f"The argument {role} of {_short(call)} must be a tensor, and {told} is {_article(found[1])}."
    works = [f"torch.as_tensor({told})"] if found[1] in {"int", "float", "list", "ndarray"} else []
    return mismatch("argument", rule, whole(wrong, found[1], "Tensor"), works=works)


def _is_no_tensor(given: Given) -> bool:
    operand = given.operand
    return not operand.is_tensor and bool(operand.text) and operand.role in {"", "self", "input", "target", "other"}


def parts_of_a_tuple(call: Call, found: re.Match[str]) -> Mismatch | None:
    """'tuple' object has no attribute 'shape': a recurrent layer returns its output and its state."""
    parts = [one for one in call.given if one.operand.place]
    name = parts[0].name.removesuffix("[0]") if parts else ""
    if not name or name == parts[0].name:
        return None
    rule = f"The tuple {name} holds {plural(len(parts), 'part')} and has no {found[2]} itself: take the part meant."
    return mismatch("argument", rule, *map(whole, parts), works=[f"{name}[0].{found[2]}"])


def not_of_numbers(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Can't convert np.ndarray of type numpy.object_."""
    given = call.given[0] if call.given else None
    what = "text" if "str" in found[1] else "Python objects"
    rule = f"A tensor holds numbers of one dtype, and this array holds {what} (dtype {found[1].strip('_')})."
    if given is None:
        return mismatch("argument", rule)
    works = [f'{call.report.function or "torch.tensor"}({given.code}.astype("float32"))']
    return mismatch("argument", rule, whole(given, found[1].strip("_"), "a dtype of numbers"), works=works)


def no_data(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Could not determine the shape of object type 'DataFrame'; too many dimensions 'str'."""
    kind = (found[1] or found[2]).replace("NoneType", "None")
    if kind == "str":
        return mismatch("argument", "A tensor holds numbers, and no text: number the words or the classes first.")
    given = call.given[0] if call.given else None
    told = kind if kind == "None" else _article(kind)
    rule = f"The function {_short(call)} takes numbers, nested lists of them, and arrays, and not {told}."
    parts = [whole(given, kind, "numbers")] if given is not None else []
    table = given is not None and kind in {"DataFrame", "Series", "Index"}
    return mismatch(
        "argument", rule, *parts, works=[f"{call.title}({given.code}.to_numpy())"] if table and given else []
    )


def too_many_arguments(call: Call, found: re.Match[str]) -> Mismatch:
    """Linear.forward() takes 2 positional arguments but 3 were given."""
    takes, got = int(found[2]) - 1, int(found[3]) - 1
    layer = call.report.module.strip("()") or found[1]
    verb = "was" if got == 1 else "were"
    return mismatch("argument", f"The forward of {layer} takes {plural(takes, 'argument')}, and {got} {verb} given.")


def missing_arguments(call: Call, found: re.Match[str]) -> Mismatch:
    """Attend.forward() missing 2 required positional arguments: 'key' and 'value'."""
    names = re.findall(r"'(\w+)'", found[2])
    layer = call.report.module.strip("()") or found[1]
    return mismatch("argument", f"The forward of {layer} also needs {listed(names)}.")


def parameters_of_a_module(call: Call, found: re.Match[str]) -> Mismatch | None:
    """'Linear' object is not iterable: an optimizer is given a module."""
    given = call.given[0] if call.given and call.report.function.startswith("torch.optim.") else None
    if given is None:
        return None
    named = given.operand.name
    rule = f"An optimizer takes parameters, and {named or 'what it was given'} is {_article(found[1])}."
    return mismatch("argument", rule, whole(given, found[1]), works=[f"{given.code}.parameters()"] if named else [])


def no_parameters(call: Call, _: re.Match[str]) -> Mismatch:
    """Optimizer got an empty parameter list."""
    rule = (
        "There is no parameter to train. A generator such as net.parameters() is used up by the first who goes through "
        "it, and a module does not know layers that lie in a plain list."
    )
    return mismatch("argument", rule, *(whole(one) for one in call.given[:1]))


def heads(call: Call, _: re.Match[str]) -> Mismatch | None:
    """embed_dim must be divisible by num_heads."""
    found = {one.operand.role: one for one in call.given if one.operand.text.isdigit()}
    if not {"embed_dim", "num_heads"} <= found.keys():
        return None
    width, count = int(found["embed_dim"].operand.text), int(found["num_heads"].operand.text)
    fitting = min((n for n in range(1, width + 1) if width % n == 0), key=lambda n: (abs(n - count), n))
    rule = f"The heads share embed_dim among them: {width} is not divisible by {count}."
    return mismatch("argument", rule, whole(found["num_heads"], count), works=[f"num_heads={fitting}"])


def out_of_support(call: Call, found: re.Match[str]) -> Mismatch:
    """Expected parameter scale (Tensor of shape ()) of distribution Normal(...) to satisfy the constraint ..."""
    name, distribution, values = found[1], found[2], found[4]
    given = next((one for one in call.given if one.operand.role == name), None)
    must = _CONSTRAINTS.get(found[3].split("(")[0], "lie where the distribution is defined")
    bound = re.search(r"bound=(-?[\d.]+)", found[3])
    must = f"{must} {float(bound[1]):g}" if bound else must
    rule = f"The parameter {name} of {distribution} must {must}."
    if "nan" in values:
        rule = f"The parameter {name} of {distribution} holds NaN: what computed it went wrong before this line."
    return mismatch("argument", rule, *([whole(given)] if given is not None else []))


_CONSTRAINTS = {
    "GreaterThan": "be greater than", "GreaterThanEq": "be at least", "LessThan": "be less than",
    "Simplex": "be probabilities: none negative, together 1", "PositiveDefinite": "be positive-definite",
    "_GreaterThan": "be greater than", "_Simplex": "be probabilities: none negative, together 1",
}  # fmt: skip


def truth_of_what_is_gone(call: Call, _: re.Match[str]) -> Mismatch | None:
    """Boolean value of Tensor with more than one value is ambiguous, where the condition was not kept."""
    given = call.given[0] if len(call.given) == 1 and not call.tensors else None
    if given is None or "`" not in given.name:
        return None
    rule = "A condition needs one truth value, and this one has several: all or any of them must be asked for."
    return mismatch("shape", rule, whole(given), works=[f"{given.code}.any()", f"{given.code}.all()"])


def dtypes_of_what_is_gone(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Expected m1 and m2 to have the same dtype, but got: double != float, where neither was kept."""
    if len(call.given) < 2 or any(one.dtype or one.operand.text for one in call.given[:2]):
        return None
    left, right = call.given[:2]
    kinds = [_DTYPES.get(name.split("::")[-1], name) for name in found.groups()]
    rule = f"Both must have one dtype: {left.name} is {kinds[0]} and {right.name} is {kinds[1]}."
    parts = (whole(left, kinds[0], kinds[1]), whole(right, kinds[1], kinds[0]))
    wide = [one for one, kind in zip((left, right), kinds, strict=True) if kind in {"float64", "int64", "int32"}]
    works = [f"{wide[0].code}.float()"] if wide and "float32" in kinds else []
    return mismatch("dtype", rule, *parts, works=works)


def mean_of_what_is_gone(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Mean: could not infer output dtype. Got: Long, where the operand was not kept."""
    given = call.given[0] if call.given and not call.given[0].dtype else None
    if given is None:
        return None
    kind = _DTYPES.get(found[1].lower(), found[1].lower())
    rule = f"A mean is a floating-point number: {given.name} is {kind}."
    return mismatch("dtype", rule, whole(given, kind, "float32"), works=[f"{given.code}.float().mean()"])


_DTYPES = {
    "double": "float64", "float": "float32", "half": "float16", "long": "int64", "int": "int32", "short": "int16",
    "byte": "uint8", "char": "int8",
}  # fmt: skip


def _short(call: Call) -> str:
    return call.title.replace("torch.nn.functional.", "F.")


def _article(kind: str) -> str:
    return f"an {kind}" if kind[:1] in "aeiouAEIOU" else f"a {kind}"


_DISTRIBUTION = (
    r"Expected parameter (\w+) \(.*?\) of distribution (\w+)\(.* to satisfy the constraint (.+?), "
    r"but found invalid values:\s*(.*)"
)
MESSAGES = (
    (r"torch\.return_types\.(?:linalg_)?(\w+)|can only concatenate tuple", several_results),
    (r"'NoneType'|not NoneType", no_gradient),
    (r"'(tuple)' object has no attribute '(\w+)'", parts_of_a_tuple),
    (r"'(\w+)' object has no attribute '\w+'", no_such_attribute),
    (r"can't convert np\.ndarray of type numpy\.(\w+)", not_of_numbers),
    (r"(?:determine the shape of object type|infer dtype of) '?(\w+)'?|too many dimensions '(str)'", no_data),
    (r"(\w+)\.forward\(\) takes (?:from \d+ to )?(\d+) positional arguments? but (\d+) (?:was|were) given",
     too_many_arguments),
    (r"(\w+)\.forward\(\) missing \d+ required positional arguments?: (.+)", missing_arguments),
    (r"'(\w+)' object is not iterable", parameters_of_a_module),
    (r"optimizer got an empty parameter list", no_parameters),
    (r"embed_dim must be divisible by num_heads", heads),
    (_DISTRIBUTION, out_of_support),
    (r"Boolean value of Tensor with more than one value is ambiguous", truth_of_what_is_gone),
    (r"expected m1 and m2 to have the same dtype, but got: ([\w:<> ]+?) != ([\w:<> ]+?)\s*$", dtypes_of_what_is_gone),
    (r"could not infer output dtype\..* Got: (\w+)", mean_of_what_is_gone),
)  # fmt: skip
