"""Convolutions, pooling and normalisations: channels, kernels larger than the input, how many dimensions there are."""

from __future__ import annotations

import re

from tensormagic.diagnoses.mismatches.broadcasting import numbers
from tensormagic.diagnoses.mismatches.call import Call, Given, mismatch, size, sizes, whole
from tensormagic.reports import Mismatch


def channels(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Given groups=1, weight of size [8, 3, 3, 3], expected input[1, 1, 28, 28] to have 3 channels, but got 1."""
    weight, given = call.of_shape(numbers(found[1])) or call.tensor("weight", 1), call.tensor("input", 0)
    if weight is None or given is None:
        return None
    takes, got, spatial = int(found[2]), int(found[3]), weight.ndim - 2
    at = given.ndim - spatial - 1
    if not 0 <= at < given.ndim or given.shape[at] != got:
        return None
    of_weight = 0 if "transpose" in call.function else 1
    owner = call.owner or weight.sized
    rule = f"The channels of {given.sized} are dimension {at}, and there are {got} of them, but {owner} takes {takes}."
    parts = size(given, at, takes), size(weight, of_weight, got)
    return mismatch("shape", rule, *parts, works=_channel_ways(call, given, at, takes))


def _channel_ways(call: Call, given: Given, at: int, takes: int) -> list[str]:
    ways = []
    if given.ndim > 2 and given.shape[-1] == takes and at != given.ndim - 1:
        order = [*range(at), given.ndim - 1, *range(at, given.ndim - 1)]
        short = f"{given.code}.transpose({at}, {given.ndim - 1})"
        ways.append(short if given.ndim - 1 - at == 1 else f"{given.code}.permute({', '.join(map(str, order))})")
    if given.ndim > 1 and at == 1 and given.shape[0] == takes:
        ways.append(f"{given.code}.transpose(0, 1)")
    if at == 0 and takes == 1:
        ways.append(f"{given.code}.unsqueeze(1)")
    layer = {"conv1d": "Conv1d", "conv2d": "Conv2d", "conv3d": "Conv3d"}.get(call.function, "")
    weight = call.tensor("weight", 1)
    if layer and weight is not None:
        ways.append(f"nn.{layer}({given.shape[at]}, {weight.shape[0]}, {_kernel(weight)})")
    return ways


def _kernel(weight: Given) -> str:
    kernel = weight.shape[2:]
    return str(kernel[0]) if len(set(kernel)) == 1 else f"({', '.join(map(str, kernel))})"


def kernel_too_large(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Kernel size can't be greater than actual input size."""
    given, weight = call.tensor("input", 0), call.tensor("weight", 1)
    if given is None or weight is None:
        return None
    padded, kernel = numbers(found[1]), numbers(found[2])
    spatial = len(kernel)
    wrong = [at - spatial for at in range(spatial) if kernel[at] > padded[at]]
    parts = [part for at in wrong for part in (size(given, at, kernel[at]), size(weight, at, padded[at]))]
    rule = (
        f"The kernel must fit into the input: {sizes(kernel)} against {sizes(padded)} in {given.sized}, its padding "
        "included; the layers before it have made it too small, or the kernel is too large."
    )
    return mismatch("shape", rule, *parts)


def nothing_left(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Given input size: (3x2x2). Calculated output size: (3x0x0). Output size is too small."""
    given = call.tensor("input|self", 0)
    if given is None:
        return None
    before, after = numbers(found[1].replace("x", " ")), numbers(found[2].replace("x", " "))
    spatial = [at for at in range(-len(after), 0) if after[at] < 1 and before[at] != after[at] and -at <= given.ndim]
    kernel = numbers(call.value("kernel_size", 1))
    rule = (
        f"The window of a pooling must fit into the input: {given.sized} is smaller than the window"
        f"{f' of {sizes(kernel)}' if kernel else ''}, so that nothing is left."
    )
    return mismatch("shape", rule, *(size(given, at, _along(kernel, at)) for at in spatial))


def _along(kernel: tuple[int, ...], at: int) -> object:
    """Return the size of a window along a dimension, counted from the right; one number stands for all."""
    return "" if not kernel else kernel[0] if len(kernel) == 1 else kernel[at] if -at <= len(kernel) else ""


def no_output(call: Call, _: re.Match[str]) -> Mismatch | None:
    """max_pool1d() Invalid computed output size: -2."""
    given = call.tensor("input|self", 0)
    if given is None or not given.ndim:
        return None
    kernel = call.value("kernel_size", 1)
    rule = (
        f"The window of a pooling must fit into the input: the last dimension of {given.sized} is shorter than "
        f"{kernel or 'it'}."
    )
    return mismatch("shape", rule, size(given, -1, kernel))


def bias_size(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Expected bias to be 1-dimensional with 8 elements, but got bias of size [4] instead."""
    bias, weight = call.tensor("bias", 2), call.tensor("weight", 1)
    if bias is None or weight is None:
        return None
    rule = f"The bias has one element for each output channel, {found[1]} of them: {bias.sized}."
    return mismatch(
        "shape", rule, whole(bias, sizes(bias.shape), found[1]), size(weight, 0, bias.shape[0] if bias.ndim else "")
    )


def too_few_for_groups(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Given groups=3, expected weight to be at least 3 at dimension 0."""
    weight = call.tensor("weight", 1)
    if weight is None:
        return None
    rule = f"Each of the {found[1]} groups needs an output channel of its own: {weight.sized} has {weight.shape[0]}."
    return mismatch("shape", rule, size(weight, 0, found[1]))


def weight_dimensions(call: Call, _: re.Match[str]) -> Mismatch | None:
    """Weight should have at least three dimensions; input and weight must have as many."""
    weight, given = call.tensor("weight", 1), call.tensor("input", 0)
    named = re.search(r"(\d)d$", call.function)
    if weight is None or given is None:
        return None
    spatial = int(named[1]) if named else max(weight.ndim - 2, 1)
    if weight.ndim == spatial + 2:  # as older versions of torch say it of the input
        rule = (
            f"The input of {call.owner or call.title} has {weight.ndim} dimensions, and {given.sized} has {given.ndim}."
        )
        works = [f"{given.code}.unsqueeze(0)"] if given.ndim == spatial + 1 else []
        return mismatch("shape", rule, whole(given, f"{given.ndim}-D", f"{weight.ndim}-D"), works=works)
    rule = f"The weight of {call.title} has {spatial + 2} dimensions, and {weight.sized} has {weight.ndim}."
    return mismatch("shape", rule, whole(weight, f"{weight.ndim}-D", f"{spatial + 2}-D"))


# -- normalisations ------------------------------------------------------------------------------------------------


def running_statistics(call: Call, found: re.Match[str]) -> Mismatch | None:
    """running_mean should contain 8 elements not 16; weight likewise."""
    given = call.tensor("input", 0)
    other = call.tensor(found[1], 1)
    if given is None or given.ndim < 2:
        return None
    takes, got = int(found[3]), given.shape[1]
    parts = [size(given, 1, takes)] + ([size(other, 0, got)] if other is not None and other.ndim else [])
    owner = call.owner or call.title
    layer = {2: "BatchNorm1d", 3: "BatchNorm1d", 4: "BatchNorm2d", 5: "BatchNorm3d"}.get(given.ndim, "")
    ways = [f"nn.{layer}({got})"] if layer and call.function == "batch_norm" else []
    rule = (
        f"The channels of {given.sized} are dimension 1, and there are {got} of them, but {owner} was made for {takes}."
    )
    return mismatch("shape", rule, *parts, works=ways)


def normalized_shape(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Given normalized_shape=[16], expected input with shape [*, 16], but got input of size[4, 8]."""
    given = call.tensor("input", 0)
    wanted = numbers(found[1])
    if given is None:
        return None
    owner = call.owner or call.title
    at = [at for at in range(-len(wanted), 0) if -at <= given.ndim and given.shape[at] != wanted[at]]
    parts = [size(given, each, wanted[each]) for each in at] or [whole(given, sizes(given.shape), sizes(wanted))]
    many = "dimension" if len(wanted) == 1 else f"{len(wanted)} dimensions"
    tail = sizes(given.shape[-len(wanted) :])
    rule = (
        f"The last {many} of {given.sized} must be {sizes(wanted)}, which is what {owner} normalises over, not {tail}."
    )
    weights = [one for one in call.tensors if one is not given and one.shape == wanted]
    parts += [whole(one, sizes(one.shape), tail) for one in weights]
    short = str(given.shape[-1]) if len(wanted) == 1 else f"[{', '.join(map(str, given.shape[-len(wanted) :]))}]"
    ways = [f"nn.LayerNorm({short})"] if call.function == "layer_norm" else []
    if len(wanted) == 1 and wanted[0] in given.shape[:-1]:
        ways.insert(0, f"{given.code}.transpose({given.shape.index(wanted[0])}, -1)")
    return mismatch("shape", rule, *parts, works=ways)


def norm_weight(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Expected weight to be of same shape as normalized_shape, but got weight of shape [1, 2]."""
    other = call.tensor(found[1], {"weight": 2, "bias": 3}[found[1]]) or call.of_shape(numbers(found[2]))
    if other is None:
        return None
    rule = f"The {found[1]} has the shape that is normalised over, {sizes(numbers(found[3]))}: {other.sized}."
    return mismatch("shape", rule, whole(other, sizes(other.shape), sizes(numbers(found[3]))))


def channel_weight(call: Call, found: re.Match[str]) -> Mismatch | None:
    """group_norm: weight must have one element for each channel of the input."""
    other, given = call.tensor(found[1], 2), call.tensor("input", 0)
    if other is None or given is None or given.ndim < 2:
        return None
    got, owner = given.shape[1], call.owner or call.title
    takes = sizes(other.shape)
    rule = (
        f"The channels of {given.sized} are dimension 1, and there are {got} of them, but {owner} was made for {takes}."
    )
    return mismatch("shape", rule, size(given, 1, takes), size(other, 0, got))


def groups(call: Call, found: re.Match[str]) -> Mismatch | None:
    """group_norm: the number of channels must be divisible by the number of groups."""
    given = call.tensor("input", 0)
    if given is None or given.ndim < 2:
        return None
    rule = (
        f"The channels must be divisible by num_groups={found[1]}: {given.sized} has {given.shape[1]} in dimension 1."
    )
    return mismatch("shape", rule, size(given, 1, f"a multiple of {found[1]}"))


def one_value(call: Call, _: re.Match[str]) -> Mismatch | None:
    """Expected more than 1 value per channel when training."""
    given = call.tensor("input", 0)
    if given is None or not given.ndim:
        return None
    owner = call.owner or call.title
    rule = (
        f"In training, {owner} needs at least two values for each channel, and {given.sized} has one: a batch of one."
    )
    at = 0 if given.shape[0] == 1 else given.ndim - 1
    works = ["DataLoader(..., drop_last=True)", f"{call.layer}.eval()" if call.layer else ""]
    return mismatch("shape", rule, size(given, at, "2"), works=works)


def prelu(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Found parameter numbers = 9 and channel size = 8."""
    given, weight = call.tensor("input|self", 0), call.tensor("weight", 1)
    if given is None or weight is None or given.ndim < 2:
        return None
    rule = (
        f"There is one parameter for each channel, or one for all: {weight.sized} against the {found[2]} channels of "
        f"{given.sized}."
    )
    return mismatch("shape", rule, size(given, 1, found[1]), whole(weight, found[1], found[2]))


def features(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Expected input's size at dim=1 to match num_features (3), but got: 4."""
    given, at = call.tensor("input", 0), int(found[1])
    if given is None or at >= given.ndim:
        return None
    owner = call.owner or call.title
    rule = (
        f"The channels of {given.sized} are dimension {at}, and there are {found[3]} of them, but {owner} takes "
        f"{found[2]}."
    )
    return mismatch("shape", rule, size(given, at, found[2]))


MESSAGES = (
    (r"expected input's size at dim=(\d+) to match num_features \((\d+)\), but got: (\d+)", features),
    (r"weight of size \[(.*?)\], expected input\[.*?\] to have (\d+) channels, but got (\d+) channels", channels),
    (r"Calculated padded input size per channel: \((.*?)\)\. Kernel size: \((.*?)\)\.", kernel_too_large),
    (r"Given input size: \((.*?)\)\. Calculated output size: \((.*?)\)", nothing_left),
    (r"Invalid computed output size", no_output),
    (r"expected bias to be 1-dimensional with (\d+) elements", bias_size),
    (r"Given groups=(\d+), expected weight to be at least", too_few_for_groups),
    (r"weight should have at least three dimensions", weight_dimensions),
    (r"Expected \d+-dimensional input for \d+-dimensional weight", weight_dimensions),
    (r"(running_mean|running_var|weight|bias) should contain (\d+) elements not (\d+)", running_statistics),
    (r"Given normalized_shape=\[(.*?)\], expected input with shape", normalized_shape),
    ((r"Expected (weight|bias) to be of same shape as normalized_shape, but got .*? of shape"
      r" \[(.*?)\] and normalized_shape = \[(.*?)\]"),
     norm_weight),
    (r"Expected (weight|bias) to be a vector of size equal to the number of channels in input", channel_weight),
    (r"number of channels in input to be divisible by num_groups, .* and num_groups=(\d+)", groups),
    (r"Expected more than 1 value per channel", one_value),
    (r"Found parameter numbers = (\d+) and channel size = (\d+)", prelu),
)  # fmt: skip
