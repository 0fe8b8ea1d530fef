"""What is wrong with a call before any tensor is looked at: its arguments, and values out of their range."""

from __future__ import annotations

import re
from math import prod

from tensormagic.diagnoses.mismatches.call import Call, Given, mismatch, whole
from tensormagic.reports import Mismatch
from tensormagic.words import count, plural

_SHAPE = r"torch\.Size\(\[(.*?)\]\)"
_SIZE_MISMATCH = re.compile(
    rf"size mismatch for (\S+): copying a param with shape {_SHAPE} from checkpoint, "
    rf"the shape in current model is {_SHAPE}"
)
_MISSING, _UNKNOWN = (re.compile(rf"{word} key\(s\) in state_dict: (.*?)\.\s") for word in ("Missing", "Unexpected"))


def must_be(call: Call, found: re.Match[str]) -> Mismatch | None:
    """add(): argument 'other' (position 2) must be Tensor, not int."""
    function, name, position, wanted, got = found.groups()
    given = _argument(call, name, int(position))
    parts = [whole(given, got, wanted)] if given is not None else []
    rule = f"The argument {name} of {function}() must be a {wanted}, not {_article(got)}."
    return mismatch("argument", rule, *parts, works=_made(given, wanted, got))


def _article(kind: str) -> str:
    return f"an {kind}" if kind[:1] in "aeiouAEIOU" else f"a {kind}"


def _argument(call: Call, name: str, position: int) -> Given | None:
    named = next((one for one in call.given if one.operand.role == name), None)
    return named or next((one for one in call.given if one.position == position - 1), None)


def _made(given: Given | None, wanted: str, got: str) -> list[str]:
    if given is None:
        return []
    text = given.operand.name or given.operand.text
    if got == "tuple" and given.operand.is_tensor and text.endswith("[0]"):
        return [text]
    if wanted == "Tensor" and got in {"int", "float", "list", "tuple", "bool", "numpy.ndarray"} and text:
        return [f"torch.as_tensor({text})"]
    if wanted == "tuple of Tensors" and got == "Tensor" and text:
        return [f"[{text}, …]"]
    return []


def no_such_call(call: Call, found: re.Match[str]) -> Mismatch | None:
    """add() received an invalid combination of arguments - got (int, Tensor), but expected one of: ..."""
    forms = re.findall(r"^ \* \((.*?)\)\s*$", call.error, re.MULTILINE)
    single = re.search(r"but expected \((.*)\)", call.error)
    forms = forms or ([single[1]] if single else [])
    shown = " or ".join(dict.fromkeys(f"{found[1]}({_short(form)})" for form in forms[:2]))
    rule = f"The function {found[1]}() takes no ({found[2]})" + (f"; it is called as {shown}." if shown else ".")
    return mismatch("argument", rule, *(whole(one) for one in call.given if not one.operand.is_tensor))


def _short(form: str) -> str:
    """Return the first arguments of a signature: the rest has defaults."""
    needed = [part for part in form.split(", *", maxsplit=1)[0].removeprefix("*, ").split(", ") if " = " not in part]
    return ", ".join(needed)


def not_a_tensor(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Expected Tensor as element 1 in argument 0, but got list."""
    kind = found[2].rpartition(".")[2]
    rule = f"All members of the list must be tensors, and the one at {found[1]} is {_article(kind)}."
    member = next((one for one in call.given if one.operand.place.endswith(f"[{found[1]}]")), None)
    return mismatch("argument", rule, *([whole(member, kind, "Tensor")] if member is not None else []))


def unsupported_operands(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Unsupported operand type(s) for +: 'Tensor' and 'NoneType'."""
    kinds, wrong = (found[2], found[3]), next((one for one in call.given if not one.operand.is_tensor), None)
    at = int(kinds[0] == "Tensor")
    if "Tensor" not in kinds:  # a Parameter goes by the name of its class
        if not call.tensors or wrong is None or wrong.position > 1:
            return None
        at = wrong.position
    other = kinds[at]
    what = "None (a function without return?)" if other == "NoneType" else _article(other)
    rule = f"The operator {found[1]} joins a tensor with a tensor or a number, not with {what}."
    return mismatch("argument", rule, *([whole(wrong, other, "Tensor")] if wrong is not None else []))


def needs_members(_call: Call, _: re.Match[str]) -> Mismatch | None:
    """Expected a non-empty list of Tensors."""
    return mismatch("argument", "The list of tensors to put together must hold at least one, and is empty.")


def one_element(call: Call, _: re.Match[str]) -> Mismatch | None:
    """A Tensor with 10 elements cannot be converted to Scalar."""
    given = call.tensors[0] if len(call.tensors) == 1 else call.tensor("input|self", 0)
    if given is None:
        return None
    elements = prod(given.shape)
    rule = f"The conversion to one number takes one element: {given.sized} has {count(elements)}."
    works = [f"{given.code}.tolist()", f"{given.code}.mean().item()"]
    return mismatch("shape", rule, whole(given, f"{elements} elements", "1 element"), works=works)


def truth(call: Call, _: re.Match[str]) -> Mismatch | None:
    """Boolean value of Tensor with more than one value is ambiguous."""
    given = call.tensors[0] if len(call.tensors) == 1 else call.tensor("input|self", 0)
    if given is None:
        return None
    rule = (
        f"A condition needs one truth value: {given.sized} has {count(prod(given.shape))}; all or any of them must "
        "be asked for."
    )
    works = [f"{given.code}.any()", f"{given.code}.all()"]
    return mismatch("shape", rule, whole(given, f"{prod(given.shape)} elements", "1 element"), works=works)


def has_graph(call: Call, _: re.Match[str]) -> Mismatch | None:
    """Can't call numpy() on Tensor that requires grad."""
    given = call.tensor("input|self", 0)
    if given is None:
        return None
    rule = f"NumPy knows nothing of gradients, and {given.name} requires them: it must be cut from the graph first."
    return mismatch("argument", rule, whole(given, "requires_grad=True"), works=[f"{given.code}.detach().numpy()"])


def bound(_call: Call, _: re.Match[str]) -> Mismatch | None:
    """Must include None or a bound: torch.clamp without either."""
    return mismatch("argument", "The function torch.clamp needs a lower bound (min), an upper one (max), or both.")


def ragged(_call: Call, found: re.Match[str]) -> Mismatch | None:
    """Expected sequence of length 2 at dim 1 (got 1)."""
    rule = (
        f"The lists in dimension {found[2]} must be of one length: one has {found[3]}, where the first has {found[1]}."
    )
    return mismatch("argument", rule)


def layout(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Is implemented for strided tensors only: the layout that was asked for."""
    asked = next((one for one in call.given if one.operand.role == "layout"), None)
    rule = f"The call {call.title} makes strided tensors only, and layout=torch.{found[1]} asks for others."
    return mismatch("layout", rule, whole(asked, found[1], "strided")) if asked is not None else None


def not_for_layout(call: Call, _: re.Match[str]) -> Mismatch | None:
    """Unsupported tensor layout: SparseCsr; could not run with arguments from the 'SparseCPU' backend."""
    given = next((one for one in call.tensors if one.operand.layout.startswith("sparse")), None)
    if given is None:
        return None
    layout = given.operand.layout
    rule = f"Not every operation exists for every layout: there is no {call.title} for {given.name}, which is {layout}."
    return mismatch("layout", rule, whole(given, layout, "strided"), works=[f"{given.code}.to_dense()"])


def no_keyword(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Got an unexpected keyword argument 'generator'."""
    wrong = next((one for one in call.given if one.operand.role == found[1]), None)
    if wrong is None:
        return None
    function = call.title.replace("torch.nn.functional.", "F.")
    return mismatch("argument", f"The function {function} has no argument `{found[1]}`.", whole(wrong))


def padding_mode(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Unrecognised padding mode symmetric."""
    wrong = next((one for one in call.given if one.operand.role == "mode"), None)
    if wrong is None:
        return None
    numpys = "; what NumPy calls edge is replicate here" if found[1] == "edge" else ""
    rule = f"The modes of padding are constant, reflect, replicate and circular, and none is {found[1]}{numpys}."
    return mismatch("argument", rule, whole(wrong))


def overlapping(call: Call, found: re.Match[str]) -> Mismatch | None:
    """What is written to overlaps itself, or shares memory with what is read."""
    target = next((one for one in call.given if one.operand.role == "out" or one.operand.place.startswith("out")), None)
    target = target or call.tensor("input|self", 0)
    if target is None or not target.operand.is_tensor:
        return None
    rule = f"A result needs memory of its own: {target.name} shares some with what is read."
    if found[1]:
        rule = f"A result needs memory of its own for each element: several of {target.name} are one place in memory."
    return mismatch("layout", rule, whole(target), works=[f"{target.code}.clone()"])


def no_index(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Only integers, slices, ellipsis, None and long or byte Variables are valid indices (got float)."""
    wrong = next((one for one in call.given if one.position == 1), None)
    parts = [whole(wrong, found[1], "int64")] if wrong is not None else []
    rule = (
        "An index is a whole number, a slice, None, ... or a tensor of whole numbers or booleans, not "
        f"{_article(found[1])}."
    )
    return mismatch("index", rule, *parts)


def no_gpu(_call: Call, _: re.Match[str]) -> Mismatch | None:
    """Torch not compiled with CUDA enabled; no GPUs are available."""
    rule = "There is no GPU here that torch can use: torch.cuda.is_available() is False."
    return mismatch("argument", rule, works=['device = "cuda" if torch.cuda.is_available() else "cpu"'])


def not_invertible(call: Call, _: re.Match[str]) -> Mismatch | None:
    """The matrix is singular."""
    given = call.tensor("input|self|A", 0)
    if given is None:
        return None
    rule = f"Only a matrix of full rank has an inverse, and {given.sized} is singular: its rows depend on one another."
    return mismatch("argument", rule, whole(given), works=[f"torch.linalg.pinv({given.code})"])


def not_definite(call: Call, _: re.Match[str]) -> Mismatch | None:
    """The matrix is not positive-definite."""
    given = call.tensor("input|self|A", 0)
    if given is None:
        return None
    rule = f"A Cholesky factor exists where all eigenvalues are positive, and {given.sized} has one that is not."
    jitter = f"torch.linalg.cholesky({given.code} + 1e-6 * torch.eye({given.shape[-1]}))" if given.ndim else ""
    return mismatch("argument", rule, whole(given), works=[jitter])


def checkpoint(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Error(s) in loading state_dict: sizes that differ, names that are missing or not known."""
    sizes_differ = _SIZE_MISMATCH.findall(call.error)
    if sizes_differ:
        name, there, here = sizes_differ[0]
        rest = f", and {plural(len(sizes_differ) - 1, 'other parameter')} likewise" if len(sizes_differ) > 1 else ""
        sizes = f"{name} is {_by(there)} there and {_by(here)} here{rest}"
        rule = f"The checkpoint is of a {found[1]} of other sizes: {sizes}."
        return mismatch("argument", rule)
    names = [*_MISSING.findall(call.error), *_UNKNOWN.findall(call.error)]
    if not names:
        return None
    rule = f"The checkpoint must have the names of the {found[1]}: {_missing_and_unknown(names, call.error)}."
    if "module." in "".join(names):
        rule += " Where all its names begin with module., it was saved from nn.DataParallel: take that off."
    return mismatch("argument", rule)


def _by(shape: str) -> str:
    return shape.replace(", ", " × ") or "a single number"


def _missing_and_unknown(names: list[str], error: str) -> str:
    first = names[0].split(",")[0].strip().strip('"')
    return f"{first} is {'not in it' if 'Missing' in error else 'in it and in no layer'}"


MESSAGES = (
    (r"only integers, slices .* are valid indices \(got (\w+)\)", no_index),
    (r"Torch not compiled with CUDA enabled|No CUDA GPUs are available|Found no NVIDIA driver", no_gpu),
    (r"the input matrix is singular|matrix is singular", not_invertible),
    (r"not positive-definite", not_definite),
    (r"Error\(s\) in loading state_dict for (\w+)", checkpoint),
    (r"implemented for strided tensors only, got: torch\.(\w+)", layout),
    (
        r"unsupported tensor layout: \w+|with arguments from the 'Sparse\w+' backend|for \w+ with Sparse\w+ layout",
        not_for_layout,
    ),
    (r"got an unexpected keyword argument '(\w+)'", no_keyword),
    (r"Unrecognised padding mode (\w+)", padding_mode),
    (r"unsupported operation: (more than one element of the written-to)?.*single memory location", overlapping),
    (r"(\w+)\(\): argument '(\w+)' \(position (\d+)\) must be ([\w ]+?), not ([\w.]+)", must_be),
    (r"(\w+)\(\) received an invalid combination of arguments - got \((.*?)\), but expected", no_such_call),
    (r"expected Tensor as element (\d+) in argument \d+, but got ([\w.]+)", not_a_tensor),
    (r"unsupported operand type\(s\) for (\S+): '(\w+)' and '(\w+)'", unsupported_operands),
    (r"expected a non-empty list of Tensors|expects a non-empty TensorList|non-empty input tensor list", needs_members),
    (
        r"a Tensor with \d+ elements cannot be converted to Scalar|only one element tensors can be converted",
        one_element,
    ),
    (r"Boolean value of Tensor with (?:more than one|no) values? is ambiguous", truth),
    (r"Can't call numpy\(\) on Tensor that requires grad", has_graph),
    (r"At least one of 'min' or 'max' must not be None", bound),
    (r"expected sequence of length (\d+) at dim (\d+) \(got (\d+)\)", ragged),
)
