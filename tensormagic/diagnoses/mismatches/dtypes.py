"""Dtypes that do not go together, and dtypes that a function does not take."""

from __future__ import annotations

import re

from tensormagic.diagnoses.mismatches.call import Call, Given, mismatch, whole
from tensormagic.reports import Mismatch

_SCALARS = {
    "float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16", "long": "int64", "int": "int32",
    "short": "int16", "char": "int8", "byte": "uint8", "bool": "bool", "long int": "int64", "unsigned char": "uint8",
    "signed char": "int8", "complexfloat": "complex64", "complexdouble": "complex128",
    "c10::complex<float>": "complex64", "c10::complex<double>": "complex128", "c10::half": "float16",
    "c10::bfloat16": "bfloat16", "complexhalf": "complex32", "uint16": "uint16", "uint32": "uint32", "uint64": "uint64",
}  # fmt: skip
_METHODS = {"float32": ".float()", "float64": ".double()", "int64": ".long()", "float16": ".half()", "bool": ".bool()",
            "int32": ".int()", "bfloat16": ".bfloat16()"}  # fmt: skip
# Names of operands that are data, and are made to fit their partner; a model's parameters are not.
_PARAMETER = re.compile(r"(^|\.)(weight|bias|running_mean|running_var|in_proj_weight|in_proj_bias)\w*$")


def dtype_of(name: str) -> str:
    """Return the dtype that one of torch's C++ names means: Long is int64, double float64."""
    plain = name.strip().lower().removeprefix("torch.")
    return _SCALARS.get(plain.removesuffix("tensor"), name.strip())


def converted(given: Given, dtype: str) -> str:
    """Return the code that makes a tensor have this dtype."""
    return given.code + _METHODS.get(dtype, f".to(torch.{dtype})")


def floating(dtype: str) -> bool:
    """Whether a dtype is one of real floating point numbers."""
    return dtype.startswith(("float", "bfloat"))


def is_parameter(given: Given) -> bool:
    """Whether an operand is a layer's own, as far as its role and name tell."""
    name = given.operand.role if given.operand.role not in {"", "self", "input", "other"} else given.operand.name
    return bool(_PARAMETER.search(name)) or (given.operand.requires_grad and given.operand.is_leaf)


# -- two dtypes that must be one -----------------------------------------------------------------------------------


def differ(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Two names of dtypes in the message: the operands that have them must have one and the same."""
    return together(call, dtype_of(found[1]), dtype_of(found[2]))


def together(call: Call, first: str, second: str) -> Mismatch | None:
    """Explain two operands, one of each of two dtypes, that must have the same."""
    pair = [_having(call, first), _having(call, second)]
    if pair[0] is None or pair[1] is None or first == second:
        return any_two(call)
    return _clash(call, pair[0], pair[1])


def _having(call: Call, dtype: str) -> Given | None:
    """Return an operand of a dtype: data before parameters, weights before biases."""
    found = [one for one in call.tensors if one.dtype == dtype]
    return min(found, key=lambda one: (one.operand.role == "bias", one.index), default=None)


def any_two(call: Call) -> Mismatch | None:
    """Explain the first two operands whose dtypes differ."""
    tensors = call.tensors
    other = next((one for one in tensors if one.dtype != tensors[0].dtype), None) if tensors else None
    return _clash(call, tensors[0], other) if other is not None else None


def _clash(call: Call, left: Given, right: Given) -> Mismatch:
    given, fixed = _which_to_convert(left, right)
    rule = f"Both must have one dtype: {left.name} is {left.dtype} and {right.name} is {right.dtype}."
    works = [converted(given, fixed.dtype)]
    if is_parameter(fixed) and call.layer and floating(given.dtype):
        works.append(call.layer + _METHODS.get(given.dtype, f".to(torch.{given.dtype})"))
    elif not is_parameter(fixed) and floating(given.dtype):
        works.append(converted(fixed, given.dtype))
    return mismatch(
        "dtype", rule, whole(left, left.dtype, right.dtype), whole(right, right.dtype, left.dtype), works=works
    )


def _which_to_convert(left: Given, right: Given) -> tuple[Given, Given]:
    """Return what to convert and what to keep: data before parameters, whole numbers and float64 before float32."""
    if is_parameter(left) != is_parameter(right):
        return (right, left) if is_parameter(left) else (left, right)
    if floating(left.dtype) != floating(right.dtype):
        return (right, left) if floating(left.dtype) else (left, right)
    return (right, left) if right.dtype == "float64" or left.dtype == "float32" else (left, right)


def layer_dtype(call: Call, found: re.Match[str]) -> Mismatch | None:
    """The dtype of the input of a recurrent layer does not match that of its weights, which are no operands."""
    wrong = _having(call, found[1])
    if wrong is None:
        return None
    rule = f"The input must have the dtype of the layer, {found[2]}: {wrong.name} is {found[1]}."
    works = [
        converted(wrong, found[2]),
        f"{call.layer}{_METHODS.get(found[1], '')}" if floating(found[1]) and call.layer else "",
    ]
    return mismatch("dtype", rule, whole(wrong, found[1], found[2]), works=works)


def any_floating(call: Call, dtype: str) -> Mismatch | None:
    """Explain a dtype that a device does not have."""
    wrong = _having(call, dtype)
    if wrong is None:
        return None
    rule = f"The device has no {dtype}, and {wrong.name} is {dtype}."
    return mismatch("dtype", rule, whole(wrong, dtype, "float32"), works=[converted(wrong, "float32")])


def mixed(call: Call, _: re.Match[str]) -> Mismatch | None:
    """Mixed dtype (CPU): all inputs must share same datatype."""
    return any_two(call)


def expected_but_found(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Expected scalar type Float but found Double; Found dtype Long but expected Float."""
    wanted, got = dtype_of(found["wanted"]), dtype_of(found["got"])
    wrong, right = _last_having(call, got), _having(call, wanted)
    if wrong is None:
        return any_two(call)
    if right is None:
        rule = f"The dtype of {wrong.name} must be {wanted}, and is {got}."
        return mismatch("dtype", rule, whole(wrong, got, wanted), works=[converted(wrong, wanted)])
    return _clash(call, *sorted((wrong, right), key=lambda one: one.index))


def _last_having(call: Call, dtype: str) -> Given | None:
    found = [one for one in call.tensors if one.dtype == dtype]
    return found[-1] if found else None


def start_dtype(call: Call, _: re.Match[str]) -> Mismatch | None:
    """narrow: where to start is a whole number of no dimensions; here it is no whole number."""
    start = call.tensor("start", 2)
    if start is None or start.ndim or start.dtype.startswith(("int", "uint")):
        return None
    rule = f"Where a part starts is a whole number: {start.name} is {start.dtype}."
    return mismatch("dtype", rule, whole(start, start.dtype, "int64"), works=[converted(start, "int64")])


def write_keeps_dtype(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Result type Float can't be cast to the desired output type Long."""
    result, target = dtype_of(found[1]), dtype_of(found[2])
    wrong = next((one for one in call.tensors if one.dtype == target), None)
    if wrong is None:
        return None
    if not call.in_place:
        rule = f"The dtype of {wrong.name} must be {result}, that of the result, and is {target}."
        others = [whole(one, one.dtype, target) for one in call.tensors if one.dtype == result][:1]
        return mismatch("dtype", rule, whole(wrong, target, result), *others, works=[converted(wrong, result)])
    rule = (
        f"An in-place operation keeps the dtype of what it writes to: the result is {result}, and {wrong.name} is "
        f"{target}."
    )
    return mismatch("dtype", rule, whole(wrong, target, result), works=[f"{wrong.code} = {converted(wrong, result)}"])


# -- one dtype that a function does not take -----------------------------------------------------------------------


def not_implemented(call: Call, found: re.Match[str]) -> Mismatch | None:
    """'"softmax_lastdim_kernel_impl" not implemented for 'Long''."""
    return unsuitable(call, dtype_of(found[1]))


def named_dtype(call: Call, found: re.Match[str]) -> Mismatch | None:
    """A message that names the dtype which is not taken."""
    return unsuitable(call, dtype_of(found[1]))


def unsuitable(call: Call, dtype: str) -> Mismatch | None:
    """Explain a dtype that the function does not take."""
    wrong = next((one for one in call.tensors if one.dtype == dtype), None)
    if wrong is None:
        return None
    wanted = _instead(call, dtype)
    kind = _NUMBERS.get(wanted, wanted)
    both = [one for one in call.tensors if one.dtype == dtype]
    if call.function in _BITWISE and len(both) > 1:
        names = f"{both[0].name} and {both[1].name}"
        rule = f"The operator {call.title} is for booleans and whole numbers: {names} are {dtype}."
        works = [f" {_BITWISE[call.function]} ".join(converted(one, wanted) for one in both)]
        return mismatch("dtype", rule, *(whole(one, dtype, wanted) for one in both), works=works)
    rule = f"The call {call.title} takes {kind}, and {wrong.name} is {dtype}."
    if floating(dtype) and floating(wanted):
        rule = f"The call {call.title} does not exist for {dtype} on this device, and {wrong.name} is {dtype}."
    return mismatch("dtype", rule, whole(wrong, dtype, wanted), works=[converted(wrong, wanted)])


_NUMBERS = {"float32": "floating point numbers", "int64": "whole numbers", "bool": "booleans"}
_BITWISE = {"and": "&", "or": "|", "xor": "^"}
_WHOLE = frozenset({"bitwise_and", "bitwise_or", "bitwise_xor", "and", "or", "xor", "lshift", "rshift", "bincount",
                    "invert", "gcd", "lcm", "bitwise_not", "one_hot", "bitwise_left_shift",
                    "bitwise_right_shift"})  # fmt: skip


def _instead(call: Call, dtype: str) -> str:
    if call.function in _WHOLE:
        return "bool" if call.function in {"and", "or", "xor", "invert"} else "int64"
    return "float32" if dtype != "float32" else "float64"


def floats_wanted(call: Call, _: re.Match[str]) -> Mismatch | None:
    """A message that asks for floating point and names no dtype."""
    wrong = next((one for one in call.tensors if not floating(one.dtype) and not one.dtype.startswith("complex")), None)
    if wrong is None:
        return None
    rule = f"The call {call.title} takes floating point numbers, and {wrong.name} is {wrong.dtype}."
    return mismatch("dtype", rule, whole(wrong, wrong.dtype, "float32"), works=[converted(wrong, "float32")])


def gradient_needs_floats(call: Call, _: re.Match[str]) -> Mismatch | None:
    """Only Tensors of floating point and complex dtype can require gradients."""
    wrong = next((one for one in call.tensors if not floating(one.dtype)), None)
    rule = "Gradients exist for floating point and complex numbers only"
    if wrong is None:
        return mismatch("dtype", rule + ": write whole numbers with a point, 1.0, or give dtype=torch.float32.")
    works = [converted(wrong, "float32")]
    return mismatch(
        "dtype", f"{rule}, and {wrong.name} is {wrong.dtype}.", whole(wrong, wrong.dtype, "float32"), works=works
    )


# -- indices, masks, targets ---------------------------------------------------------------------------------------


def index_dtype(call: Call, _: re.Match[str]) -> Mismatch | None:
    """Indices are whole numbers."""
    position = {"embedding": 0, "embedding_bag": 0, "one_hot": 0, "getitem": 1, "setitem": 1, "take": 1}
    index = call.tensor("index|indices", position.get(call.function, 2))
    if index is None or floating(index.dtype) is False:
        index = next((one for one in call.tensors if floating(one.dtype) and one is not _table(call)), None)
    if index is None:
        return None
    rule = f"An index is a whole number, int64: {index.name} is {index.dtype}."
    works = [converted(index, "int64")]
    return mismatch("dtype", rule, whole(index, index.dtype, "int64"), works=works)


def _table(call: Call) -> Given | None:
    if call.function in {"embedding", "embedding_bag"}:
        return call.tensor("weight", 1)
    return call.tensor("input|self", 0) if call.function != "one_hot" else None


def mask_dtype(call: Call, found: re.Match[str]) -> Mismatch | None:
    """masked_fill_ only supports boolean masks; where expects a boolean condition."""
    dtype = dtype_of(found[1])
    mask = call.tensor("mask|condition", 0 if call.function == "where" else 1)
    if mask is None or mask.dtype != dtype:
        mask = next((one for one in call.tensors if one.dtype == dtype), None)
    if mask is None:
        return None
    works = [f"{mask.code} > 0" if floating(dtype) else f"{mask.code}.bool()", f"{mask.code}.bool()"]
    return mismatch(
        "dtype", f"A mask is boolean: {mask.name} is {mask.dtype}.", whole(mask, mask.dtype, "bool"), works=works
    )


def boolean_arithmetic(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Negation and subtraction of booleans."""
    masks = [one for one in call.tensors if one.dtype == "bool"]
    if not masks:
        return None
    names = [one.code for one in masks]
    works = [f"~{names[0]}"] if found[0].startswith("Negation") or len(masks) < 2 else [f"{names[0]} ^ {names[1]}"]
    rule = f"The operator - is not for booleans, and {masks[0].name} is a mask; masks are inverted with ~."
    return mismatch("dtype", rule, *(whole(one, "bool", "float32") for one in masks), works=works)


def source_dtype(call: Call, _: re.Match[str]) -> Mismatch | None:
    """scatter(): Expected self.dtype to be equal to src.dtype; index_put likewise."""
    target = call.tensor("input|self", 0)
    source = next((one for one in call.tensors[::-1] if target is not None and one.dtype != target.dtype
                   and one.operand.role not in {"index", "indices", "mask"} and one is not target), None)  # fmt: skip
    if target is None or source is None:
        return None
    rule = (
        f"What is written must have the dtype of what it is written to: {source.name} is {source.dtype}, "
        f"{target.name} {target.dtype}."
    )
    parts = whole(source, source.dtype, target.dtype), whole(target, target.dtype, source.dtype)
    return mismatch("dtype", rule, *parts, works=[converted(source, target.dtype)])


def result_dtype(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Expected out tensor to have dtype float, but got double instead."""
    got = dtype_of(found[found.re.groups])
    out = next((one for one in call.given if one.operand.is_tensor and one.operand.dtype == got
                and (one.operand.role == "out" or one.operand.place.startswith("out"))), None)  # fmt: skip
    if out is None:
        return None
    wanted = dtype_of(found[1])
    rule = f"The tensor given as out must have the dtype of the result, {wanted}: {out.name} is {got}."
    return mismatch("dtype", rule, whole(out, got, wanted))


def asked_dtype(call: Call, found: re.Match[str]) -> Mismatch | None:
    """mean(): Optional dtype must be floating point: what is wrong is the argument."""
    asked = next((one for one in call.given if one.operand.role == "dtype"), None)
    if asked is None:
        return None
    rule = f"A mean is a floating point number, and dtype={asked.operand.text} asks for another."
    return mismatch("dtype", rule, whole(asked, dtype_of(found[1]), "float32"))


def window_dtype(call: Call, found: re.Match[str]) -> Mismatch | None:
    """torch.signal.windows: what is wrong is the dtype that was asked for."""
    asked = next((one for one in call.given if one.operand.role == "dtype"), None)
    rule = f"A window consists of float32 or float64 numbers, and dtype=torch.{found[1]} asks for others."
    return mismatch("dtype", rule, whole(asked, found[1], "float32")) if asked is not None else None


def value_dtype(call: Call, _: re.Match[str]) -> Mismatch | None:
    """masked_fill: a complex number does not go into a tensor of real ones."""
    target, value = call.tensor("input|self", 0), call.tensor("value", 2)
    plain = next((one for one in call.given if one.operand.role == "value" or one.position == 2), None)
    if target is None or plain is None:
        return None
    what = value.dtype if value is not None else plain.operand.text
    rule = f"The value must be one that the dtype of {target.name}, {target.dtype}, can hold: it is {what}."
    return mismatch("dtype", rule, whole(value or plain, what, target.dtype))


def argument_dtype(call: Call, found: re.Match[str]) -> Mismatch | None:
    """cov(): expected fweights to have integral dtype but got fweights with Float dtype."""
    given = call.tensor(found[1])
    if given is None:
        return None
    wanted = "int64" if found[2] == "integral" else "float32"
    rule = (
        f"The {found[1]} are {'whole' if wanted == 'int64' else 'floating point'} numbers: {given.name} is "
        f"{given.dtype}."
    )
    return mismatch("dtype", rule, whole(given, given.dtype, wanted), works=[converted(given, wanted)])


_NAMES = r"([\w:<> ]+?)"
MESSAGES = (
    (r"must have the same dtype, but got (\w+) and (\w+)", differ),
    (r"expected m1 and m2 to have the same dtype, but got: ([\w:<> ]+?) != ([\w:<> ]+?)\s*$", differ),
    (r"Input type \(torch\.(?:\w+\.)?(\w+)\) and (?:bias|weight) type \(torch\.(?:\w+\.)?(\w+)\)", differ),
    (r"convert a (?:MPS) [Tt]ensor to (float64) dtype", lambda call, _: any_floating(call, "float64")),
    (rf"Input type \({_NAMES}\) and (?:bias|weight) type \({_NAMES}\) should be the same", differ),
    (r"expected both vectors to have same dtype, but found (\w+) and (\w+)", differ),
    (r"self \((\w+)\) and source \((\w+)\) must have the same scalar type", differ),
    (r"Type promoting not supported\. Got (\w+) and (\w+)", differ),
    (r"input dtype \(torch\.(\w+)\) does not match weight dtype \(torch\.(\w+)\)", layer_dtype),
    (r"Expected both inputs to be Half, Float or Double tensors but got (\w+) and (\w+)", differ),
    (r"query, key, and value to have the same dtype", mixed),
    (r"Index put requires the source and destination dtypes match", source_dtype),
    (r"Expected self\.dtype to be equal to src\.dtype", source_dtype),
    (r"mixed dtype|all inputs must share same datatype", mixed),
    (r"Expected object of scalar type (\w+) but got scalar type (\w+) for argument 'out'", result_dtype),
    (r"Expected object of scalar type (?P<wanted>\w+) but got scalar type (?P<got>\w+) for", expected_but_found),
    (r"Found dtype (?P<got>\w+) but expected (?P<wanted>\w+)", expected_but_found),
    (r"expected scalar type (?P<wanted>\w+) but found (?P<got>\w+)", expected_but_found),
    (r"expected dtype (?P<wanted>\w+) for `\w+` but got dtype (?P<got>\w+)", expected_but_found),
    (r"result type (\w+) can't be cast to the desired output type (\w+)", write_keeps_dtype),
    (r"Expected out tensor to have dtype (\w+), but got (\w+)", result_dtype),
    (r"Expected the dtype for input and out to match, but got (\w+) for input's dtype and (\w+)", result_dtype),
    (r"expects (\w+) tensor out, got: (\w+)", result_dtype),
    (r"Optional dtype must be either a floating point or complex dtype\. Got: (\w+)", asked_dtype),
    (r"expected (\w+) to have (integral|floating point) dtype but got", argument_dtype),
    (r"can require gradients", gradient_needs_floats),
    (r"start must be an 0-dim integral Tensor", start_dtype),
    (r"tensors used as indices must be long", index_dtype),
    (r"Expected dtype int32(?:/| or )int64 for index", index_dtype),
    (r"argument #\d 'indices' to have one of the following scalar types", index_dtype),
    (r"only applicable to index tensor", index_dtype),
    (r"only supports boolean masks, but got mask with dtype (\w+)", mask_dtype),
    (r"where expected condition to be a boolean tensor, but got a tensor with dtype (\w+)", mask_dtype),
    (r"(Negation|Subtraction), the `-` operator", boolean_arithmetic),
    (r"Unsupported dtype (\w+)", named_dtype),
    (r"not implemented for '(\w+)'", not_implemented),
    ((r"(?:Expected a floating point or complex tensor|floating point or complex dtype|only supports"
      r" floating-point dtypes|Low precision dtypes not supported).*[Gg]ot:? (\w+)"), named_dtype),
    (r"expects float32 or float64 dtypes, got: torch\.(\w+)", window_dtype),
    (r"value cannot be converted to type (\w+?)(?:_t)? without overflow", value_dtype),
    (r"(Boolean) inputs not supported", lambda call, _: unsuitable(call, "bool")),
    (r"std and var only support floating|must be either float or double dtype|floating point dtype", floats_wanted),
    (r"implemented on integer and Boolean-type tensors", lambda call, _: unsuitable(call, "float32")),
)  # fmt: skip
