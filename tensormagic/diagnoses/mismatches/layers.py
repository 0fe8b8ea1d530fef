"""Layers: convolutions, pooling, normalisations, recurrent layers and attention, and what goes into them."""

from __future__ import annotations

import re
from typing import Annotated

from tensormagic.diagnoses.mismatches.call import (
    Call,
    First,
    Given,
    Input,
    Messages,
    Shape,
    Weight,
    against,
    dims,
    mismatch,
    needed,
    numbers,
    operand,
    shaped,
    size,
    sizes,
    whole,
)
from tensormagic.diagnoses.mismatches.shapes import clashing
from tensormagic.diagnoses.rule import as_code
from tensormagic.reports import Mismatch

says = Messages()


def _hidden(call: Call, got: Shape = ()) -> Given | None:
    found = [one for one in call.tensors[1:] if not got or one.shape == got]
    named = (one for one in found if one.operand.role.startswith(("hx", "h_0", "hidden")) or one.operand.place)
    return next(iter([*named, *found]), None)


# The input of a recurrent layer is the first tensor that is none of its parameters.
Sequence = Annotated[Given, lambda call: call.tensor("input", 0) or next(iter(call.tensors), None)]
Hidden = Annotated[Given, _hidden]
Query = Annotated[Given, operand("query", 0)]
Key = Annotated[Given, operand("key", 1)]


# -- recurrent layers ----------------------------------------------------------------------------------------------


@says(r"index 1 is out of bounds for dimension 0 with size 1|hx and cx should also be")
def _state_of_an_lstm(call: Call, state: Annotated[Given, operand("hx")]) -> Mismatch | None:
    if call.function != "LSTM" or state.operand.place:
        return None
    rule = f"The state of an LSTM is a pair, (h_0, c_0), and {state.sized} is one tensor."
    works = [f"({state.code}, torch.zeros_like({state.code}))"]
    return mismatch("argument", rule, whole(state, "one tensor", "(h_0, c_0)"), works=works)


@says(r"input, hx and cx should also be (\d)-D but got")
def _states_dimensions(call: Call, wanted: int) -> Mismatch | None:
    states = [one for one in call.tensors[1:] if one.operand.role in {"hx", "cx", ""} and one.ndim != wanted]
    if not states:
        return None
    rule = f"The hidden states have {wanted} dimensions, as the input: {states[0].sized} has {states[0].ndim}."
    works = [f"{one.code}.unsqueeze(0)" for one in states if one.ndim + 1 == wanted]
    return mismatch("shape", rule, *(dims(one, wanted) for one in states), works=works)


@says(
    r"input\.size\(-1\) must be equal to input_size\. Expected (?P<takes>\d+), got (?P<got>\d+)",
    r"inconsistent input_size: got (?P<got>\d+) expected (?P<takes>\d+)",
)
def _input_size(call: Call, given: Sequence, takes: int, got: int) -> Mismatch | None:
    if given.shape[-1] != got:
        return None
    rule = f"The last dimension of {given.sized} is {got}, but {call.subject} takes {takes} (input_size)."
    weight = next((one for one in call.tensors[1:] if one.ndim == 2 and one.shape[-1] == takes), None)
    parts = [size(given, -1, takes)] + ([size(weight, -1, got)] if weight is not None else [])
    works = [f"{given.code}.transpose({given.shape.index(takes)}, -1)"] if takes in given.shape[:-1] else []
    works += [f"{given.code}.unsqueeze(-1)"] if takes == 1 else []
    return mismatch("shape", rule, *parts, works=works)


@says(r"Expected hidden(?:\[\d\])? size \((.*?)\), got \[(.*?)\]")
def _hidden_size(call: Call, given: Sequence | None, wanted: Shape, got: Shape) -> Mismatch | None:
    hidden = _hidden(call, got)
    if hidden is None or len(wanted) != len(got):
        return None
    meaning = ("num_layers", "batch", "hidden_size") if len(wanted) == 3 else ("num_layers", "hidden_size")
    wrong = [at for at in range(len(wanted)) if wanted[at] != got[at]]
    must = ", ".join(f"{meaning[at]} is {wanted[at]}" for at in wrong)
    has = " and ".join(f"{got[at]} in dimension {at}" for at in wrong)
    of_input = f" for an input of {sizes(given.shape)}" if given is not None and given is not hidden else ""
    rule = f"The hidden state has the shape ({', '.join(meaning)}){of_input}: {must}, but {hidden.sized} has {has}."
    works = [f"torch.zeros({', '.join(map(str, wanted))})"]
    return mismatch("shape", rule, *(size(hidden, at, wanted[at]) for at in wrong), works=works)


@says(r"has inconsistent hidden_size: got \d+, expected (\d+)")
def _cell_hidden_size(hidden: Hidden, wanted: str) -> Mismatch:
    rule = f"The last dimension of the hidden state is hidden_size, {wanted}: {hidden.sized}."
    return mismatch("shape", rule, size(hidden, -1, wanted))


@says(r"Input batch size (\d+) doesn't match hidden\d? batch size (\d+)")
def _cell_batch(given: Sequence, hidden: Hidden, samples: str, states: str) -> Mismatch:
    rule = (
        f"Input and hidden state must have the same batch size: {given.sized} and {hidden.sized} differ in dimension 0."
    )
    parts = size(given, 0, states), size(hidden, 0, samples)
    works = [f"{hidden.code} = torch.zeros({samples}, {hidden.shape[-1]})"] if hidden.ndim == 2 else []
    return mismatch("shape", rule, *parts, works=works)


@says(r"input, h[xc] should also be (\d)-D but got (\d)-D")
def _hidden_dimensions(hidden: Hidden, wanted: int, got: int) -> Mismatch:
    rule = f"The hidden state has {wanted} dimensions, as the input: {hidden.sized} has {got}."
    works = [f"{hidden.code}.unsqueeze(0)"] if got + 1 == wanted else []
    return mismatch("shape", rule, whole(hidden, f"{got}-D", f"{wanted}-D"), works=works)


@says(r"Expected (input|hidden|hx\[\d\]) to be ([\dD or]+?), got (\d)D instead")
def _state_dimensions(call: Call, which: str, counts: Shape, got: int) -> Mismatch:
    state = which != "input"
    given = needed(next((one for one in call.tensors[1 if state else 0 :] if one.ndim == got), None))
    rule = (
        f"The {'hidden state' if state else 'input'} of {call.subject} has {' or '.join(map(str, counts))} "
        f"dimensions: {given.sized} has {got}."
    )
    works = [f"{given.code}.unsqueeze(0)"] if state and got + 1 in counts else []
    return mismatch("shape", rule, dims(given, counts[-1]), works=works)


# -- attention -----------------------------------------------------------------------------------------------------


@says(r"expecting embedding dimension of (\d+), but got (\d+)")
def _embedding_size(call: Call, takes: int, got: int) -> Mismatch:
    given = call.first(lambda one: one.ndim and one.shape[-1] == got)
    rule = (
        f"The last dimension of the query is {got} in {given.sized}, but {call.owner or 'the attention'} takes "
        f"{takes} (embed_dim)."
    )
    return mismatch("shape", rule, size(given, -1, takes))


@says(r"attn_mask is torch\.Size\(\[(.*?)\]\), but should be \((.*?)\)")
def _attention_mask(call: Call, got: Shape, wanted: Shape) -> Mismatch | None:
    mask = call.tensor("attn_mask|mask|src_mask") or call.of_shape(got)
    if mask is None or mask.ndim != len(wanted):
        return None
    rule = f"The attention mask has one entry for each query and key, {sizes(wanted)}: {mask.sized}."
    parts = [size(mask, at, wanted[at]) for at in range(mask.ndim) if mask.shape[at] != wanted[at]]
    return mismatch("shape", rule, *parts)


@says(r"key_padded_mask\.shape\[(\d)\] to be (\d+), but got")
def _padding_mask(
    mask: Annotated[Given, operand("key_padding_mask|src_key_padding_mask")], at: int, wanted: int
) -> Mismatch:
    rule = f"The padding mask has the shape (batch, keys): dimension {at} of {mask.sized} must be {wanted}."
    works = [f"{mask.code}.T"] if mask.ndim == 2 and mask.shape[1 - at] == wanted else []
    return mismatch("shape", rule, size(mask, at, wanted), works=works)


@says(r"shape '\[(.*?)\]' is invalid for input of size \d+")
def _heads(call: Call, query: Query | None, key: Key | None, wanted: Shape) -> Mismatch | None:
    """Explain a batch that is not that of the query, from within multi_head_attention_forward."""
    if call.report.inside.endswith("multi_head_attention_forward"):
        return _within_heads(call, wanted)
    if call.function != "multi_head_attention_forward" or query is None or key is None or query.ndim != key.ndim:
        return None
    at = 1 if query.ndim == 3 else 0
    rule = f"Query and key must have the same batch size: {query.sized} and {key.sized} differ in dimension {at}."
    return mismatch("shape", rule, *against(query, at, key)) if query.shape[at] != key.shape[at] else None


def _within_heads(call: Call, wanted: Shape) -> Mismatch | None:
    """Explain keys or values whose batch is not that of the query, which torch splits them by."""
    given = call.tensor("input|self", 0)
    if given is None or given.ndim != 3 or len(wanted) != 3 or wanted[1] * wanted[2] % given.shape[-1]:
        return None
    batch = wanted[1] * wanted[2] // given.shape[-1]
    rule = (
        f"Query, key and value must have the same batch size (dimension 1): it is {batch} in the query, and "
        f"{given.sized} has "
        f"{given.shape[1]}."
    )
    return mismatch("shape", rule, size(given, 1, batch)) if batch != given.shape[1] else None


@says(r"The size of tensor a \(\d+\) must match the size of tensor b")
def _attention_scores(
    call: Call, query: Query, key: Key, mask: Annotated[Given, operand("attn_mask", 3)]
) -> Mismatch | None:
    scores = (*query.shape[:-1], key.shape[-2])
    where = clashing(mask.shape, scores)
    if call.function != "scaled_dot_product_attention" or not where:
        return None
    rule = f"The attention mask must broadcast to the scores, {sizes(scores)} (queries × keys last): {mask.sized}."
    return mismatch("shape", rule, *(size(mask, at, scores[at]) for at in where))


# -- convolutions and pooling --------------------------------------------------------------------------------------


def _not_so_many(given: Given, at: int, got: object, takes: str) -> str:
    return f"The channels of {given.sized} are dimension {at}, and there are {got} of them, but {takes}."


@says(r"expected input's size at dim=(\d+) to match num_features \((\d+)\), but got: (\d+)")
def _features(call: Call, given: Input, at: int, takes: str, got: str) -> Mismatch:
    return mismatch("shape", _not_so_many(given, at, got, f"{call.subject} takes {takes}"), size(given, at, takes))


@says(r"weight of size \[(.*?)\], expected input\[.*?\] to have (\d+) channels, but got (\d+) channels")
def _channels(call: Call, given: Input, shape: Shape, takes: int, got: int) -> Mismatch | None:
    weight = call.of_shape(shape) or call.tensor("weight", 1)
    at = given.ndim - weight.ndim + 1 if weight is not None else -1
    if weight is None or not 0 <= at < given.ndim or given.shape[at] != got:
        return None
    rule = _not_so_many(given, at, got, f"{call.owner or weight.sized} takes {takes}")
    parts = size(given, at, takes), size(weight, 0 if "transpose" in call.function else 1, got)
    return mismatch("shape", rule, *parts, works=_channel_ways(call, given, at, takes))


def _channel_ways(call: Call, given: Given, at: int, takes: int) -> list[str]:
    ways, last = [], given.ndim - 1
    if given.ndim > 2 and given.shape[-1] == takes and at != last:
        order = ", ".join(map(str, [*range(at), last, *range(at, last)]))
        ways.append(f"{given.code}.transpose({at}, {last})" if last - at == 1 else f"{given.code}.permute({order})")
    if given.ndim > 1 and at == 1 and given.shape[0] == takes:
        ways.append(f"{given.code}.transpose(0, 1)")
    if at == 0 and takes == 1:
        ways.append(f"{given.code}.unsqueeze(1)")
    weight = call.tensor("weight", 1)
    if call.function in {"conv1d", "conv2d", "conv3d"} and weight is not None:
        kernel = weight.shape[2:]
        text = str(kernel[0]) if len(set(kernel)) == 1 else f"({', '.join(map(str, kernel))})"
        ways.append(f"nn.{call.function.capitalize()}({given.shape[at]}, {weight.shape[0]}, {text})")
    return ways


@says(r"Calculated padded input size per channel: \((.*?)\)\. Kernel size: \((.*?)\)\.")
def _kernel_too_large(given: Input, weight: Weight, padded: Shape, kernel: Shape) -> Mismatch:
    spatial = len(kernel)
    wrong = [at - spatial for at in range(spatial) if kernel[at] > padded[at]]
    parts = [part for at in wrong for part in (size(given, at, kernel[at]), size(weight, at, padded[at]))]
    rule = (
        f"The kernel must fit into the input: {sizes(kernel)} against {sizes(padded)} in {given.sized}, its padding "
        "included; earlier layers made it too small, or the kernel is too large."
    )
    return mismatch("shape", rule, *parts)


@says(r"Given input size: \((.*?)\)\. Calculated output size: \((.*?)\)")
def _nothing_left(call: Call, given: First, before: str, after: str) -> Mismatch:
    was, becomes = numbers(before.replace("x", " ")), numbers(after.replace("x", " "))
    spatial = [at for at in range(-len(becomes), 0) if becomes[at] < 1 and was[at] != becomes[at] and -at <= given.ndim]
    kernel = numbers(call.value("kernel_size", 1))
    rule = (
        f"The window of a pooling must fit into the input: {given.sized} is smaller than the window"
        f"{f' of {sizes(kernel)}' if kernel else ''}, so the result would be empty."
    )
    window = kernel * len(becomes) if len(kernel) == 1 else kernel  # one number stands for all dimensions
    parts = (size(given, at, window[at] if -at <= len(window) else "") for at in spatial)
    return mismatch("shape", rule, *parts)


@says(r"Invalid computed output size")
def _no_output(call: Call, given: First) -> Mismatch:
    kernel = call.value("kernel_size", 1)
    rule = (
        f"The window of a pooling must fit into the input: the last dimension of {given.sized} is shorter than "
        f"{kernel or 'it'}."
    )
    return mismatch("shape", rule, size(given, -1, kernel))


@says(r"expected bias to be 1-dimensional with (\d+) elements")
def _bias_size(bias: Annotated[Given, operand("bias", 2)], weight: Weight, wanted: str) -> Mismatch:
    rule = f"The bias has one element for each output channel, {wanted} of them: {bias.sized}."
    return mismatch("shape", rule, shaped(bias, wanted), size(weight, 0, bias.shape[0] if bias.ndim else ""))


@says(r"Given groups=(\d+), expected weight to be at least")
def _too_few_for_groups(weight: Weight, groups: str) -> Mismatch:
    rule = f"Each of the {groups} groups needs its own output channel: {weight.sized} has {weight.shape[0]}."
    return mismatch("shape", rule, size(weight, 0, groups))


@says(r"weight should have at least three dimensions|Expected \d+-dimensional input for \d+-dimensional weight")
def _weight_dimensions(call: Call, given: Input, weight: Weight) -> Mismatch:
    named = re.search(r"(\d)d$", call.function)
    wanted = int(named[1]) + 2 if named else max(weight.ndim, 3)
    if weight.ndim == wanted:  # as older versions of torch say it of the input
        rule = f"The input of {call.subject} has {weight.ndim} dimensions, and {given.sized} has {given.ndim}."
        works = [f"{given.code}.unsqueeze(0)"] if given.ndim + 1 == wanted else []
        return mismatch("shape", rule, dims(given, weight.ndim), works=works)
    rule = f"The weight of {call.title} has {wanted} dimensions, and {weight.sized} has {weight.ndim}."
    return mismatch("shape", rule, dims(weight, wanted))


# -- normalisations ------------------------------------------------------------------------------------------------


@says(r"(running_mean|running_var|weight|bias) should contain \d+ elements not (\d+)")
def _running_statistics(call: Call, given: Input, role: str, takes: int) -> Mismatch:
    other, got = call.tensor(role, 1), given.shape[1]
    parts = [size(given, 1, takes)] + ([size(other, 0, got)] if other is not None and other.ndim else [])
    layer = {2: "BatchNorm1d", 3: "BatchNorm1d", 4: "BatchNorm2d", 5: "BatchNorm3d"}.get(given.ndim, "")
    ways = [f"nn.{layer}({got})"] if layer and call.function == "batch_norm" else []
    return mismatch("shape", _not_so_many(given, 1, got, f"{call.subject} was made for {takes}"), *parts, works=ways)


@says(r"Expected (weight|bias) to be a vector of size equal to the number of channels in input")
def _channel_weight(call: Call, given: Input, role: str) -> Mismatch:
    other = needed(call.tensor(role, 2))
    got, takes = given.shape[1], sizes(other.shape)
    rule = _not_so_many(given, 1, got, f"{call.subject} was made for {takes}")
    return mismatch("shape", rule, size(given, 1, takes), size(other, 0, got))


@says(r"Given normalized_shape=\[(.*?)\], expected input with shape")
def _normalized_shape(call: Call, given: Input, wanted: Shape) -> Mismatch:
    count = len(wanted)
    at = [at for at in range(-count, 0) if -at <= given.ndim and given.shape[at] != wanted[at]]
    parts = [size(given, each, wanted[each]) for each in at] or [shaped(given, sizes(wanted))]
    tail = given.shape[-count:]
    rule = (
        f"The last {'dimension' if count == 1 else f'{count} dimensions'} of {given.sized} must be {sizes(wanted)}, "
        f"which is what {call.subject} normalises over, not {sizes(tail)}."
    )
    parts += [shaped(one, sizes(tail)) for one in call.tensors if one is not given and one.shape == wanted]
    short = str(given.shape[-1]) if count == 1 else f"[{', '.join(map(str, tail))}]"
    ways = [f"nn.LayerNorm({short})"] if call.function == "layer_norm" else []
    if count == 1 and wanted[0] in given.shape[:-1]:
        ways.insert(0, f"{given.code}.transpose({given.shape.index(wanted[0])}, -1)")
    return mismatch("shape", rule, *parts, works=ways)


@says(
    r"Expected (weight|bias) to be of same shape as normalized_shape, but got .*? of shape \[(.*?)\] and "
    r"normalized_shape = \[(.*?)\]"
)
def _norm_weight(call: Call, role: str, got: Shape, wanted: Shape) -> Mismatch:
    other = needed(call.tensor(role, {"weight": 2, "bias": 3}[role]) or call.of_shape(got))
    rule = f"The {role} has the shape that is normalised over, {sizes(wanted)}: {other.sized}."
    return mismatch("shape", rule, shaped(other, sizes(wanted)))


@says(r"number of channels in input to be divisible by num_groups, .* and num_groups=(\d+)")
def _groups(given: Input, groups: str) -> Mismatch:
    rule = f"The channels must be divisible by num_groups={groups}: {given.sized} has {given.shape[1]} in dimension 1."
    return mismatch("shape", rule, size(given, 1, f"a multiple of {groups}"))


@says(r"Expected more than 1 value per channel")
def _one_value(call: Call, given: Input) -> Mismatch:
    rule = (
        f"In training, {call.subject} needs at least two values for each channel, and {given.sized} has one: a batch "
        "of one."
    )
    works = ["DataLoader(..., drop_last=True)", f"{as_code(call.layer)}.eval()" if call.layer else ""]
    return mismatch("shape", rule, size(given, 0 if given.shape[0] == 1 else given.ndim - 1, "2"), works=works)


@says(r"Found parameter numbers = (\d+) and channel size = (\d+)")
def _prelu(given: First, weight: Weight, got: str, wanted: str) -> Mismatch:
    rule = (
        f"There must be one parameter for each channel, or one for all: {weight.sized} against the {wanted} channels "
        "of "
        f"{given.sized}."
    )
    return mismatch("shape", rule, size(given, 1, got), whole(weight, got, wanted))
