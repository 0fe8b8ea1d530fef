"""Operands on different devices or of different dtypes, and dtypes that a function does not take."""

from __future__ import annotations

import re

from tensormagic.diagnoses.mismatches.call import Call, Given, as_dtype, dtype_of, mismatch
from tensormagic.diagnoses.mismatches.table import Messages
from tensormagic.diagnoses.rule import grouped, is_floating
from tensormagic.reports import Mismatch
from tensormagic.words import is_or_are, listed

says = Messages(globals())

_FILLED = "gives memory, and a state_dict has to be loaded into it"
# Names of operands that are data, and are made to fit their partner; a model's parameters are not.
_PARAMETER = re.compile(r"(^|\.)(weight|bias|running_mean|running_var|in_proj_weight|in_proj_bias)\w*$")
_NAME = r"[\w:<> ]+?"


def _is_parameter(call: Call, given: Given) -> bool:
    """Whether an operand is a layer's own, by its role and name; the weight of a loss is data."""
    if given.role == "weight" and ("loss" in call.function or "entropy" in call.function):
        return False
    name = given.role if given.role not in {"", "self", "input", "other"} else given.operand.name
    return bool(_PARAMETER.search(name)) or (given.operand.requires_grad and given.operand.is_leaf)


def _wrong(given: Given, rule: str, wanted: str) -> Mismatch:
    """Return a mismatch of one tensor that must have another dtype."""
    return mismatch("dtype", rule, given.whole(given.dtype, wanted), works=[as_dtype(given.code, wanted)])


says.table(r"""
# -- devices

Torch not compiled with CUDA enabled|No CUDA GPUs are available|Found no NVIDIA driver
Cannot access accelerator device when none is available|torch\.cuda\.\w+ requires CUDA support
dummy base class (?:Event|Stream|CUDAGraph|_CUDAGraph)|without ATen_cuda library|has no attribute '_cuda_
    argument: Torch finds no GPU that it can use: torch.cuda.is_available() is False.
    try: device = "cuda" if torch.cuda.is_available() else "cpu"

(?:from the '|compiled with )(?P<name>MPS|XPU)(?:' backend| enabled)
    with kind: name.lower(); with there: {"mps": "torch.backends.mps", "xpu": "torch.xpu"}[kind] + ".is_available()"
    argument: Torch finds no device of the kind {kind} that it can use: {there} is False.
    try: device = "{kind}" if {there} else "cpu"

Expected one of cpu, cuda, .* device type at start of device string: (?P<name>\w+)
Invalid device string: '(?P<name>.*?)'
    with told: {"gpu": ": write cuda (or mps, xpu)"}.get(name, "")
    argument: A device is a kind that torch knows, with a number where there are several, as in cuda:1. There is no
        kind {name}{told}.

Cannot copy out of meta tensor; no data! Please use torch\.nn\.Module\.to_empty
    device: The parameters of {call.receiver or "this module"} are on the meta device, and have shapes but no values to
        copy: {call.receiver or "its"}.to_empty(device=…) {_FILLED}.

Cannot copy out of meta tensor|cannot be called on meta tensors|can't convert [\w:]+ device type tensor to numpy
    with wrong: first one.device == "meta"; with name: wrong.operand.name
    device: A tensor on the meta device has a shape but no values, and {wrong.name} is on meta.
    parts: wrong.device must be cpu
    maybe: {name.split(".")[0]}.to_empty(device="cpu")  # then load the weights when "." in name

can't convert [\w:]+ device type tensor to numpy
    device: NumPy only reads CPU memory, but {first.name} is on {first.device}.
    parts: first.device must be cpu; try: {first.code}.cpu().numpy()

Expected a '(?P<wanted>\w+)' (?:device type|generator device) (?:for generator )?but found '(?P<got>\w+)'
    with given: [one for one in call.given if "generator" in (one.role, one.operand.name)
        or "Generator" in one.text][:1]
    with name: call.written("generator") or " ".join([one.operand.name for one in given])
    device: A generator draws numbers on its own device only: {name or "the generator"} is on {got}, but the numbers
        should be on {wanted}.
    with tensors: [one for one in call.tensors if one.device.split(":")[0] == wanted][:1]
    parts: one is {got} must be {wanted} for one in given; parts: one.device must be {got} for one in tensors
    try: {name or "generator"} = torch.Generator(device="{wanted}").manual_seed(0)

# -- two dtypes that must be one

convert a MPS [Tt]ensor to float64 dtype
    with wrong: first one.dtype == "float64" and one.role != "bias"
    dtype: The device does not support float64, but {wrong.name} is float64.
    parts: wrong.dtype must be float32; try: {wrong.code}.float()

# The input of a recurrent layer, whose weights are no operands.
input dtype \(torch\.(?P<got>\w+)\) does not match weight dtype \(torch\.(?P<wanted>\w+)\)
input must have the type torch\.(?P<wanted>\w+), got type torch\.(?P<got>\w+)
    with wrong: first one.dtype == got
    dtype: The input must have the dtype of the layer, {wanted}: {wrong.name} is {got}.
    parts: wrong.dtype must be {wanted}; try: {as_dtype(wrong.code, wanted)}
    try: {as_dtype(call.model, got)} when is_floating(got) and call.model

Index put requires the source and destination dtypes match|Expected self\.dtype to be equal to src\.dtype
    with wrong: last one.dtype != first.dtype and one.role not in ("index", "indices", "mask")
    dtype: The source must have the dtype of its target: {wrong.name} is {wrong.dtype}, {first.name} {first.dtype}.
    parts: wrong.dtype must be {first.dtype}; first.dtype must be {wrong.dtype}
    try: {as_dtype(wrong.code, first.dtype)}

result type {result:dtype} can't be cast to the desired output type {target_dtype:dtype}
    with name: call.report.function.rsplit(".", 1)[-1]; with wrong: first one.dtype == target_dtype
    if: name.startswith("__i") or name.endswith("_") and not name.endswith("__")
    dtype: An in-place operation keeps the dtype of what it writes to: the result is {result}, and {wrong.name} is
        {wrong.dtype}.
    parts: wrong.dtype must be {result}
    try: {f"{wrong.code} = " if wrong.can_be_assigned else ""}{as_dtype(wrong.code, result)}

result type {result:dtype} can't be cast to the desired output type {target_dtype:dtype}
    with wrong: first one.dtype == target_dtype; with others: all one.dtype == result
    dtype: The dtype of {wrong.name} must be {result}, that of the result, and is {wrong.dtype}.
    parts: wrong.dtype must be {result}; parts: one.dtype must be {wrong.dtype} for one in others[:1]
    try: {as_dtype(wrong.code, result)}

Expected object of scalar type {wanted:dtype} but got scalar type {got:dtype} for argument 'out'
Expected out tensor to have dtype {wanted:dtype}, but got {got:dtype}
Expected the dtype for input and out to match, but got {wanted:dtype} for input's dtype and {got:dtype}
expects {wanted:dtype} tensor out, got: {got:dtype}
    with out: [one for one in outs if one.is_tensor and one.dtype == got][0]
    dtype: The tensor given as out must have the dtype of the result, {wanted}: {out.name} is {got}.
    parts: out.dtype must be {wanted}

# -- one dtype that a function does not take

Optional dtype must be either a floating point or complex dtype\. Got: {got:dtype}
    dtype: A mean is a floating-point number, but dtype={dtype_given.text} is not.
    parts: dtype_given is {got} must be float32

start must be an 0-dim integral Tensor
    if: start.ndim == 0 and not start.dtype.startswith(("int", "uint"))
    dtype: The start of a slice must be a whole number: {start.name} is {start.dtype}.
    parts: start.dtype must be int64; try: {start.code}.long()

expects float32 or float64 dtypes, got: torch\.(?P<got>\w+)
    dtype: A window holds float32 or float64 numbers, but dtype=torch.{got} was requested.
    parts: dtype_given is {got} must be float32

expected {role:word} to have (?P<kind>integral|floating point) dtype but got
    with wrong: call.tensor(role); with wanted: "int64" if kind == "integral" else "float32"
    dtype: The {role} are {"whole" if kind == "integral" else kind} numbers: {wrong.name} is {wrong.dtype}.
    parts: wrong.dtype must be {wanted}; try: {as_dtype(wrong.code, wanted)}

can require gradients
    with wrong: first not is_floating(one.dtype)
    dtype: Gradients exist for floating point and complex numbers only, and {wrong.name} is {wrong.dtype}.
    parts: wrong.dtype must be float32; try: {wrong.code}.float()

can require gradients
    dtype: Gradients exist for floating point and complex numbers only: write whole numbers with a point, 1.0, or give
        dtype=torch.float32.

(?P<operator>Negation|Subtraction), the `-` operator
    with masks: every one.dtype == "bool"; with one_mask: operator == "Negation" or len(masks) < 2
    dtype: The operator - does not work on booleans, and {masks[0].name} is a mask; invert masks with ~.
    parts: one is bool must be float32 for one in masks; try: ~{masks[0].code} when one_mask
    try: {masks[0].code} ^ {masks[1].code} when not one_mask

std and var only support floating|must be either float or double dtype|floating point dtype
    with wrong: first not is_differentiable(one.dtype)
    dtype: The call {call.title} takes floating point numbers, and {wrong.name} is {wrong.dtype}.
    parts: wrong.dtype must be float32; try: {wrong.code}.float()

tensors used as indices must be long
Expected dtype int32(?:/| or )int64 for index
argument #\d 'indices' to have one of the following scalar types
only applicable to index tensor
    with embeds: call.function in ("embedding", "embedding_bag")
    with places: {"one_hot": 0, "getitem": 1, "setitem": 1, "take": 1}
    with named: [call.tensor("index|indices", 0 if embeds else places.get(call.function, 2))]
    with tables: [call.tensor("weight", 1) if embeds else call.function != "one_hot" and call.tensor("input|self", 0)]
    with others: [one for one in call.tensors if one is not tables[0]]
    with index: [one for one in (*named, *others) if one and is_floating(one.dtype)][0]
    dtype: An index is a whole number, int64: {index.name} is {index.dtype}.
    parts: index.dtype must be int64; try: {index.code}.long()

only supports boolean masks, but got mask with dtype {got:dtype}
where expected condition to be a boolean tensor, but got a tensor with dtype {got:dtype}
    with named: [call.tensor("mask|condition", 0 if call.function == "where" else 1)]
    with mask: [one for one in (*named, *call.tensors) if one and one.dtype == got][0]
    dtype: A mask is boolean: {mask.name} is {got}.
    parts: mask.dtype must be bool; try: {mask.code} > 0 when is_floating(got); try: {mask.code}.bool()

value cannot be converted to type \w+ without overflow
    with values: [one for one in call.given if one.role == "value" or one.position == 2]
    with tensors: [one for one in [call.tensor("value", 2)] if one]; with given: (tensors or values)[0]
    with what: given.dtype if tensors else given.text
    dtype: The value must be one that the dtype of {first.name}, {first.dtype}, can hold: it is {what}.
    parts: given is {what} must be {first.dtype}
""")


@says(
    r"on the same device|at the same device|not on the expected device|at least two devices"
    r"|different from other tensors on",
    r"Input type \(torch\.[\w.]+\) and (?:bias|weight) type \(torch\.[\w.]+\) should be the same",
    r"is on \S+ but expected (?:it |them )?(?:to be )?on \S+",
    r"Placeholder storage has not been allocated on",
)
def devices(call: Call) -> Mismatch | None:
    """Explain operands on different devices: whatever the message names, the operands say which is where."""
    found = grouped(call.tensors, lambda one: one.device)
    if len(found) > 2 and all(not one.ndim for one in found.get("cpu", [])):
        found.pop("cpu", None)  # a single number on the CPU goes with every device
    if len(found) < 2:
        return None
    left, right = (ones[0] for ones in list(found.values())[:2])
    if _is_parameter(call, left) and not _is_parameter(call, right):
        left, right = right, left
    where = [f"{listed(one.name for one in ones)} {is_or_are(len(ones))} on {at}" for at, ones in found.items()]
    if "meta" in found:
        other = next(at for at in found if at != "meta")
        filled = f': {call.model or "its module"}.to_empty(device="{other}") {_FILLED}'
        where.append(
            f"a meta tensor has a shape but no values{filled if _is_parameter(call, found['meta'][0]) else ''}"
        )
    parts = [one.whole(at, (right if at == left.device else left).device) for at, ones in found.items() for one in ones]
    rule = f"All operands must be on one device: {'; '.join(where)}."
    return mismatch("device", rule, *parts, works=_to_one_device(call, left, right))


def _to_one_device(call: Call, given: Given, fixed: Given) -> list[str]:
    """Return how the two come together: data to where the parameters are, and away from the CPU; never out of meta."""
    if "meta" in {given.device, fixed.device}:
        return []  # what is made in its place has to be given values
    if not _is_parameter(call, fixed) and fixed.device == "cpu":
        given, fixed = fixed, given
    ways = [f"{given.code}.to({fixed.code}.device)"]
    moves = _is_parameter(call, fixed) and call.model and given.device != "cpu"
    return [*ways, f'{call.model}.to("{given.device}")'] if moves else ways


def _having(call: Call, dtype: str) -> Given | None:
    """Return an operand of a dtype: data before parameters, weights before biases."""
    return min(call.every(lambda one: one.dtype == dtype), key=lambda one: one.role == "bias", default=None)


@says(r"query, key, and value to have the same dtype|mixed dtype|all inputs must share same datatype")
def any_two(call: Call) -> Mismatch:
    """Explain the first two operands whose dtypes differ."""
    return _clash(call, call.tensors[0], call.every(lambda one: one.dtype != call.tensors[0].dtype)[0])


def _clash(call: Call, left: Given, right: Given) -> Mismatch:
    """Convert data before parameters, whole numbers before floating ones, and these to float32."""
    kept = {"float64": 0, "float32": 2}
    given, fixed = sorted(
        (left, right), key=lambda one: (_is_parameter(call, one), is_floating(one.dtype), kept.get(one.dtype, 1))
    )
    other = call.model if _is_parameter(call, fixed) else fixed.code  # one layer alone would not fit the next
    works = [
        as_dtype(given.code, fixed.dtype),
        as_dtype(other, given.dtype) if other and is_floating(given.dtype) else "",
    ]
    rule = f"Both must have the same dtype: {left.name} is {left.dtype} and {right.name} is {right.dtype}."
    # Numbers that have a gradient, or get one, never become whole ones.
    wrong = [given] if is_floating(fixed.dtype) and not is_floating(given.dtype) else [left, right]
    parts = (one.whole(one.dtype, (right if one is left else left).dtype) for one in wrong)
    return mismatch("dtype", rule, *parts, works=works)


@says(
    r"(?:must have the same dtype, but got|expected both vectors to have same dtype, but found|Type promoting not"
    r" supported\. Got|Expected both inputs to be Half, Float or Double tensors but got) {one:dtype} and {other:dtype}",
    rf"expected m1 and m2 to have the same dtype, but got: (?P<one>{_NAME}) != (?P<other>{_NAME})\s*$",
    r"Input type \(torch\.(?:\w+\.)?{one:dtype}\) and (?:bias|weight) type \(torch\.(?:\w+\.)?{other:dtype}\)",
    rf"Input type \((?P<one>{_NAME})\) and (?:bias|weight) type \((?P<other>{_NAME})\) should be the same",
    r"self \({one:dtype}\) and source \({other:dtype}\) must have the same scalar type",
)
def _differ(call: Call, one: str, other: str) -> Mismatch:
    left, right = (_having(call, dtype_of(name)) for name in (one, other))
    if left is None or right is None or dtype_of(one) == dtype_of(other):
        return any_two(call)
    return _clash(call, left, right)


@says(
    r"Expected object of scalar type {wanted:dtype} but got scalar type {got:dtype} for",
    r"Found dtype {got:dtype} but expected {wanted:dtype}",
    r"expected scalar type {wanted:dtype} but found {got:dtype}",
    r"expected dtype {wanted:dtype} for `\w+` but got dtype {got:dtype}",
)
def _expected_but_found(call: Call, wanted: str, got: str) -> Mismatch:
    wrong, right = call.every(lambda one: one.dtype == got), _having(call, wanted)
    if not wrong:
        return any_two(call)
    if right is None:
        return _wrong(wrong[-1], f"The dtype of {wrong[-1].name} must be {wanted}, and is {got}.", wanted)
    return _clash(call, *sorted((wrong[-1], right), key=lambda one: one.index))


_NUMBERS = {"float32": "floating point numbers", "int64": "whole numbers", "bool": "booleans"}
_BITWISE = {"and": "&", "or": "|", "xor": "^"}
_WHOLE = frozenset({"bitwise_and", "bitwise_or", "bitwise_xor", "and", "or", "xor", "lshift", "rshift", "bincount",
                    "invert", "gcd", "lcm", "bitwise_not", "one_hot", "bitwise_left_shift",
                    "bitwise_right_shift"})  # fmt: skip


@says(
    r"Unsupported dtype {got:dtype}",
    r"not implemented for '{got:dtype}'",
    r"(?:Expected a floating point or complex tensor|floating point or complex dtype|only supports"
    r" floating-point dtypes|Low precision dtypes not supported).*[Gg]ot:? {got:dtype}",
)
@says(r"Boolean inputs not supported", got="bool")
@says(r"implemented on integer and Boolean-type tensors", got="float32")
def _unsuitable(call: Call, got: str) -> Mismatch:
    wrong = call.every(lambda one: one.dtype == got)
    wanted = "float32" if got != "float32" else "float64"
    if call.function in _WHOLE:
        wanted = "bool" if call.function in {"and", "or", "xor", "invert"} else "int64"
    name = wrong[0].name
    if (sign := _BITWISE.get(call.function.removeprefix("bitwise_"))) and is_floating(got):
        which = f"{listed(one.name for one in wrong)} {is_or_are(len(wrong))} {got}"
        rule = f"The operator {sign} combines booleans or whole numbers, and {which}: compare with a number first."
        return mismatch("dtype", rule, *(one.whole(got, wanted) for one in wrong))
    if got.startswith("complex"):  # of which a conversion would lose the imaginary part
        works = [f"{wrong[0].code}.abs()", f"{wrong[0].code}.real"]
        parts = (one.whole(got, wanted) for one in wrong)
        return mismatch("dtype", f"The call {call.title} takes real numbers, and {name} is {got}.", *parts, works=works)
    rule = f"The call {call.title} takes {_NUMBERS.get(wanted, wanted)}, and {name} is {got}."
    if is_floating(got) and is_floating(wanted):
        rule = f"The call {call.title} does not exist for {got} on this device, and {name} is {got}."
    return _wrong(wrong[0], rule, wanted)
