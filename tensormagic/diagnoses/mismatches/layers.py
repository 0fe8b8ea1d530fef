"""Layers: convolutions, pooling, normalisations, recurrent layers and attention, and what goes into them."""

from __future__ import annotations

from tensormagic.diagnoses.mismatches.table import Messages

says = Messages(globals())

says.table(r"""
# -- losses of the classes that an argmax chose

mse.*not implemented for 'Long'
    with chosen: call.tensors[0]; with scores: chosen.code.partition(".argmax(")[0]; with target: call.tensors[1]
    if: ".argmax(" in chosen.code
    dtype: An argmax has no gradient, so nothing would be trained by this loss: a loss of classes compares the scores,
        {scores}, with {target.name}.
    parts: chosen.dtype must be float32; maybe: F.cross_entropy({scores}, {target.code})

# -- recurrent layers

index 1 is out of bounds for dimension 0 with size 1|hx and cx should also be
    if: call.function == "LSTM" and not hx.place
    argument: The state of an LSTM is a pair, (h_0, c_0), and {hx} is one tensor.
    parts: hx is one tensor must be (h_0, c_0); try: ({hx.code}, torch.zeros_like({hx.code}))

input, hx and cx should also be {wanted}-D but got
    with wrong: every one is not left and one.role in ("hx", "cx", "") and one.ndim != wanted
    shape: The hidden states have {wanted} dimensions, as the input: {wrong[0]} has {wrong[0].ndim}.
    parts: one.ndim must be {wanted} for one in wrong
    try: {one.code}.unsqueeze(0) for one in wrong when one.ndim + 1 == wanted

input, h[xc] should also be {wanted}-D but got {got}-D
    shape: The hidden state has {wanted} dimensions, as the input: {hidden} has {got}.
    parts: hidden is {got}-D must be {wanted}-D; try: {hidden.code}.unsqueeze(0) when got + 1 == wanted

has inconsistent hidden_size: got \d+, expected {wanted}
    shape: The last dimension of the hidden state is hidden_size, {wanted}: {hidden}.
    parts: hidden[-1] must be {wanted}

Input batch size {samples} doesn't match hidden\d? batch size {states}
    shape: Input and hidden state must have the same batch size: {sequence} and {hidden} differ in dimension 0.
    parts: sequence[0] must be {states}; hidden[0] must be {samples}
    try: {hidden.code} = torch.zeros({samples}, {hidden[-1]}) when hidden.ndim == 2 and hidden.can_be_assigned

input\.size\(-1\) must be equal to input_size\. Expected {takes}, got {got}
inconsistent input_size: got {got} expected {takes}
    if: sequence[-1] == got; with weights: all one is not left and one.ndim == 2 and one[-1] == takes
    shape: The last dimension of {sequence} is {got}, but {call.subject} takes {takes} (input_size).
    parts: sequence[-1] must be {takes}; parts: one[-1] must be {got} for one in weights[:1]
    try: {sequence.code}.transpose({sequence.shape.index(takes)}, -1) when takes in sequence.shape[:-1]
    with laid_out: takes in sequence.shape[:-1] or takes == 1
    try: {sequence.code}.unsqueeze(-1) when takes == 1
    try: {layer} for layer in call.layer_with("input_size", got) when not laid_out

Expected (?P<what>input|hidden|hx\[\d\]) to be (?P<counts>[\dD or]+?), got {got}D instead
    with state: what != "input"; with given: first one.ndim == got and not (state and one is left)
    with allowed: numbers(counts); with many: listed(map(str, allowed), last="or")
    shape: The {"hidden state" if state else what} of {call.subject} has {many} dimensions: {given} has {got}.
    parts: given.ndim must be {allowed[-1]}; try: {given.code}.unsqueeze(0) when state and got + 1 in allowed

Expected hidden(?:\[\d\])? size \({wanted:shape}\), got \[{got:shape}\]
    with hidden: hidden_state(call, got); if: len(wanted) == len(got); with wrong: unlike(wanted, got)
    with meaning: ("num_layers", "batch", "hidden_size") if len(wanted) == 3 else ("num_layers", "hidden_size")
    with of_input: "" if sequence is hidden else f" for an input of {sizes(sequence.shape)}"
    with must: ", ".join([f"{meaning[at]} is {wanted[at]}" for at in wrong])
    with has: " and ".join([f"{got[at]} in dimension {at}" for at in wrong])
    shape: The hidden state has the shape ({", ".join(meaning)}){of_input}: {must}, but {hidden} has {has}.
    with states: [one for one in call.tensors if one is hidden or one.place and one.shape == hidden.shape]
    parts: one[at] must be {wanted[at]} for one, at in [(one, at) for one in states for at in wrong]
    with whole: len(wanted) == 3
    with rows: sequence.ndim == 3 and wanted[1] in sequence.shape[:2] and not sequence.before
    with batch: f"{sequence.code}.size({[*sequence.shape].index(wanted[1])})" if whole and rows else str(wanted[1])
    with sizes_of_it: ", ".join([str(wanted[0]), batch, str(wanted[2])]) if whole else as_args(wanted)
    with empty: not hidden.operand.least and not hidden.operand.most and hidden.operand.least is not None
    maybe: torch.zeros({sizes_of_it}) when empty
    with twice: not empty and wrong == [0] and got[0] == 2 * wanted[0] and not hidden.before
    maybe: {hidden.code}[0::2] + {hidden.code}[1::2]  # if it is of two directions when twice
    maybe: {hidden.code}[-{wanted[0]}:]  # if it is of twice the layers when twice

# -- attention

expecting embedding dimension of {takes}, but got {got}
    with given: first one.ndim and one[-1] == got
    shape: The last dimension of the query is {got} in {given}, but {call.owner or "the attention"} takes {takes}
        (embed_dim).
    parts: given[-1] must be {takes}; try: {layer} for layer in call.layer_with("embed_dim", got)

key shape torch\.Size\(\[[\d, ]*\]\) does not match value shape
    with key: call.tensor("key"); with value: call.tensor("value")
    shape: There is one value for each key: {key} and {value} must have the same shape.
    parts: key[at] must equal value[at] for at in unlike(key.shape, value.shape)

attn_mask is torch\.Size\(\[{got:shape}\]\), but should be \({wanted:shape}\)
    with mask: call.tensor("attn_mask|mask|src_mask") or call.of_shape(got); if: mask.ndim == len(wanted)
    shape: The attention mask has one entry for each query and key, {sizes(wanted)}: {mask}.
    parts: mask[at] must be {wanted[at]} for at in unlike(mask.shape, wanted)

key_padded_mask\.shape\[{at}\] to be {wanted}, but got
    with mask: call.tensor("key_padding_mask|src_key_padding_mask")
    shape: The padding mask has the shape (batch, keys): dimension {at} of {mask} must be {wanted}.
    parts: mask[at] must be {wanted}
    with turned: mask.ndim == 2 and query.ndim == 3 and query.shape[1::-1] == mask.shape[::-1]
    with first: "batch_first=True" not in call.report.layer_call and turned
    with layers: call.layer_with("batch_first", True, position=99)
    maybe: {layer}  # if {query.code} is (batch, sequence, features) for layer in layers when first
    with named: mask.operand.name and expression_of(mask.code)
    maybe: {mask.code}.T  # if {mask.code} is (keys, batch) when turned and named

# Keys or values whose batch is not that of the query, which torch splits them by.
shape '\[{wanted:shape}\]' is invalid for input of size \d+
    if: call.report.inside.endswith("multi_head_attention_forward") and first.ndim == len(wanted) == 3
    with batch: wanted[1] * wanted[2] // first[-1]; if: batch * first[-1] == wanted[1] * wanted[2] and batch != first[1]
    with names: call.written_arguments if len(call.written_arguments) > 1 else ["the query", "the key"]
    shape: Query, key and value must have the same batch size: it is {batch} in {names[0]}, and {first[1]} in
        {names[1]}.
    parts: first[1] must be {batch}

shape '\[.*?\]' is invalid for input of size \d+
    if: call.function == "multi_head_attention_forward" and query.ndim == key.ndim; with at: 1 if query.ndim == 3 else 0
    if: query[at] != key[at] and not call.report.inside.endswith("multi_head_attention_forward")
    shape: Query and key must have the same batch size: {query} and {key} differ in dimension {at}.
    parts: query[at] must equal key[at]

The size of tensor a \(\d+\) must match the size of tensor b
    if: call.function == "scaled_dot_product_attention"; with scores: (*query.shape[:-1], key[-2])
    with wrong: clashing(attn_mask.shape, scores); if: wrong
    shape: The attention mask must broadcast to the scores, {sizes(scores)} (queries × keys last): {attn_mask}.
    parts: attn_mask[at] must be {scores[at]} for at in wrong
    try: {attn_mask.code}.unsqueeze(1) when attn_mask.ndim == len(scores) - 1

# -- convolutions and pooling

expected input's size at dim={at} to match num_features \({takes}\), but got: {got}
    shape: The channels of {given} are dimension {at}, and there are {got} of them, but {call.subject} takes {takes}.
    parts: given[at] must be {takes}

expected bias to be 1-dimensional with {wanted} elements
    shape: The bias has one element for each output channel, {wanted} of them: {bias}.
    parts: bias.shape must be {wanted}; weight[0] must be {bias[0] if bias.ndim else ""}

Given groups={groups}, expected weight to be at least
    shape: Each of the {groups} groups needs its own output channel: {weight} has {weight[0]}.
    parts: weight[0] must be {groups}

Calculated padded input size per channel: \((?P<padded>.*?)\)\. Kernel size: \((?P<asked>.*?)\)\.
    with have: numbers(padded); with kernel: numbers(asked)
    with small: [at for at in range(-len(kernel), 0) if have[at] < kernel[at]]
    shape: The kernel must fit into the input: {sizes(kernel)} against {sizes(have)} in {given}, its padding included;
        earlier layers made it too small, or the kernel is too large.
    parts: given[at] must be {kernel[at]}; weight[at] must be {have[at]} for at in small

Invalid computed output size
    with kernel: call.value("kernel_size", 1) or "it"
    shape: The window of a pooling must fit into the input: the last dimension of {first} is shorter than {kernel}.
    parts: first[-1] must be {call.value("kernel_size", 1)}

# Older versions of torch say so of the input.
weight should have at least three dimensions|Expected \d+-dimensional input for \d+-dimensional weight
    with named: [each + 2 for each in numbers(call.function[-2:]) if call.function.endswith("d")]
    with wanted: [*named, max(weight.ndim, 3)][0]
    with fits: weight.ndim == wanted; with wrong: (weight, given)[fits]
    with what: f"input of {call.subject}" if fits else f"weight of {call.title}"
    shape: The {what} has {wanted} dimensions, and {wrong} has {wrong.ndim}.
    parts: wrong.ndim must be {wanted}; try: {wrong.code}.unsqueeze(0) when fits and wrong.ndim + 1 == wanted

weight of size \[{shape:shape}\], expected input\[.*?\] to have {takes} channels, but got {got} channels
    with kernel: call.of_shape(shape) or weight; with at: given.ndim - kernel.ndim + 1
    if: 0 <= at < given.ndim and given[at] == got
    shape: The channels of {given} are dimension {at}, and there are {got} of them, but {call.owner or kernel} takes
        {takes}.
    parts: given[at] must be {takes}; kernel[0 if "transpose" in call.function else 1] must be {got}
    with end: given.ndim - 1; with is_last: given.ndim > 2 and given[-1] == takes and at != end
    with is_last: is_last and (end - at == 1 or given[-2] != takes)
    with is_third: given.ndim == 5 and at == 1 and given[2] == takes and not is_last
    try: {given.code}.transpose({at}, {end}) when is_last and end - at == 1
    try: {given.code}.permute({as_args([*range(at), end, *range(at, end)])}) when is_last and end - at != 1
    try: {given.code}.transpose(1, 2) when is_third
    try: {given.code}.unsqueeze(1) when at == 0 and takes == 1
    with laid_out: is_last or is_third or at == 0 and takes in given.shape
    try: {layer} for layer in call.layer_with("in_channels", given[at]) when not laid_out or given.before

Given input size: \((?P<before>.*?)\)\. Calculated output size: \((?P<after>.*?)\)
    with was: numbers(before.replace("x", " ")); with becomes: numbers(after.replace("x", " "))
    with empty: [at for at in range(-len(becomes), 0) if becomes[at] < 1 and was[at] != becomes[at]]
    with kernel: numbers(call.value("kernel_size", 1))
    with window: kernel * len(becomes) if len(kernel) == 1 else kernel
    shape: The window of a pooling must fit into the input: {first} is smaller than the
        window{f" of {sizes(kernel)}" if kernel else ""}, so the result would be empty.
    parts: first[at] must be {window[at] if -at <= len(window) else ""} for at in empty when -at <= first.ndim

# -- normalisations

(?P<role>running_mean|running_var|weight|bias) should contain \d+ elements not {takes}
    shape: The channels of {given} are dimension 1, and there are {given[1]} of them, but {call.subject} was made for
        {takes}.
    parts: given[1] must be {takes}
    parts: one[0] must be {given[1]} for one in [call.tensor(role, 1)] when one and one.ndim
    with last: given.ndim - 1
    with is_last: given.ndim > 2 and given[-1] == takes and (last == 2 or given[-2] != takes)
    with order: as_args([0, last, *range(1, last)])
    try: {given.code}.transpose(1, {last}) when is_last and last == 2
    try: {given.code}.permute({order}) when is_last and last > 2
    try: {layer} for layer in call.layer_with("num_features", given[1]) when not is_last or given.before

Expected (?P<role>weight|bias) to be a vector of size equal to the number of channels in input
    with other: call.tensor(role, 2)
    shape: The channels of {given} are dimension 1, and there are {given[1]} of them, but {call.subject} was made for
        {sizes(other.shape)}.
    parts: given[1] must be {sizes(other.shape)}; other[0] must be {given[1]}

Expected (?P<role>weight|bias) to be of same shape as normalized_shape, but got .*? of shape \[{got:shape}\] and \
normalized_shape = \[{wanted:shape}\]
    with other: call.tensor(role, 2 if role == "weight" else 3) or call.of_shape(got)
    shape: The {role} has the shape that is normalised over, {sizes(wanted)}: {other}.
    parts: other.shape must be {sizes(wanted)}

number of channels in input to be divisible by num_groups, .* and num_groups={groups}
    shape: The channels must be divisible by num_groups={groups}: {given} has {given[1]} in dimension 1.
    parts: given[1] must be a multiple of {groups}

Expected more than 1 value per channel
    shape: In training, {call.subject} needs at least two values for each channel, and {given} has one: a batch of one.
    with at: 0 if given[0] == 1 else -1
    parts: given[at] must be 2; try: DataLoader(..., drop_last=True); try: {as_code(call.layer)}.eval() when call.layer

Found parameter numbers = {got} and channel size = {wanted}
    shape: There must be one parameter for each channel, or one for all: {weight} against the {wanted} channels of
        {first}.
    parts: first[1] must be {got}; weight is {got} must be {wanted}

Given normalized_shape=\[{wanted:shape}\], expected input with shape
    with many: len(wanted); with last: "dimension" if many == 1 else f"{many} dimensions"
    with tail: given.shape[-many:]; with own: all one is not given and one.shape == wanted
    with wrong: [at for at in range(-many, 0) if -at <= given.ndim and given[at] != wanted[at]]
    shape: The last {last} of {given} must be {sizes(wanted)}, which is what {call.subject} normalises over, not
        {sizes(tail)}.
    parts: given[at] must be {wanted[at]} for at in wrong; parts: given.shape must be {sizes(wanted)} when not wrong
    parts: one.shape must be {sizes(tail)} for one in own
    try: {given.code}.transpose({given.shape.index(wanted[0])}, -1) when many == 1 and wanted[0] in given.shape[:-1]
    with now: tail[0] if many == 1 else [*tail]
    try: {layer} for layer in call.layer_with("normalized_shape", now) when call.function == "layer_norm"
""")
