"""Says in words what a pickle wanted that is no plain data: which module and name, or which kind of thing."""

from __future__ import annotations

import pickletools

_LOOKED_THROUGH = 2**22  # bytes before an import that are searched for its name
_LONGEST_NAME = 100

_WANTED = {
    "REDUCE": "it wants to call a function",
    "OBJ": "it wants to make an object of a class",
    "NEWOBJ": "it wants to make an object of a class",
    "NEWOBJ_EX": "it wants to make an object of a class",
    "BUILD": "it wants to set the state of an object",
    "PERSID": "it wants an object from outside the file (a persistent id)",
    "BINPERSID": "it wants an object from outside the file (a persistent id)",
    "EXT1": "it wants an object from copyreg's registry of extensions",
    "EXT2": "it wants an object from copyreg's registry of extensions",
    "EXT4": "it wants an object from copyreg's registry of extensions",
    "NEXT_BUFFER": "it wants a buffer from outside the file",
    "READONLY_BUFFER": "it wants a buffer from outside the file",
}


def wanted(data: bytes, at: int, name: str) -> str:
    """Return what the operation ``name`` at byte ``at`` would do: ``"it wants to import os.system"``."""
    if name in {"GLOBAL", "INST"}:
        module, attribute, *_ = [*data[at + 1 : at + 1 + 4 * _LONGEST_NAME].split(b"\n"), b"?"]
        return f"it wants to import {_shown(module)}.{_shown(attribute)}"
    if name == "STACK_GLOBAL":
        return f"it wants to import {_imported(data, at)}"
    return _WANTED.get(name, f"it uses {name}, which no snapshot needs")


def _shown(name: bytes) -> str:
    return ascii(name[:_LONGEST_NAME].decode("utf-8", "replace"))[1:-1]


def _imported(data: bytes, at: int) -> str:
    """Return the two names that lie on top of the stack at byte ``at``: module and attribute."""
    if at > _LOOKED_THROUGH:
        return "something (too far into the file to look up its name)"
    memo: dict[object, object] = {}
    stack: list[object] = []
    for opcode, argument, place in pickletools.genops(data[: at + 1]):
        if place == at:
            break
        if opcode.name == "MEMOIZE":
            memo[len(memo)] = stack[-1] if stack else "?"
        elif opcode.name in {"BINGET", "LONG_BINGET"}:
            stack.append(memo.get(argument, "?"))
        elif opcode.stack_after:
            stack.append(argument)
    names = ["?", "?", *(each for each in stack if isinstance(each, str))][-2:]
    return ".".join(_shown(each.encode()) for each in names)
