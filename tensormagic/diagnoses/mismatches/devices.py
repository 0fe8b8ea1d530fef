"""Operands on different devices, and random generators of another device than that of the numbers they draw."""

from __future__ import annotations

import re

from tensormagic.diagnoses.mismatches.call import Call, Given, mismatch, whole
from tensormagic.diagnoses.mismatches.dtypes import is_parameter
from tensormagic.reports import Mismatch
from tensormagic.words import listed

_META = "; a meta tensor has a shape but no values"


def devices(call: Call, _: re.Match[str]) -> Mismatch | None:
    """Expected all tensors to be on the same device; whatever the message names, the operands say which is where."""
    found = _by_device(call)
    if len(found) < 2:
        return None
    left, right = _representatives(found)
    rule = f"All must be on one device: {_where(found)}{_META if 'meta' in found else ''}."
    parts = []
    for device, ones in found.items():
        other = right.device if device == left.device else left.device
        parts += [whole(one, device, other) for one in ones]
    return mismatch("device", rule, *parts, works=_ways(call, left, right))


def _by_device(call: Call) -> dict[str, list[Given]]:
    """Return the operands by their device; a single number on the CPU goes with every device."""
    found: dict[str, list[Given]] = {}
    for one in call.tensors:
        found.setdefault(one.device, []).append(one)
    if len(found) > 2 and all(not one.ndim for one in found.get("cpu", [])):
        found.pop("cpu", None)
    return found


def _representatives(found: dict[str, list[Given]]) -> tuple[Given, Given]:
    """Return one operand of each of two devices: the data first, the parameter second."""
    first, second = (ones[0] for ones in list(found.values())[:2])
    return (second, first) if is_parameter(first) and not is_parameter(second) else (first, second)


def _where(found: dict[str, list[Given]]) -> str:
    return "; ".join(
        f"{listed([one.name for one in ones])} {'is' if len(ones) == 1 else 'are'} on {device}"
        for device, ones in found.items()
    )


def _ways(call: Call, given: Given, fixed: Given) -> list[str]:
    """Return how the two come together: data to where the parameters are, and away from the CPU; never out of meta."""
    if "meta" in {given.device, fixed.device}:
        empty = given if given.device == "meta" else fixed
        other = fixed if empty is given else given
        root = call.layer.split(".", 1)[0] if is_parameter(empty) else ""
        return [
            f'{root}.to_empty(device="{other.device}")'
            if root
            else f'torch.empty_like({empty.code}, device="{other.device}")'
        ]
    if not is_parameter(fixed) and fixed.device == "cpu":
        given, fixed = fixed, given
    ways = [f"{given.code}.to({fixed.code}.device)"]
    if is_parameter(fixed) and call.layer and given.device != "cpu":
        ways.append(f'{call.layer.split(".", 1)[0]}.to("{given.device}")')
    return ways


def generator(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Expected a 'cuda' device type for generator but found 'cpu'."""
    wanted, got = found[1], found[2]
    given = next((one for one in call.given if "generator" in (one.operand.role, one.operand.name)
                  or "Generator" in one.operand.text), None)  # fmt: skip
    parts = [whole(given, got, wanted)] if given is not None else []
    on = next((one for one in call.tensors if one.device.split(":")[0] == wanted), None)
    parts += [whole(on, on.device, got)] if on is not None else []
    name = call.written("generator") or (given.operand.name if given is not None else "")
    rule = (
        f"A generator draws numbers on its own device only: {name or 'the generator'} is on {got}, and the numbers "
        f"are to be on {wanted}."
    )
    works = [f'{name or "generator"} = torch.Generator(device="{wanted}").manual_seed(0)']
    return mismatch("device", rule, *parts, works=works)


def no_values(call: Call, _: re.Match[str]) -> Mismatch | None:
    """Cannot copy out of meta tensor; no data."""
    wrong = next((one for one in call.tensors if one.device == "meta"), None)
    if wrong is None:
        return None
    root = wrong.operand.name.split(".", 1)[0] if "." in wrong.operand.name else ""
    rule = f"A tensor on the meta device has a shape but no values, and {wrong.name} is on meta."
    works = [f'{root}.to_empty(device="cpu")'] if root.isidentifier() else []
    return mismatch("device", rule, whole(wrong, "meta", "cpu"), works=works)


def to_numpy(call: Call, found: re.Match[str]) -> Mismatch | None:
    """Can't convert cuda:0 device type tensor to numpy."""
    wrong = call.tensor("input|self", 0)
    if wrong is None:
        return None
    if wrong.device == "meta":
        return no_values(call, found)
    rule = f"NumPy reads the memory of the CPU only, and {wrong.name} is on {wrong.device}."
    return mismatch("device", rule, whole(wrong, wrong.device, "cpu"), works=[f"{wrong.code}.cpu().numpy()"])


MESSAGES = (
    (r"Expected a '(\w+)' (?:device type|generator device) (?:for generator )?but found '(\w+)'", generator),
    (r"Expected a '(\w+)' device type for generator but found '(\w+)'", generator),
    ((r"on the same device|at the same device|not on the expected device|at least two devices"
      r"|different from other tensors on"),
     devices),
    (r"Input type \(torch\.[\w.]+\) and (?:bias|weight) type \(torch\.[\w.]+\) should be the same", devices),
    (r"is on \S+ but expected (?:it |them )?(?:to be )?on \S+", devices),
    (r"Placeholder storage has not been allocated on", devices),
    (r"Cannot copy out of meta tensor|cannot be called on meta tensors", no_values),
    (r"can't convert ([\w:]+) device type tensor to numpy", to_numpy),
)  # fmt: skip
