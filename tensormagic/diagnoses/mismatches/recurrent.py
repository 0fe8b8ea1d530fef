"""Recurrent layers and attention: sizes of inputs, hidden states and masks."""

from __future__ import annotations

import re

from tensormagic.diagnoses.mismatches.broadcasting import clashing, numbers
from tensormagic.diagnoses.mismatches.call import Call, Given, mismatch, size, sizes, whole
from tensormagic.reports import Mismatch


def _sequence(call: Call) -> Given | None:
    """Return the input of the layer: the first tensor that is none of its parameters."""
    return call.tensor("input", 0) or (call.tensors[0] if call.tensors else None)


def _hidden(call: Call, got: tuple[int, ...] = ()) -> Given | None:
    found = [one for one in call.tensors[1:] if not got or one.shape == got]
    named = [one for one in found if one.operand.role.startswith(("hx", "h_0", "hidden")) or one.operand.place]
    return (named or found or [None])[0]  # type: ignore[list-item]


def input_size(call: Call, found: re.Match[str]) -> Mismatch | None:
    """input.size(-1) must be equal to input_size. Expected 10, got 9."""
    given, takes = _sequence(call), int(found["takes"])
    if given is None or not given.ndim or given.shape[-1] != int(found["got"]):
        return None
    owner = call.owner or call.title
    rule = f"The last dimension of {given.sized} is {given.shape[-1]}, but {owner} takes {takes} (input_size)."
    weight = next((one for one in call.tensors[1:] if one.ndim == 2 and one.shape[-1] == takes), None)
    parts = [size(given, -1, takes)] + ([size(weight, -1, given.shape[-1])] if weight is not None else [])
    works = [f"{given.code}.transpose({given.shape.index(takes)}, -1)"] if takes in given.shape[:-1] else []
    works += [f"{given.code}.unsqueeze(-1)"] if takes == 1 else []
    return mismatch("shape", rule, *parts, works=works)


def hidden_size(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Expected hidden[0] size (1, 3, 20), got [1, 2, 20]."""
    wanted, got = numbers(found[1]), numbers(found[2])
    hidden = _hidden(call, got)
    if hidden is None or len(wanted) != len(got):
        return None
    meaning = ("num_layers", "batch", "hidden_size") if len(wanted) == 3 else ("num_layers", "hidden_size")
    wrong = [at for at in range(len(wanted)) if wanted[at] != got[at]]
    said = ", ".join(f"{meaning[at]} is {wanted[at]}" for at in wrong)
    given = _sequence(call)
    of_input = f" for an input of {sizes(given.shape)}" if given is not None and given is not hidden else ""
    rule = (
        f"The hidden state has the shape ({', '.join(meaning)}){of_input}: {said}, but {hidden.sized} has "
        f"{listed_sizes(got, wrong)}."
    )
    parts = [size(hidden, at, wanted[at]) for at in wrong]
    return mismatch("shape", rule, *parts, works=[f"torch.zeros({', '.join(map(str, wanted))})"])


def listed_sizes(shape: tuple[int, ...], places: list[int]) -> str:
    """Return the sizes at some places of a shape, in words."""
    return " and ".join(f"{shape[at]} in dimension {at}" for at in places)


def cell_hidden_size(call: Call, found: re.Match[str]) -> Mismatch | None:
    """hidden0 has inconsistent hidden_size: got 21, expected 20."""
    hidden = _hidden(call)
    if hidden is None or not hidden.ndim:
        return None
    rule = f"The last dimension of the hidden state is hidden_size, {found[2]}: {hidden.sized}."
    return mismatch("shape", rule, size(hidden, -1, found[2]))


def cell_batch(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Input batch size 3 doesn't match hidden0 batch size 5."""
    given, hidden = _sequence(call), _hidden(call)
    if given is None or hidden is None or not given.ndim or not hidden.ndim:
        return None
    rule = f"Input and hidden state have one batch: {given.sized} and {hidden.sized} differ in dimension 0."
    return mismatch("shape", rule, size(given, 0, found[2]), size(hidden, 0, found[1]))


def hidden_dimensions(call: Call, found: re.Match[str]) -> Mismatch | None:
    """For batched 3-D input, hx should also be 3-D but got 2-D tensor."""
    hidden = _hidden(call)
    if hidden is None:
        return None
    wanted, got = found[1], found[2]
    rule = f"The hidden state has {wanted} dimensions, as the input: {hidden.sized} has {got}."
    works = [f"{hidden.code}.unsqueeze(0)"] if int(got) + 1 == int(wanted) else []
    return mismatch("shape", rule, whole(hidden, f"{got}-D", f"{wanted}-D"), works=works)


def state_dimensions(call: Call, found: re.Match[str]) -> Mismatch | None:
    """LSTM: Expected input to be 2D or 3D, got 1D instead; the same of the hidden state of a cell."""
    state = found[1] != "input"
    count = int(found[3])
    given = next((one for one in call.tensors[1 if state else 0 :] if one.ndim == count), None)
    if given is None:
        return None
    allowed = re.findall(r"\d", found[2])
    rule = (
        f"The {'hidden state' if state else 'input'} of {call.owner or call.title} has {' or '.join(allowed)} "
        f"dimensions: {given.sized} has {count}."
    )
    works = [f"{given.code}.unsqueeze(0)"] if state and str(count + 1) in allowed else []
    return mismatch("shape", rule, whole(given, f"{count}-D", f"{allowed[-1]}-D"), works=works)


# -- attention -----------------------------------------------------------------------------------------------------


def embedding_size(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Was expecting embedding dimension of 16, but got 12."""
    takes, got = int(found[1]), int(found[2])
    given = next((one for one in call.tensors if one.ndim and one.shape[-1] == got), None)
    if given is None:
        return None
    rule = (
        f"The last dimension of the query is {got} in {given.sized}, but {call.owner or 'the attention'} takes "
        f"{takes} (embed_dim)."
    )
    return mismatch("shape", rule, size(given, -1, takes))


def attention_mask(call: Call, found: re.Match[str]) -> Mismatch | None:
    """The shape of the 2D attn_mask is torch.Size([4, 4]), but should be (5, 5)."""
    got, wanted = numbers(found[1]), numbers(found[2])
    mask = call.tensor("attn_mask|mask|src_mask") or call.of_shape(got)
    if mask is None or mask.ndim != len(wanted):
        return None
    rule = f"The attention mask has one entry for each query and key, {sizes(wanted)}: {mask.sized}."
    parts = [size(mask, at, wanted[at]) for at in range(mask.ndim) if mask.shape[at] != wanted[at]]
    return mismatch("shape", rule, *parts)


def padding_mask(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Expected key_padded_mask.shape[0] to be 2, but got 5."""
    mask = call.tensor("key_padding_mask|src_key_padding_mask")
    if mask is None:
        return None
    at, wanted = int(found[1]), int(found[2])
    rule = f"The padding mask has the shape (batch, keys): dimension {at} of {mask.sized} must be {wanted}."
    works = [f"{mask.code}.T"] if mask.ndim == 2 and mask.shape[1 - at] == wanted else []
    return mismatch("shape", rule, size(mask, at, wanted), works=works)


def heads(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Shape '[5, 8, 4]' is invalid for input of size 240, within multi_head_attention_forward: batches differ."""
    if call.report.inside.endswith("multi_head_attention_forward"):
        return _within_heads(call, numbers(found[1]))
    query, key = call.tensor("query", 0), call.tensor("key", 1)
    if call.function != "multi_head_attention_forward" or query is None or key is None or query.ndim != key.ndim:
        return None
    at = 1 if query.ndim == 3 else 0
    if query.shape[at] == key.shape[at]:
        return None
    rule = f"Query and key have one batch: {query.sized} and {key.sized} differ in dimension {at}."
    return mismatch("shape", rule, size(query, at, key.shape[at]), size(key, at, query.shape[at]))


def _within_heads(call: Call, wanted: tuple[int, ...]) -> Mismatch | None:
    """Explain keys or values whose batch is not that of the query, which torch splits them by."""
    given = call.tensor("input|self", 0)
    if given is None or given.ndim != 3 or len(wanted) != 3 or wanted[1] * wanted[2] % given.shape[-1]:
        return None
    batch = wanted[1] * wanted[2] // given.shape[-1]
    if batch == given.shape[1]:
        return None
    rule = (
        f"Query, key and value have one batch (dimension 1): it is {batch} in the query, and {given.sized} has "
        f"{given.shape[1]}."
    )
    return mismatch("shape", rule, size(given, 1, batch))


def attention_scores(call: Call, _: re.Match[str]) -> Mismatch | None:
    """The size of tensor a must match ..., within scaled_dot_product_attention: the mask does not fit the scores."""
    query, key, mask = call.tensor("query", 0), call.tensor("key", 1), call.tensor("attn_mask", 3)
    if call.function != "scaled_dot_product_attention" or query is None or key is None or mask is None:
        return None
    scores = (*query.shape[:-1], key.shape[-2])
    where = clashing(mask.shape, scores)
    rule = f"The attention mask must broadcast to the scores, {sizes(scores)} (queries × keys last): {mask.sized}."
    return mismatch("shape", rule, *(size(mask, at, scores[at]) for at in where)) if where else None


def states_dimensions(call: Call, found: re.Match[str]) -> Mismatch | None:
    """For batched 3-D input, hx and cx should also be 3-D but got (2-D, 2-D) tensors."""
    wanted = int(found[1])
    states = [one for one in call.tensors[1:] if one.operand.role in {"hx", "cx", ""} and one.ndim != wanted]
    if not states:
        return None
    rule = f"The hidden states have {wanted} dimensions, as the input: {states[0].sized} has {states[0].ndim}."
    works = [f"{one.code}.unsqueeze(0)" for one in states if one.ndim + 1 == wanted]
    return mismatch("shape", rule, *(whole(one, f"{one.ndim}-D", f"{wanted}-D") for one in states), works=works)


def state_of_an_lstm(call: Call, _: re.Match[str]) -> Mismatch | None:
    """Index 1 is out of bounds for dimension 0 with size 1; hx and cx should also be 3-D: the state is one tensor."""
    state = call.tensor("hx") if call.function == "LSTM" else None
    if state is None or state.operand.place:
        return None
    rule = f"The state of an LSTM is a pair, (h_0, c_0), and {state.sized} is one tensor."
    works = [f"({state.code}, torch.zeros_like({state.code}))"]
    return mismatch("argument", rule, whole(state, "one tensor", "(h_0, c_0)"), works=works)


MESSAGES = (
    (r"index 1 is out of bounds for dimension 0 with size 1|hx and cx should also be", state_of_an_lstm),
    (r"input, hx and cx should also be (\d)-D but got", states_dimensions),
    (r"input\.size\(-1\) must be equal to input_size\. Expected (?P<takes>\d+), got (?P<got>\d+)", input_size),
    (r"inconsistent input_size: got (?P<got>\d+) expected (?P<takes>\d+)", input_size),
    (r"Expected hidden(?:\[\d\])? size \((.*?)\), got \[(.*?)\]", hidden_size),
    (r"has inconsistent hidden_size: got (\d+), expected (\d+)", cell_hidden_size),
    (r"Input batch size (\d+) doesn't match hidden\d? batch size (\d+)", cell_batch),
    (r"input, h[xc] should also be (\d)-D but got (\d)-D", hidden_dimensions),
    (r"Expected (input|hidden|hx\[\d\]) to be ([\dD or]+?), got (\d)D instead", state_dimensions),
    (r"expecting embedding dimension of (\d+), but got (\d+)", embedding_size),
    (r"attn_mask is torch\.Size\(\[(.*?)\]\), but should be \((.*?)\)", attention_mask),
    (r"key_padded_mask\.shape\[(\d)\] to be (\d+), but got", padding_mask),
    (r"shape '\[(.*?)\]' is invalid for input of size \d+", heads),
    (r"The size of tensor a \(\d+\) must match the size of tensor b", attention_scores),
)
