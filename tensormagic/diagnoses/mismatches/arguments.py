"""What is wrong with a call before any tensor is looked at: its arguments, and values out of their range."""

from __future__ import annotations

import re
from math import prod

from tensormagic.diagnoses.mismatches.call import Call, Given, mismatch, whole
from tensormagic.diagnoses.words import grouped
from tensormagic.reports import Mismatch


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
    rule = f"All members of the list must be tensors, and the one at {found[1]} is {_article(found[2])}."
    member = next((one for one in call.given if one.operand.place.endswith(f"[{found[1]}]")), None)
    return mismatch("argument", rule, *([whole(member, found[2], "Tensor")] if member is not None else []))


def unsupported_operands(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Unsupported operand type(s) for +: 'Tensor' and 'NoneType'."""
    other = found[3] if found[2] == "Tensor" else found[2]
    wrong = next((one for one in call.given if not one.operand.is_tensor), None)
    what = "None (a function without return?)" if other == "NoneType" else _article(other)
    rule = f"The operator {found[1]} joins a tensor with a tensor or a number, not with {what}."
    return mismatch("argument", rule, *([whole(wrong, other, "Tensor")] if wrong is not None else []))


def needs_members(_call: Call, _: re.Match[str]) -> Mismatch | None:
    """Expected a non-empty list of Tensors."""
    return mismatch("argument", "The list of tensors to put together must hold at least one, and is empty.")


def one_element(call: Call, _: re.Match[str]) -> Mismatch | None:
    """A Tensor with 10 elements cannot be converted to Scalar."""
    given = call.tensor("input|self", 0)
    if given is None:
        return None
    count = prod(given.shape)
    rule = f"The conversion to one number takes one element: {given.sized} has {grouped(count)}."
    works = [f"{given.code}.tolist()", f"{given.code}.mean().item()"]
    return mismatch("shape", rule, whole(given, f"{count} elements", "1 element"), works=works)


def truth(call: Call, _: re.Match[str]) -> Mismatch | None:
    """Boolean value of Tensor with more than one value is ambiguous."""
    given = call.tensor("input|self", 0)
    if given is None:
        return None
    rule = (
        f"A condition needs one truth value: {given.sized} has {grouped(prod(given.shape))}; all or any of them must "
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


MESSAGES = (
    (r"implemented for strided tensors only, got: torch\.(\w+)", layout),
    (r"unsupported operation: (more than one element of the written-to)?.*single memory location", overlapping),
    (r"(\w+)\(\): argument '(\w+)' \(position (\d+)\) must be ([\w ]+?), not ([\w.]+)", must_be),
    (r"(\w+)\(\) received an invalid combination of arguments - got \((.*?)\), but expected", no_such_call),
    (r"expected Tensor as element (\d+) in argument \d+, but got (\w+)", not_a_tensor),
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
