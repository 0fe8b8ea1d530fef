"""Values that a call does not take, and arguments in another order than it takes: sizes and dtypes alone look right."""

from __future__ import annotations

import ast
import re

from tensormagic.diagnoses.lines import expression_of
from tensormagic.diagnoses.mismatches.call import Call
from tensormagic.diagnoses.mismatches.table import Messages

says = Messages(globals())

says.table(r"""
# -- losses

(?:target_lengths|input_lengths) must be of size batch_size
    with given: call.tensor("log_probs", 0); with lengths: call.tensor("input_lengths", 2)
    if: given.ndim == 3 and lengths.shape == given.shape[:1] and given[0] != given[1]
    shape: Log-probabilities are time × batch × classes, and {given} has its {given[0]} samples first.
    parts: given.shape; try: {given.code}.transpose(0, 1)

0D or 1D target tensor expected, multi-target not supported
    if: call.function == "cosine_embedding_loss"; with wrong: call.tensor("target", 2)
    shape: The target is 1 for each pair that should be alike and -1 for each that should not, in one dimension: \
{wrong}.
    parts: wrong.ndim must be 1; try: {wrong.code}.squeeze(1) when wrong.ndim == 2 and wrong[1] == 1

0D or 1D target tensor expected, multi-target not supported
    with given: call.tensor("input|self", 0); with wrong: call.tensor("target", 1)
    if: given.shape == wrong.shape and (wrong.operand.least, wrong.operand.most) == (0, 1)
    shape: The target of this loss is one class for each sample, and {wrong} has a row for each, as one-hot targets do.
    parts: wrong.ndim must be 1; try: {wrong.code}.argmax(1)

# -- values that leave torch, or are to become one number

Can't call numpy\(\) on Tensor that requires grad
    with kept: tensors_kept(call, first.name); if: kept
    argument: NumPy does not support gradients, and {kept} holds tensors that require them, each with its whole graph:
        keep numbers, with .item(), where it is filled.
    parts: first is requires_grad=True; with listing: f"[each.item() for each in {kept}]"
    maybe: {listing} when first.numel == 1

Can't call numpy\(\) on Tensor that requires grad
    if: call.report.module; with code: of_torch(call)
    argument: NumPy does not support gradients, and {first.name} requires them: what is computed in a forward stays in
        torch, or nothing before it learns.
    parts: first is requires_grad=True; maybe: {code} when code

a Tensor with {several} elements cannot be converted to Scalar|only one element tensors can be converted to Python
    if: call.function in ("item", "int", "float", "bool") and "`" in anything.name
    if: not anything.place
    with code: anything.code + (".sum().item()" if is_comparison(anything.code) else ".tolist()")
    with number: plural(several, "element") if several else "several"
    shape: The conversion to one number takes one element: {anything.name} has {number}.
    parts: anything; maybe: {code}

# -- what is not called, or is no function

'torch\.Size' object is not callable
    with name: call.report.call.partition(".shape(")[0]; with rest: call.report.call.partition(".shape(")[2]; if: rest
    argument: The shape of a tensor is no function: {name}.size is.
    parts: anything; maybe: {name}.size({rest}

'(?:builtin_function_or_method|method)' object is not subscriptable
    with written: expression_of(call.report.call); with code: called(written); if: code
    argument: Parentheses are missing: {anything.name} is a method, and has no items.
    parts: anything; maybe: {code}

'(?:builtin_function_or_method|method)' object has no attribute '\w+'
    argument: What {anything.name} holds is the method {anything.text} of a tensor, not its result: a call has
        parentheses, {anything.text}().
    parts: anything

\.__init__\(\) takes (?:from \d+ to )?\d+ positional arguments? but \d+ (?:was|were) given
    with name: call.report.call.split("(")[0]; with kind: anything.text; if: kind and name != kind
    argument: A module is made first, then called with a tensor: {name} is the class {kind} itself.
    parts: anything; maybe: {name} = {kind}()

'NoneType' object has no attribute '\w+'
    with kept: [one for one in call.tensors if not one.operand.is_leaf and anything.name == one.name + ".grad"][0]
    argument: A backward keeps the gradients of leaves alone, and {kept.name} was computed: {kept.name}.grad is None.
    parts: anything is None must be Tensor; maybe: {kept.code}.retain_grad()  # before backward

# -- names that a shape, a tensor or a result is unpacked into

(?:not enough|too many) values to unpack \(expected {wanted}
    with code: call.report.call; if: code.endswith((".shape", ".size()"))
    with names: plural(wanted, "name") + (" is" if wanted == 1 else " are")
    shape: The shape of {first} holds {plural(first.ndim, "size")}, but {names} given.
    parts: first.ndim must be {wanted}
    maybe: {first.code} = {first.code}.unsqueeze(0)  # a batch of one when first.ndim == wanted - 1
    maybe: _, {code} when first.ndim == wanted + 1 and first.ndim > 2

(?:not enough|too many) values to unpack \(expected {wanted}
    with code: call.report.call; with loop: code.startswith("for "); if: first.ndim > loop
    with names: plural(wanted, "name") + (" is" if wanted == 1 else " are")
    with unpacking: f"Unpacking {first} along dimension 0 gives {plural(first[0], 'part')}"
    with parts: f"Each part of {first} holds {first[1]}" if loop else unpacking
    with dims: [first.shape.index(wanted)] if wanted in first.shape else []
    shape: {parts}, but {names} given.
    parts: first[loop] must be {wanted}
    maybe: {code.partition(" = ")[0]} = {first.code}.unbind({dims[0]}) when dims and not loop

(?:not enough|too many) values to unpack \(expected {wanted}
    with kind: anything.text.removeprefix("the module "); with several: kind == "LSTM"
    with gives: "output, (h_n, c_n)" if several else "output, h_n"; if: kind in ("LSTM", "GRU", "RNN")
    with names: plural(wanted, "name") + (" is" if wanted == 1 else " are")
    argument: An nn.{kind} returns two values, {gives}, but {names} given.
    parts: anything; maybe: {gives} = {call.report.call.partition(" = ")[2]}

# -- dimensions count from 0

Dimension out of range \(expected to be in range of \[-?\d+, {highest}\], but got {got}\)
    with wrong: [one for one in call.tensors if one.ndim == highest + 1]; with given: wrong[0]
    with last: f"the last is {highest}" if highest else "the only one is 0"; if: got == given.ndim
    with asking: [one for one in call.given if not one.is_tensor and str(got) in one.text][:1]
    index: Dimensions count from 0: of the {given.ndim} of {given} {last}, or -1, and {got} was given.
    parts: one is {got} must be {highest} for one in asking; parts: given.ndim must be {got + 1}

# -- what torch says of masks

Expected attn_mask dtype to be bool or float or to match query dtype
    with mask: call.tensor("attn_mask", 3)
    dtype: The attention mask is boolean, True where attention is allowed, or floating point, added to the scores:
        {mask.name} is {mask.dtype}.
    parts: mask.dtype must be bool; try: {mask.code}.bool() when mask.operand.least == 0 and mask.operand.most == 1

The shape of the 2D attn_mask is torch\.Size\(\[{got:shape}\]\), but should be \({wanted:shape}\)
    with mask: call.tensor("attn_mask", 3); with tokens: call.tensor("query", 0)
    with padding: tokens.ndim == 3 and got == (tokens[1], wanted[1]); with longer: min(got) > max(wanted)
    if: padding or longer
    with why: "one for each sample and key, as a key_padding_mask has" if padding else "more: slice it to this length"
    shape: The attention mask has one entry for each query and key, {sizes(wanted)}, and {mask} has {why}.
    parts: mask.shape must be {sizes(wanted)}
    maybe: key_padding_mask={mask.code} when padding and call.written("attn_mask")

size of tensor a \(\d+\) must match the size of tensor b
    if: call.function in ("masked_fill", "scaled_dot_product_attention")
    with scores: call.tensor("input|self|query", 0); with mask: call.tensor("mask|attn_mask", 1)
    with keys: call.tensor("key", 1)[-2] if call.function != "masked_fill" else scores[-1]
    if: scores.ndim > 2 and mask.shape == (scores[0], keys)
    with names: "batch × heads × queries × keys" if scores.ndim == 4 else "batch × queries × keys"
    shape: The scores of an attention are {names}, and {mask} has one entry for each sample and key.
    parts: mask.ndim must be {scores.ndim}; with ones: "None, " * (scores.ndim - 2); try: {mask.code}[:, {ones}:]

Fan in and fan out can not be computed for tensor with fewer than 2 dimensions
    with given: call.tensor("tensor|self|input", 0)
    argument: This initialisation needs a weight of two dimensions or more, and {given} has {given.ndim}: a bias, or
        the weight of a normalisation, is left as it is.
    parts: given.ndim must be 2

dropout probability has to be between 0 and 1, but got (?P<p>[\d.]+)
    argument: The probability of dropout lies between 0 and 1{percent(p)}.

offsets has to be a 1D Tensor but got None
    with given: call.tensor("input", 0)
    argument: An EmbeddingBag takes one bag in each row of two dimensions, or {given} in one dimension together with
        offsets, which say where each bag begins: {given.code}.unsqueeze(0) is one bag.
    parts: given; maybe: {given.code}.unsqueeze(0)  # one bag of all

the feature number of src and tgt must be equal to d_model
    with tokens: [one for one in call.tensors if "int" in one.dtype]; with names: [one.name for one in tokens]
    if: tokens
    argument: A Transformer takes embedded tokens, with d_model numbers for each, and {listed(names)} \
{"are" if names[1:] else "is"} {tokens[0].dtype}: an nn.Embedding comes first.
    parts: one for one in tokens

vmap: Expected all tensors to have the same size in the mapped dimension, got sizes \[{mapped:shape}\]
    argument: All tensors are mapped over together, and these have {listed(map(str, mapped))} entries there:
        in_dims=(0, None) hands the second one over whole.
""")


def percent(number: str) -> str:
    """Return what was meant by a number above 1, where that may be a percentage."""
    return f": {float(number) / 100:g} is {number} percent" if 1 < float(number) <= 100 else ""


def tensors_kept(call: Call, name: str) -> str:
    """Return the list that a function of NumPy's was given whole, of which a tensor is one item."""
    found = re.fullmatch(r"([\w.]+)\[\d+\]", name)
    is_whole = found is not None and re.search(rf"(?<![\w.]){re.escape(found[1])}(?![\w.\[])", call.report.call)
    return found[1] if found is not None and is_whole and "numpy()" not in call.report.call else ""


_SAME = frozenset({"exp", "log", "log1p", "expm1", "sqrt", "abs", "sin", "cos", "tan", "tanh", "square", "sum", "mean"})


def of_torch(call: Call) -> str:
    """Return the call of NumPy's as torch has it; empty where that is not plain."""
    match expression_of(call.report.call):
        case ast.Call(ast.Attribute(ast.Name("np" | "numpy"), name), [given], []) if name in _SAME:
            return f"torch.{name}({ast.unparse(given)})"
        case ast.Call(ast.Attribute(ast.Name("np" | "numpy"), "maximum"), [given, ast.Constant(0 | 0.0)], []):
            return f"torch.relu({ast.unparse(given)})"
    return ""


def is_comparison(code: str) -> bool:
    """Return whether code compares, so that its truths are counted."""
    return isinstance(expression_of(code), ast.Compare)


def called(written: ast.expr | None) -> str:
    """Return an item of a method as what was meant: a size by its number, else an item of the result."""
    match written:
        case ast.Subscript(ast.Attribute(_, "size" | "stride") as method, at):
            return f"{ast.unparse(method)}({ast.unparse(at)})"
        case ast.Subscript(ast.Attribute() as method, at):
            return f"{ast.unparse(method)}()[{ast.unparse(at)}]"
    return ""
