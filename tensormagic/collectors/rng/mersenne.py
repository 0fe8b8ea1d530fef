"""From the state of a Mersenne Twister back to its seed, and how many numbers it has given since.

NumPy's global generator and Python's ``random`` forget their seed; torch's keeps it, but not how often it was used.
All three are MT19937, whose step can be undone: the state is stepped back, 624 numbers at a time, until it is one that
a seed makes. That is certain, not a guess: a state that came from a seed fulfils hundreds of equations.

Sources: M. Matsumoto and T. Nishimura, mt19937ar.c (``init_genrand``, ``init_by_array``, ``genrand_int32``). numpy's
``seed(n)`` is ``init_genrand``, ``seed([...])`` and Python's ``random.seed(n)`` are ``init_by_array`` with the number
cut into 32-bit words; torch's ``manual_seed(n)`` is ``init_genrand`` with the low 32 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]

SIZE, _SHIFT = 624, 397
_MATRIX, _UPPER, _LOWER = 0x9908B0DF, 0x80000000, 0x7FFFFFFF
_GENRAND, _ARRAY_1, _ARRAY_2, _ARRAY_SEED = 1812433253, 1664525, 1566083941, 19650218
_INVERSE = pow(_GENRAND, -1, 1 << 32)
_LENGTHS = np.arange(1, 65, dtype=np.uint32)  # words of a seed that is looked for
MOST_BACK = 1_000  # steps of 624 numbers
MOST_FORWARD = 160_000


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a state comes from."""

    key: tuple[int, ...]  # the words of the seed, the lowest first; one word for ``init_genrand``
    drawn: int  # 32-bit numbers given since

    @property
    def seed(self) -> int:
        """The seed as one number."""
        return sum(word << (32 * at) for at, word in enumerate(self.key))


def origin_of(state: Words, position: int, *, most: int = MOST_BACK) -> Origin | None:
    """Return the seed of a state of 624 words and how far it has come, of which ``position`` were given.

    None where no seed is met within ``most`` steps of 624 numbers back.
    """
    found = _seed_behind(np.asarray(state, dtype=np.uint32).tobytes(), most)
    if found is None:
        return None
    key, steps = found
    drawn = (steps - 1) * SIZE + position
    return Origin(key, drawn) if drawn >= 0 else None


@lru_cache(maxsize=16)  # a generator that nobody seeded is looked through in full: a tenth of a second
def _seed_behind(words: bytes, most: int) -> tuple[tuple[int, ...], int] | None:
    """Return the seed of a state's words, and how many steps lie between; None where none is met within ``most``."""
    current: Words = np.frombuffer(words, dtype=np.uint32)
    for steps in range(most + 1):
        if key := _genrand_key(current) or _array_key(current):
            return key, steps
        current = stepped_back(current)
    return None


def distance(start: Words, start_position: int, state: Words, position: int, *, most: int = MOST_FORWARD) -> int | None:
    """Return how many numbers lie between two states of one generator; None where the second is not met.

    Goes forward with NumPy's own generator, some hundred million numbers a second, ``most`` steps of 624 numbers at
    most. Of each state, the position says how many of its 624 words were given.
    """
    if np.array_equal(start[1:], state[1:]):
        return position - start_position if position >= start_position else None
    walker = np.random.MT19937()
    walker.state = {"bit_generator": "MT19937", "state": {"key": start, "pos": SIZE}}
    wanted = _tempered(np.asarray(state, dtype=np.uint32))[:2]
    done, chunk = 0, 1
    while done < most:
        given = walker.random_raw(SIZE * chunk).astype(np.uint32).reshape(chunk, SIZE)
        found = np.flatnonzero((given[:, 0] == wanted[0]) & (given[:, 1] == wanted[1]))
        if found.size:
            return (done + int(found[0])) * SIZE + position + SIZE - start_position
        done, chunk = done + chunk, min(2 * chunk, 2_000)
    return None


def genrand(seed: int) -> Words:
    """Return the state that ``init_genrand`` makes."""
    words, last = [seed & 0xFFFFFFFF], seed & 0xFFFFFFFF
    for at in range(1, SIZE):
        last = (_GENRAND * (last ^ (last >> 30)) + at) & 0xFFFFFFFF
        words.append(last)
    return np.array(words, dtype=np.uint32)


_ARRAY_START = genrand(_ARRAY_SEED)  # what ``init_by_array`` begins with


def _tempered(words: Words) -> Words:
    """Return the numbers that the words of a state are given out as."""
    y = words ^ (words >> np.uint32(11))
    y ^= (y << np.uint32(7)) & np.uint32(0x9D2C5680)
    y ^= (y << np.uint32(15)) & np.uint32(0xEFC60000)
    y ^= y >> np.uint32(18)
    return y


def stepped_back(state: Words) -> Words:
    """Return the state before the last step of 624 numbers; of a seed's own state, the first word is not recovered."""
    whole = np.empty(2 * SIZE, dtype=np.uint32)
    whole[SIZE:] = state
    for first, last in ((SIZE - _SHIFT + 1, SIZE), (1, SIZE - _SHIFT + 1)):
        here, before = _mixed(whole, first, last), _mixed(whole, first - 1, last - 1)
        whole[first:last] = (here & np.uint32(_UPPER)) | (before & np.uint32(_LOWER))
    before = _untwisted(whole[SIZE - 1 : SIZE] ^ whole[_SHIFT - 1 : _SHIFT])
    whole[:1] = (_mixed(whole, 0, 1) & np.uint32(_UPPER)) | (before & np.uint32(_LOWER))
    return whole[:SIZE]


def _mixed(whole: Words, first: int, last: int) -> Words:
    """Return ``upper bit of x[n] | lower bits of x[n + 1]`` for n in a range, from the words that came of them."""
    return _untwisted(whole[first + SIZE : last + SIZE] ^ whole[first + _SHIFT : last + _SHIFT])


def _untwisted(words: Words) -> Words:
    odd = words >> np.uint32(31)
    return ((words ^ (odd * np.uint32(_MATRIX))) << np.uint32(1)) | odd


def _stirred(words: Words) -> NDArray[np.uint64]:
    wide = words.astype(np.uint64)
    return wide ^ (wide >> np.uint64(30))


def _genrand_key(state: Words) -> tuple[int, ...] | None:
    second = int(state[1])
    if int(state[2]) != (_GENRAND * (second ^ (second >> 30)) + 2) & 0xFFFFFFFF:
        return None
    expected = (_stirred(state[1:-1]) * np.uint64(_GENRAND) + np.arange(2, SIZE, dtype=np.uint64)).astype(np.uint32)
    if not np.array_equal(expected, state[2:]):
        return None
    mixed = ((second - 1) * _INVERSE) & 0xFFFFFFFF
    seed = mixed ^ (mixed >> 30)
    return (seed,) if seed >> 31 == int(state[0]) >> 31 else None


def _array_key(state: Words) -> tuple[int, ...] | None:
    """Undo ``init_by_array``: its key, word for word, where it is at most 64 words long."""
    if int(state[0]) >> 31 == 0:
        return None
    at = np.arange(SIZE, dtype=np.uint32)
    before = np.zeros(SIZE, dtype=np.uint32)  # what the first loop left; the first word is left out of account
    stirred = (_stirred(state) * np.uint64(_ARRAY_2)).astype(np.uint32)
    before[3:] = (state[3:] + at[3:]) ^ stirred[2:-1]
    before[1] = (state[1] + np.uint32(1)) ^ stirred[SIZE - 1]
    before[2:3] = (state[2] + np.uint32(2)) ^ (_stirred(before[1:2]) * np.uint64(_ARRAY_2)).astype(np.uint32)
    stirred = (_stirred(before) * np.uint64(_ARRAY_1)).astype(np.uint32)
    key: Words = before[3:] - (_ARRAY_START[3:] ^ stirred[2:-1])  # key[j] + j for steps 2 to 622 of that loop
    repeated = key[_LENGTHS] - (_LENGTHS + 2) % _LENGTHS == key[0] - np.uint32(2) % _LENGTHS
    for length in map(int, _LENGTHS[repeated]):
        words = key - (at[2 : SIZE - 1] % np.uint32(length))
        if np.array_equal(words[length:], words[:-length]):
            return tuple(int(words[(at - 2) % length]) for at in range(length))
    return None
