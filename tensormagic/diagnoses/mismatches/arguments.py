"""Arguments that are no tensors, or not what the call takes: wrong classes, several results, values out of range.

Also what torch says of operands that Python did not keep, where the message itself tells whose number is whose.
"""

from __future__ import annotations

import ast
import difflib
import re
from ast import unparse

from tensormagic.diagnoses.lines import expression_of, text_of
from tensormagic.diagnoses.mismatches.call import Call, Given, mismatch
from tensormagic.diagnoses.mismatches.dtypes import any_two, devices
from tensormagic.diagnoses.mismatches.products import linear, product
from tensormagic.diagnoses.mismatches.shapes import do_not_broadcast
from tensormagic.diagnoses.mismatches.table import Messages
from tensormagic.reports import Mismatch

says = Messages(globals())

says.table(r"""
# -- an object of torch's that has no such name

'\w+' object has no attribute '_(?:modules|parameters|buffers|\w*hooks\w*)'
    argument: A module is set up by the __init__ of nn.Module, which has not run: the __init__ of the class has to begin
        with super().__init__().
    try: super().__init__()

'Tensor' object has no attribute '(?P<attribute>astype|append|extend|copy|fillna)'
    with one: call.given[0]; with way: of_tensors(call, attribute, one.code); if: way
    argument: A tensor has no {attribute}, which NumPy's arrays or lists have: torch writes it otherwise.
    maybe: {way}

'Tensor' object has no attribute '(?P<attribute>\w+)'
    with it: call.given[0].name; if: it.rpartition(".")[2] == attribute
    argument: A tensor has no {attribute}: {it} is the tensor itself.
    try: {call.report.call.removesuffix("." + attribute)}

'(?P<kind>\w+)' object has no attribute '(?P<attribute>\w+)'
    with near: call.report.near; with it: call.given[0].name or "it"; with found: near[0]
    with wrapped: found == f"module.{attribute}"; with slip: is_slip(attribute, found)
    with has: f"it wraps the model, {it}.module" if wrapped else f"{it} has {found if slip else listed(near)}"
    argument: {article(kind)} has no {attribute}: {has}.
    maybe: {call.report.call.replace("." + attribute, "." + found, 1)} when wrapped or slip

# -- what is not a tensor at all: several results, None in place of a gradient, a module, text, a table

can't convert np\.ndarray of type numpy\.(?P<dtype>\w+)
    with what: "text (dtype str): convert words or classes to numbers first" if "str" in dtype else "Python objects"
    with more: "" if "str" in dtype else f' (dtype {dtype.strip("_")}): if all are numbers, .astype("float32") converts'
    argument: A tensor holds numbers of one dtype, and this array holds {what}{more}{" it" if more else ""}.
    parts: one is {dtype.strip("_")} must be a dtype of numbers for one in call.given[:1]

(?:determine the shape of object type|infer dtype of) '?str'?|too many dimensions 'str'|invalid data type 'str'
    if: call.function != "getitem"
    argument: A tensor holds numbers, not text: convert words or classes to numbers first.

(?:determine the shape of object type|infer dtype of) '?(?P<name>\w+)'?
    with kind: name.replace("NoneType", "None")
    argument: The function {call.short_title} takes numbers, nested lists of numbers, and arrays, not
        {kind if kind == "None" else article(kind)}.
    parts: one is {kind} must be numbers for one in call.given[:1]
    try: {call.title}({one.code}.to_numpy()) for one in call.given[:1] when kind in ("DataFrame", "Series", "Index")

(?P<layer>\w+)\.forward\(\) takes (?:from \d+ to )?{takes} positional arguments? but {got} (?:was|were) given
    argument: The forward of {call.report.module.strip("()") or layer} takes {plural(takes - 1, "argument")}, and
        {got - 1} {"was" if got == 2 else "were"} given.

cannot assign (?:module|parameter|buffer)s? before Module\.__init__\(\) call
    argument: A module registers what is assigned to it, and that is not set up yet: the __init__ of the class has to
        begin with super().__init__().
    try: super().__init__()

Boolean value of Tensor with more than one value|must be tuple of ints|of type int, got: Tensor|not a Module subclass
    with code: made_first(call); if: code
    with loss: call.function == "legacy_get_string"; with kind: "loss" if loss else "module"
    with takes: "what it compares" if loss else "a tensor"
    with given: "the tensors were given as its settings" if loss else "the tensor was given as a setting"
    argument: A {kind} of torch.nn is made first, with its settings, and then called with {takes}: here {given}.
    try: {code} when "…" not in code; maybe: {code} when "…" in code

'(?P<kind>\w+)' object has no attribute '(?P<attribute>\w+)'
    with given: [one for one in call.given if one.text == f"the module {kind}"][0]
    argument: A module is made first, then called with a tensor: {given.name} is the module {kind} itself, and has no
        {attribute}.
    parts: given is {kind} must be Tensor

torch\.return_types\.(?:linalg_)?(?P<kind>\w+)|can only concatenate tuple|can't multiply sequence by non-int
    with given: [one for one in call.given if not (one.is_tensor and one.dtype) and results(one.text, one.code)][:1]
    with fields: results(given[0].text, given[0].code) if given else results(f"torch.return_types.{kind}")
    with what: given[0].name if given else "one of what it was given"; with names: ", ".join(fields); if: fields
    argument: The call takes one tensor, but {what} holds {plural(len(fields), "result")}, ({names}): select one of
        them.
    parts: one is ({names}) must be Tensor for one in given; try: {one.code}.{fields[0]} for one in given

'NoneType'|not NoneType
    with given: [one for one in call.given if one.text == "None" and one.name.endswith(".grad")][0]
    with leaf: given.name.removesuffix(".grad")
    argument: No backward has given {leaf} a gradient since it was made or cleared: {given.name} is None.
    parts: given is None must be Tensor; try: %why {leaf}

# A recurrent layer's result, its output and its state, that is taken for a tensor.
must be Tensor, not tuple|'tuple' object has no attribute
    with several: [one for one in call.given if one.place]; with before: several[0].before.removesuffix("[0]")
    if: before and before != several[0].before
    argument: The result of {before} is a tuple, and nn.Sequential hands it on as it is: a forward of your own can
        select item 0.
    parts: one for one in several

'tuple' object has no attribute '(?P<attribute>\w+)'
    with several: [one for one in call.given if one.place]; with name: several[0].name.removesuffix("[0]")
    if: name and name != several[0].name
    with read: f".{attribute}" if f"{name}.{attribute}" in call.report.call else ""
    argument: The tuple {name} holds {plural(len(several), "part")} and has no {attribute} itself: select one part.
    parts: one for one in several; try: {name}[0]{read}

'(?P<kind>\w+)' object has no attribute '\w+'
    with texts: [one for one in call.given if one.text and not one.is_tensor]
    with wrong: [one for one in texts if one.role in ("", "self", "input", "target", "other")]
    if: call.report.function and len(wrong) == 1
    with one: wrong[0]; with what: one.operand.name or one.text
    argument: The argument {one.role or one.name} of {call.short_title} must be a tensor, and {what} is
        {article(kind)}.
    parts: one is {kind} must be Tensor; try: torch.as_tensor({what}) when kind in ("int", "float", "list", "ndarray")

(?P<layer>\w+)\.forward\(\) missing \d+ required positional arguments?: (?P<names>.+)
    argument: The forward of {call.report.module.strip("()") or layer} also needs {listed(names.split("'")[1::2])}.

(?P<function>[\w.]+?)(?:\.__init__)?\(\) missing \d+ required (?:positional|keyword-only) arguments?: (?P<names>.+)
    if: call.report.function.endswith(function)
    argument: The call of {function} also needs {listed(names.replace('"', "'").split("'")[1::2])}.

Expected parameter (?P<name>\w+) \(.*?\) of distribution (?P<distribution>\w+)\((?s:.*) to satisfy the constraint \
(?P<constraint>(?s:.+?)), but found invalid values:\s*(?P<values>(?s:.*))
    argument: The parameter {name} of {distribution} {must(constraint, values)}.
    parts: one for one in call.given when one is call.argument(name)

Expected value argument \(.*?\) to be within the support \((?P<constraint>(?s:.+?))\) of the distribution \
(?P<distribution>\w+)\((?s:.*), but found invalid values:\s*(?P<values>(?s:.*))
    argument: The value given to {distribution} {must(constraint, values)}.
    parts: one for one in call.given when one is call.argument("value")

embed_dim must be divisible by num_heads
    with width: call.number("embed_dim"); with heads: call.number("num_heads"); if: width > 0 and heads >= 0
    with fitting: min([n for n in range(1, width + 1) if width % n == 0], key=lambda n: (abs(n - heads), n))
    argument: The heads share embed_dim among them: {width} is not divisible by {heads}.
    with given: call.argument("num_heads"); parts: given is {heads}; try: num_heads={fitting}

# -- operands that Python did not keep

stack expects each tensor to be equal size, but got \[{first:shape}\] at entry 0 and \[{other:shape}\] at entry {at}
    argument: A stack takes tensors of one shape: the first is {sizes(first)}, and that at {at} is {sizes(other)}.

Boolean value of Tensor with more than one value is ambiguous
    if: len(call.given) == 1 and not call.tensors and "`" in anything.name
    shape: A condition needs one truth value, and this one has several: use .all() or .any().
    parts: anything; try: {anything.code}.any(); try: {anything.code}.all()

could not infer output dtype\..* Got: {got:dtype}
    if: not anything.dtype
    dtype: A mean is a floating-point number: {anything.name} is {got}.
    parts: anything is {got} must be float32; try: {anything.code}.float().mean()

expected m1 and m2 to have the same dtype, but got: (?P<one_name>[\w:<> ]+?) != (?P<other_name>[\w:<> ]+?)\s*$
    with a: call.given[0]; with b: call.given[1]; if: not (a.dtype or a.text or b.dtype or b.text)
    with this: dtype_of(one_name); with that: dtype_of(other_name)
    dtype: Both must have the same dtype: {a.name} is {this} and {b.name} is {that}.
    parts: a is {this} must be {that}; b is {that} must be {this}
    try: {a.code}.float() when this in ("float64", "int64", "int32") and that == "float32"
    try: {b.code}.float() when that in ("float64", "int64", "int32") and this == "float32"

# -- what the call does not take

implemented for strided tensors only, got: torch\.{layout:word}
    layout: The call {call.title} only makes strided tensors, but layout=torch.{layout} was requested.
    parts: layout_given is {layout} must be strided

unsupported tensor layout: \w+|with arguments from the 'Sparse\w+' backend|for \w+ with Sparse\w+ layout
    layout: Not every operation supports every layout: there is no {call.title} for {sparse.name}, which is
        {sparse.operand.layout}.
    parts: sparse is {sparse.operand.layout} must be strided; try: {sparse.code}.to_dense()

only integer tensors of a single element can be converted to an index
    with wrong: first one.numel != 1 or is_floating(one.dtype)
    argument: Python takes one whole number here, and {wrong.name} is {wrong.dtype} with
        {plural(wrong.numel, "element")}.
    parts: wrong is {wrong.dtype}, {wrong.numel} elements must be int64, 1 element

can't assign a (?P<kind>list|tuple) to a torch\.\w+
    argument: What is assigned to a part of a tensor is a number or a tensor, not a {kind}: torch.tensor makes one of
        it.

Default process group has not been initialized
    argument: No process group was made in this process: every process that torchrun starts calls
        torch.distributed.init_process_group() first.

cannot sample n_sample > prob_dist\.size\(-1\) samples without replacement
    argument: Without replacement each category is drawn once at most: there are fewer of them than are to be drawn.
    maybe: {call.with_keyword("torch.multinomial", "replacement", True)}

probability tensor contains either `inf`, `nan` or element < 0
    with given: [one.name for one in call.given[:1]]
    argument: The weights of categories are finite and not negative, and one of {given[0] if given else "these"} is not.
    parts: one for one in call.given[:1]

`lengths` array must be sorted in decreasing order when `enforce_sorted` is True
    argument: The samples are not in the order of their lengths, the longest first.
    maybe: {call.with_keyword("torch.nn.utils.rnn.pack_padded_sequence", "enforce_sorted", False)}

Length of all samples has to be greater than 0
    argument: Each sequence of a batch must have one element at least, and one length is 0: leave that sample out.

Unrecognised padding mode {mode:word}
    with hint: "; NumPy's edge is called replicate here" if mode == "edge" else ""
    argument: The padding modes are constant, reflect, replicate and circular, not {mode}{hint}.
    parts: mode_given

expected a non-empty list of Tensors|expects a non-empty TensorList|non-empty input tensor list
    argument: The list of tensors must hold at least one, but is empty.

only one element tensors can be converted
    if: call.report.function in ("torch.tensor", "torch.as_tensor") and only.place
    argument: A list given to {call.report.function} holds numbers, and {only} has {count(only.numel)}:
        torch.stack joins tensors of one shape.
    parts: only is {only.numel} elements must be 1 element

only one element tensors can be converted
    if: call.report.function in ("torch.tensor", "torch.as_tensor") and not call.tensors
    argument: A list given to {call.report.function} holds numbers, and this one holds tensors of several elements:
        torch.stack joins tensors of one shape.

a Tensor with \d+ elements cannot be converted to Scalar|only one element tensors can be converted
    shape: The conversion to one number takes one element: {only} has {count(only.numel)}.
    parts: only is {only.numel} elements must be 1 element; try: {only.code}.tolist(); try: {only.code}.mean().item()

Boolean value of Tensor with (?:more than one|no) values? is ambiguous
    shape: A condition needs one truth value: {only} has {count(only.numel)}; use .all() or .any().
    parts: only is {only.numel} elements must be 1 element; try: {only.code}.any(); try: {only.code}.all()

Got unsupported ScalarType (?P<dtype>\w+)
    dtype: NumPy has no {dtype_of(dtype)}: {first.name} must have another dtype.
    parts: first.dtype must be float32; try: {first.code}.float().numpy()

At least one stride in the given numpy array is negative
    argument: A tensor cannot go backwards through memory, and this array does: copy it.
    maybe: {call.report.function}({one.code}.copy()) for one in call.given[:1]

expected np\.ndarray \(got (?P<kind>\w+)\)
    argument: The function {call.title} takes an array, not {article(kind)}.
    maybe: torch.tensor({unparse(expression_of(call.report.call).args[0])}) when kind in ("list", "tuple", "float")

Can't call numpy\(\) on Tensor that requires grad
    argument: NumPy does not support gradients, but {first.name} requires them: detach it from the graph first.
    parts: first is requires_grad=True
    try: {first.code}.detach(){".float()" if first.dtype == "bfloat16" else ""}.numpy()

At least one of 'min' or 'max' must not be None
    argument: The function torch.clamp needs a lower bound (min), an upper one (max), or both.

expected sequence of length {wanted} at dim {at} \(got {got}\)
    argument: The lists in dimension {at} must have the same length: one has {got}, but the first has {wanted}.

only integers, slices .* are valid indices \(got (?P<kind>\w+)\)
new\(\): invalid data type '(?P<kind>\w+)'
    if: call.function == "getitem"
    index: An index is a whole number, a slice, None, ... or a tensor of whole numbers or booleans, not {article(kind)}.
    parts: one is {kind} must be int64 for one in call.given when one.position == 1

got an unexpected keyword argument '(?P<name>\w+)'
    with wrong: call.argument(name)
    argument: The function {call.short_title} has no argument `{name}`.
    parts: wrong

expected Tensor as element {at} in argument \d+, but got (?P<name>[\w.]+)
    with kind: name.split(".")[-1]
    argument: All members of the list must be tensors, and the one at {at} is {article(kind)}.
    parts: one is {kind} must be Tensor for one in call.given when one.place.endswith(f"[{at}]")

unsupported operation: (?P<several>more than one element of the written-to)?.*single memory location
    with target: (outs or [first])[0]; if: target.is_tensor
    with apart: f"separate memory for each element: several elements of {target.name} share one place in memory"
    with own: f"its own memory, but {target.name} shares some with what is read: read from a clone"
    layout: A result needs {apart if several else own}.
    with read: [one for one in call.tensors if one is not target and one.operand.name and not several]
    with base: target.code.split("[")[0].split(".")[0]; with assigned: f"{base} = " if target.can_be_assigned else ""
    with copied: (base if assigned else target.code) + ".clone()"
    parts: target; try: {assigned}{copied} when several; try: {one.code}.clone() for one in read

(?P<function>\w+)\(\): argument '(?P<name>\w+)' \(position {position}\) must be (?P<wanted>[\w ]+?), not (?P<got>[\w.]+)
    with placed: [one for one in call.given if one.position == position - 1]
    with given: [one for one in (call.argument(name), *placed) if one][:1]
    with texts: [text for one in given for text in [code_of(call, one)] if text]
    with first_part: "" if given and given[0].operand.name else "[0]"
    with inner: [text + first_part for text in texts if got == "tuple" and given[0].is_tensor]
    with modules: [one for one in given if one.text.startswith("the module ")]
    with instead: ": call the module with a tensor, and give what it returns" if modules else ""
    with name_of: none_of(call, function, given); with named: f"{name_of} is None, which" if name_of else "that"
    with none: f"None: {named} a forward or another function without a return gives"
    argument: The argument {name} of {function}() must be a {wanted}, not \
{none if got == "NoneType" else article(got) + instead}.
    parts: one is {got} must be {wanted} for one in given; try: {text} for text in inner
    with plain: wanted == "Tensor" and got in ("int", "float", "list", "tuple", "bool", "numpy.ndarray") and not inner
    with dtypes: [one.dtype for one in call.tensors if one not in given][:1]
    with own: [one.dtype for one in given]
    with more: [f", dtype=torch.{dtype}" for dtype in dtypes if is_floating(dtype) and dtype not in own]
    try: torch.as_tensor({text}{"".join(more)}) for text in texts when plain
    try: [{text}, …] for text in texts when wanted == "tuple of Tensors" and got == "Tensor"

# A Parameter goes by the name of its class.
unsupported operand type\(s\) for (?P<sign>\S+): '(?P<left>\w+)' and '(?P<right>\w+)'
    with pair: (left, right); with others: [one for one in call.given if not one.is_tensor]
    with wrong: others[:1] if "Tensor" not in pair or len(call.given) < 2 else [call.given[left == "Tensor"]]
    if: "Tensor" in pair or call.tensors and wrong and wrong[0].position < 2
    with kind: pair[left == "Tensor" if "Tensor" in pair else wrong[0].position]
    with what: "None (a function without return?)" if kind == "NoneType" else article(kind)
    with number: "" if sign.startswith("@") else " or a number"
    argument: The operator {sign} combines a tensor with a tensor{number}, not with {what}.
    parts: one is {kind} must be Tensor for one in wrong
""")


def made_first(call: Call) -> str:
    """Return the code that makes a module of torch.nn with its settings and calls it with the tensors it was given."""
    made = expression_of(call.report.call)
    if not isinstance(made, ast.Call) or not re.match(r"(?:torch\.)?nn\.[A-Z]\w+$", function := unparse(made.func)):
        return ""
    names, without_sizes = {one.code for one in call.tensors}, call.function in {"legacy_get_string", "bool"}
    tensors = [unparse(one) for one in made.args if without_sizes or unparse(one) in names]
    settings = [unparse(one) for one in (*made.args, *made.keywords) if unparse(one) not in tensors]
    settings = settings if without_sizes else ["…", *settings]
    return f"{function}({', '.join(settings)})({', '.join(tensors)})" if tensors else ""


def none_of(call: Call, function: str, given: list[Given]) -> str:
    """Return the name of what was given and is None; a loss of torch.nn hands it on as it is written."""
    made = expression_of(call.report.call)
    if given and not given[0].operand.name and "loss" in function and isinstance(made, ast.Call):
        return "".join(unparse(one) for one in made.args[given[0].position :][:1] if isinstance(one, ast.Name))
    return given[0].operand.name if given else ""


def code_of(call: Call, given: Given) -> str:
    """Return how the user's line writes an operand; empty where that is not known."""
    made, text = expression_of(call.report.call), given.operand.name or given.text
    if isinstance(made, ast.Call) and len(made.args) == 1 and unparse(made.func) == call.report.module:
        return text if given.operand.name else unparse(made.args[0])  # what a layer was called with
    return text if expression_of(text) is not None else ""


_PAIR = ("values", "indices")
# What several results of one call are called.
_RESULTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("max", "min", "median", "nanmedian", "mode", "sort"), _PAIR),
    **dict.fromkeys(("topk", "kthvalue", "cummax", "cummin"), _PAIR),
    "aminmax": ("min", "max"), "slogdet": ("sign", "logabsdet"), "eigh": ("eigenvalues", "eigenvectors"),
    "eig": ("eigenvalues", "eigenvectors"), "svd": ("U", "S", "Vh"), "qr": ("Q", "R"),
    "frexp": ("mantissa", "exponent"), "lstsq": ("solution", "residuals", "rank", "singular_values"),
}  # fmt: skip


def results(text: str, code: str = "") -> tuple[str, ...]:
    """Return the names of the results that an operand is: by its class, or by the call that it is the result of."""
    kind = re.match(r"torch\.return_types\.(?:linalg_)?(\w+)", text)
    if kind:
        return _RESULTS.get(kind[1], ())
    body = expression_of(code)
    method = body.func if isinstance(body, ast.Call) else None
    return _RESULTS.get(method.attr, ()) if isinstance(method, ast.Attribute) else ()


_CONSTRAINTS = {
    "GreaterThan": "be greater than {lower}", "GreaterThanEq": "be at least {lower}",
    "LessThan": "be less than {upper}", "Interval": "lie between {lower} and {upper}",
    "HalfOpenInterval": "be at least {lower} and less than {upper}", "Real": "hold numbers, not NaN",
    "IntegerInterval": "hold whole numbers from {lower} to {upper}", "Boolean": "hold only zeros and ones",
    "IntegerGreaterThan": "hold whole numbers of at least {lower}", "OneHot": "be one-hot: a single 1, else zeros",
    "IntegerLessThan": "hold whole numbers of at most {upper}",
    "Simplex": "be probabilities: none negative, together 1", "PositiveDefinite": "be positive-definite",
    "LowerCholesky": "be lower-triangular, with a positive diagonal",
}  # fmt: skip
# A bound that is one number, or a tensor of one.
_BOUND = re.compile(r"(lower|upper)_bound=(?:tensor\()?\[*(-?[\d.]+(?:e[-+]?\d+)?)(?![\d.]|\]*,\s*\[*[-\d])")


_OF_TENSORS = {
    "astype": "{}.to(torch.{})", "append": "torch.cat([{}, other])", "extend": "torch.cat([{}, other])",
    "copy": "{}.clone()", "fillna": "{}.nan_to_num(0.0)",
}  # fmt: skip


def of_tensors(call: Call, name: str, code: str) -> str:
    """Return how torch writes a method of arrays or lists."""
    dtype = re.search(r"astype\(\W*(?:np\.|numpy\.|torch\.)?(\w+)", text_of(call.report.location))
    return _OF_TENSORS[name].format(code, dtype[1] if dtype is not None else "float32")


def is_slip(name: str, meant: str) -> bool:
    """Return whether a name is nearly another one."""
    return difflib.SequenceMatcher(None, name, meant).ratio() >= SLIP


SLIP = 0.8


def must(constraint: str, values: str) -> str:
    """Return what a constraint of a distribution asks for, in words."""
    if "nan" in values:
        return "holds NaN: what computed it went wrong before this line"
    kinds = [kind.lstrip("_") for kind in re.findall(r"\w+(?=\()", constraint)]  # an independent one is around another
    words = next((_CONSTRAINTS[kind] for kind in kinds if kind in _CONSTRAINTS), "be in the distribution's domain")
    found = dict(_BOUND.findall(constraint))
    bounds = {"lower": "its lower bound", "upper": "its upper bound"}
    return "must " + words.format(**bounds | {side: f"{float(number):g}" for side, number in found.items()})


@says(r"(?P<function>\w+)\(\) received an invalid combination of arguments - got \((?P<given>.*?)\), but expected")
def _no_such_call(call: Call, function: str, given: str) -> Mismatch:
    forms = re.findall(r"^ \* \((.*?)\)\s*$", call.error, re.MULTILINE)
    forms = forms or re.findall(r"but expected \((.*)\)", call.error)[:1]
    parts = (form.split(", *", maxsplit=1)[0].removeprefix("*, ").split(", ") for form in forms[:2])
    needed_ones = (", ".join(part for part in each if " = " not in part) for each in parts)  # the rest has defaults
    shown = " or ".join(dict.fromkeys(f"{function}({each})" for each in needed_ones))
    rule = f"The function {function}() takes no ({given})" + (f"; it is called as {shown}." if shown else ".")
    return mismatch("argument", rule, *(one.whole() for one in call.given if not one.is_tensor))


# -- where no row above explains what torch says -------------------------------------------------------------------

# The sizes, dtypes and devices of the operands are compared with the rule of the function itself.
_OF_DTYPE = r"\b(?:dtypes?|scalar types?|data types?)\b"
_OF_SHAPE = r"\b(?:shapes?|sizes?|dimensions?|dims?|numel|channels?)\b"

says(r"(?i)\bdevices?\b")(devices)


@says(f"(?i){_OF_DTYPE}")
def _dtypes_apart(call: Call) -> Mismatch | None:
    return any_two(call) if call.family else None


@says(f"(?i)^(?!.*{_OF_DTYPE}).*{_OF_SHAPE}")
def _shapes_apart(call: Call) -> Mismatch | None:
    explain = {"linear": linear, "product": product, "elementwise": do_not_broadcast}.get(call.family)
    return explain(call) if explain is not None else None


# What the message says by itself, where nobody saw an operand that was computed in the failing line: it is named by its
# code. Before that, torch is quoted: what clashes among the operands whose shapes it quotes is not claimed.
says.table(
    f"(?i){_OF_SHAPE}"
    r"""
    if: not call.family; with message: call.error.strip().split("\n", 1)[0]
    with quoted: every one.shape and f"[{as_args(one.shape)}]" in call.error
    argument: Torch says: {message}
    parts: one.shape for one in quoted

size of tensor a \({one}\) must match the size of tensor b \({other}\) at .*dimension {at}
    if: call.family == "elementwise" and len(computed) == 2; with left: computed[0]; with right: computed[1]
    if: one in left.shape or not left.is_tensor; if: other in right.shape or not right.is_tensor
    with named: [given if given.is_tensor else given.name for given in computed]
    shape: Dimensions are compared from the right, and must be equal or 1: in dimension {at} of the result, {named[0]}
        has {one} and {named[1]} has {other}.
    parts: left[left.shape.index(one)] when left.shape.count(one) == 1
    parts: left is {one} in dimension {at} when left.shape.count(one) != 1
    parts: right[right.shape.index(other)] when right.shape.count(other) == 1
    parts: right is {other} in dimension {at} when right.shape.count(other) != 1
    with skips: [(right, other, one, left)] if right.is_tensor else [(left, one, other, right)]
    with fits: [each for each in skips if each[0].ndim in (3, 4, 5) and at == 1 and call.function in ("add", "iadd")]
    with into: [each for each in fits if f"({each[0].code})" in each[3].code]
    maybe: nn.Conv{x.ndim - 2}d({had}, {has}, 1)  # made once, applied to {x.code} for x, had, has, block in into

mat1 and mat2 shapes cannot be multiplied \({height}x{columns} and {rows}x{width}\)
    if: call.family == "product" and len(computed) == 2; with left: computed[0]; with right: computed[1]
    if: left.shape == (height, columns) or not left.is_tensor
    if: right.shape == (rows, width) or not right.is_tensor
    shape: The columns of the first must be as many as the rows of the second: {left.name} ({height} × {columns}) has
        {columns} columns, {right.name} ({rows} × {width}) has {rows} rows.
    parts: left is {columns} columns; right is {rows} rows must be {columns}

except in dimension {dim}\. Expected size {wanted} but got size {got} for tensor number {at}
    with places: [one for one in computed if one.operand.place == "tensors[" + str(at) + "]"]
    with joined: [*places, *computed][0]; with called: joined if joined.is_tensor else joined.operand.name
    with which: called if places else "tensor " + str(at) + " of the list"
    shape: All dimensions but {dim} must be equal: {which} has {got} where the first has {wanted}.
    parts: joined is {got} must be {wanted}
"""
)
