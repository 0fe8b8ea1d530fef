"""Finds and reads generators: seed, how far they have come, and a digest of their state. Reading advances none."""

from __future__ import annotations

import hashlib
import json
import math
import random
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch

from tensormagic.collectors.calls.seen_made import was_chosen
from tensormagic.collectors.objects.children import is_kind
from tensormagic.collectors.objects.referents import Budget, ReferenceWalk, roots
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.rng import mersenne
from tensormagic.reports import Gap
from tensormagic.reports.rng import GeneratorState, Library, RngReport, Seeding
from tensormagic.words import error_text

# Facts of formats, from the sources: torch's CPU state is ``CPUGeneratorImplStateLegacy`` (seed, numbers left, next
# index, 624 words of 64 bits, then the kept half of a normal pair), in ATen/CPUGeneratorImpl.cpp; CUDA's is seed and
# offset. A new ``torch.Generator()`` begins with ``default_rng_seed_val``, 67280421310721 (c10/core/GeneratorImpl.h).
# NumPy's ``PCG64`` is a linear congruential generator: how many steps lie between two states is found bit by bit (F.
# Brown, Random Number Generation with Arbitrary Stride, 1994, as in M. O'Neill's pcg library).

NEVER_SEEDED = 67280421310721
_ENTROPY_BITS = 96  # NumPy takes 128 bits from the system; a seed that was written down is rarely so long
MOST_LOOKED = 40_000
_PCG = {"PCG64": 0x2360ED051FC65DA44385DF649FCCF645, "PCG64DXSM": 0xDA942042E4DD58B5}
_COUNTING = {"Philox", "SFC64"}  # their state has a counter of the numbers
_WIDE = (1 << 128) - 1
_MOST_DRAWN = 1 << 64
_MOST_BETWEEN = 4_000  # steps of 624 numbers between two looks


@dataclass(frozen=True, slots=True)
class Reading:
    """The state of a generator in plain numbers."""

    library: Library  # Whose it is.
    algorithm: str  # Its name.
    device: str  # Where it draws.
    raw: bytes  # All of its state: equal where the next numbers are equal.
    words: mersenne.Words | None = None  # The state of a Mersenne Twister; None for others.
    position: int = 0  # How many of these were given; of one that counts its numbers, where that count stands.
    seed: int | None = None  # Seed as its library keeps it; None where it keeps none.
    pending: bool = False  # Whether half of a pair of normal numbers is kept.
    # State and increment of a linear congruential generator (NumPy's PCG64); None for others.
    steps: tuple[int, int] | None = None

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits of a hash of the state."""
        return hashlib.blake2b(self.raw, digest_size=6).hexdigest()

    def numbers_to(self, later: Reading, most: int = _MOST_BETWEEN) -> int | None:
        """Return how many numbers a later state is ahead; None where it does not follow from this one.

        That of a Mersenne Twister is looked for among the next ``most`` times 624 numbers.
        """
        if self.words is not None and later.words is not None:
            before, after = self.position or mersenne.SIZE, later.position or mersenne.SIZE
            return mersenne.distance(self.words, before, later.words, after, most=most)
        if self.steps is not None and later.steps is not None and self.steps[1] == later.steps[1]:
            taken = lcg_distance(self.steps[0], later.steps[0], self.steps[1], _PCG[self.algorithm])
            return taken if taken < _MOST_DRAWN else None
        if self.algorithm in _COUNTING and self.seed == later.seed and later.position >= self.position:
            return later.position - self.position
        return None


def identity(generator: Any) -> int:
    """Return what tells a generator from others: torch wraps its own anew each time that it hands one to Python."""
    return int(getattr(generator, "_cdata", 0)) or id(generator)


def read(generator: Any) -> Reading:
    """Return the state of a generator: of torch's, NumPy's or Python's."""
    if isinstance(generator, torch.Generator):
        return _of_torch(generator)
    if isinstance(generator, random.Random):
        return _of_python(generator)
    return _of_numpy(generator)


def state_of(generator: Any, name: str, *names: str) -> GeneratorState:
    """Return what a report says of a generator of torch's, NumPy's or Python's, by its name and its other names."""
    reading = read(generator)
    seed, seeding, drawn, least = _TELL[reading.library](generator, reading)
    return GeneratorState(
        name=name, library=reading.library, algorithm=reading.algorithm, device=reading.device, seed=seed,
        seeding=seeding, drawn=drawn, bits=32 if reading.words is not None or reading.library == "torch" else 64,
        least=least, pending=reading.pending, digest=reading.digest, names=names,
    )  # fmt: skip


def _of_torch(generator: torch.Generator) -> Reading:
    device, seed = str(generator.device), int(generator.initial_seed())
    try:
        with torch._C.DisableTorchFunction():  # a trace around it would take this for the user's call
            raw = generator.get_state().numpy().tobytes()
    except Exception:  # under a mode of the user's that takes no plain tensors; leaving it takes 10 µs
        with quiet():
            raw = generator.get_state().numpy().tobytes()
    if generator.device.type == "cpu":
        _, _, _, position = struct.unpack_from("<QiiQ", raw, 0)
        words = np.frombuffer(raw, dtype="<u8", count=mersenne.SIZE, offset=24).astype(np.uint32)
        pending = bool(struct.unpack_from("<i", raw, 5040)[0] or raw[5052])
        return Reading("torch", "MT19937", device, raw, words, int(position), seed, pending)
    try:
        return Reading("torch", "Philox", device, raw, None, int(generator.get_offset()), seed)
    except (AttributeError, RuntimeError):  # a device whose generator counts otherwise
        return Reading("torch", "its device's algorithm", device, raw, None, 0, seed)


def _tell_torch(generator: Any, reading: Reading) -> tuple[str, Seeding, int | None, int]:
    seed, device = cast("int", reading.seed), generator.device
    described: Seeding = "default" if seed == NEVER_SEEDED else "chosen" if was_chosen(seed, device) else "entropy"
    if described == "entropy":
        module = torch if device.type == "cpu" else getattr(torch, device.type, torch)
        # torch seeds those of a device from the system's entropy when it starts. The seed of another one was as likely
        # drawn from a generator, as a data loader does, which gives it again.
        of_devices = getattr(module, "default_generators", None) or (torch.default_generator,)
        described = "entropy" if identity(generator) in map(identity, of_devices) else "unknown"
    if reading.words is None:
        return str(seed), described, reading.position if reading.algorithm == "Philox" else None, 0
    start = mersenne.genrand(seed)  # with its low 32 bits
    drawn = mersenne.distance(start, mersenne.SIZE, reading.words, reading.position or mersenne.SIZE)
    return str(seed), described, drawn, 0 if drawn is not None else mersenne.MOST_FORWARD * mersenne.SIZE


def _of_python(generator: random.Random) -> Reading:
    if isinstance(generator, random.SystemRandom):  # has no state of its own
        return Reading("python", "the system's", "cpu", b"")
    _, state, kept = random.Random.getstate(generator)
    words = np.array(state[:-1], dtype=np.uint32)
    raw = words.tobytes() + struct.pack("<i?d", state[-1], kept is not None, kept or 0.0)
    return Reading("python", "MT19937", "cpu", raw, words, state[-1], None, kept is not None)


def _tell_python(_generator: Any, reading: Reading) -> tuple[str, Seeding, int | None, int]:
    origin = mersenne.origin_of(reading.words, reading.position) if reading.words is not None else None
    if origin is None:
        return "", "entropy" if reading.words is None else "unknown", None, 0
    described = str(origin.seed) if len(origin.key) <= 4 else "a text or bytes"
    return described, "chosen", origin.drawn, 0


def _of_numpy(generator: Any) -> Reading:
    legacy = isinstance(generator, np.random.RandomState)
    state: dict[str, Any] = generator.get_state(legacy=False) if legacy else generator.bit_generator.state
    algorithm, inner = state["bit_generator"], state["state"]
    if algorithm != "MT19937":
        steps = (inner["state"], inner["inc"]) if algorithm in _PCG else None
        given, key = 0, None
        if algorithm == "Philox":  # of each four numbers that it makes, some may not be given yet
            given = int(inner["counter"][0]) * 4 + state["buffer_pos"] - 4
            key = int.from_bytes(inner["key"].tobytes(), "little")
        elif algorithm == "SFC64":
            given = int(inner["state"][3])
        raw = json.dumps(state, default=lambda value: value.tolist()).encode()
        return Reading("numpy", algorithm, "cpu", raw, position=given, seed=key, steps=steps)
    kept = bool(state.get("has_gauss"))
    raw = inner["key"].tobytes() + struct.pack("<i?d", inner["pos"], kept, state.get("gauss", 0.0))
    return Reading("numpy", algorithm, "cpu", raw, inner["key"], inner["pos"], None, kept)


def _tell_numpy(generator: Any, reading: Reading) -> tuple[str, Seeding, int | None, int]:
    legacy = isinstance(generator, np.random.RandomState)
    if legacy and reading.words is not None and (origin := mersenne.origin_of(reading.words, reading.position)):
        described = str(origin.seed) if len(origin.key) == 1 else str(list(origin.key))
        return described, "chosen", origin.drawn, 0
    bits = generator._bit_generator if legacy else generator.bit_generator
    sequence: Any = getattr(bits, "seed_seq", None) or getattr(bits, "_seed_seq", None)  # its name before NumPy 1.25
    entropy = getattr(sequence, "entropy", None)
    if entropy is None:
        return "", "unknown", None, 0
    again = type(sequence)(entropy, spawn_key=sequence.spawn_key, pool_size=sequence.pool_size)
    drawn = read(np.random.Generator(type(bits)(again))).numbers_to(reading, mersenne.MOST_FORWARD)
    if drawn is None:  # it was given another state since: that seed shows nothing
        return "", "unknown", None, 0
    chosen = not isinstance(entropy, int) or entropy.bit_length() < _ENTROPY_BITS
    spawned = f", child {list(sequence.spawn_key)}" if sequence.spawn_key else ""
    return f"{entropy}{spawned}", "chosen" if chosen else "entropy", drawn, 0


def lcg_distance(start: int, state: int, increment: int, multiplier: int) -> int:
    """Return how many steps of ``state * multiplier + increment`` modulo 2**128 lead from one state to another."""
    distance = 0
    for bit in (1 << at for at in range(128)):
        if (start ^ state) & bit:
            start, distance = (start * multiplier + increment) & _WIDE, distance | bit
        increment, multiplier = ((multiplier + 1) * increment) & _WIDE, (multiplier * multiplier) & _WIDE
    return distance


_TELL = {"torch": _tell_torch, "numpy": _tell_numpy, "python": _tell_python}


TYPES = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
Named = dict[int, tuple[Any, list[str]]]


def collect_rng(namespace: Mapping[str, Any]) -> RngReport:
    """Return every generator in reach of the user's names. Advances none, seeds none, and starts no device."""
    with quiet():
        found, cut = generators(namespace)
        every: list[GeneratorState | Gap] = [Gap("names", cut)] if cut else []
        every += [_described(generator, names) for generator, names in found.values()]
        states = tuple(one for one in every if isinstance(one, GeneratorState))
        return RngReport(generators=states, gaps=tuple(one for one in every if isinstance(one, Gap)))


def _described(generator: Any, names: list[str]) -> GeneratorState | Gap:
    try:
        return state_of(generator, *names)
    except Exception as error:  # a subclass of a user's own may refuse
        return Gap(names[0], error_text(error))


def generators(namespace: Mapping[str, Any]) -> tuple[Named, str]:
    """Return the generators by identity, with their names; and why not all names were gone through, or nothing."""
    found: Named = {identity(generator): (generator, [name]) for name, generator in defaults()}
    walk = ReferenceWalk(Budget(MOST_LOOKED, math.inf), with_bases=False)
    for place, item, _ in walk.meet(roots(namespace)):
        if is_kind(item, *TYPES):
            _, names = found.setdefault(identity(item), (item, []))
            if place.path not in names:
                names.append(place.path)
    return found, walk.cut


def defaults() -> Iterator[tuple[str, Any]]:
    """Yield the generators that calls without a generator draw from: torch's of each device, NumPy's and Python's."""
    yield "torch, CPU", torch.default_generator
    for kind in ("cuda", "xpu"):
        module = getattr(torch, kind)
        if module.is_initialized():
            yield from ((f"torch, {kind}:{at}", each) for at, each in enumerate(module.default_generators))
    if torch.backends.mps.is_available():
        yield "torch, mps", torch.mps._get_default_mps_generator()
    yield "numpy.random", np.random.mtrand._rand
    yield "random", random._inst
