"""Find which of many texts contain one of a few dozen short strings, in one pass over the bytes of all of them.

A `needle in text` for each of fifty needles costs about 15 ns a byte; this costs 2, because the pass is numpy's. The
idea is Teddy's (Hyperscan, Wang et al., NSDI 2019), on pairs of bytes: a table says for each pair in which needles it
can be the first or the second half of the last four bytes, eight buckets of needles at a time, and a needle can only be
where a first half is followed by a second half of its bucket. The few places so found are compared with the needles
themselves.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt

__all__ = ["Needles"]

_GRAM = 4
_ANY = bytes(range(256))
_BUCKETS = 8
_BLOCK_BYTES = (
    32 * 1024
)  # what numpy makes of a block on the way, twelve times its size, stays in the processor's cache
# Four bytes as a little-endian number: without the bit that tells upper from lower case, which mixes up others too; its
# first three.
_WITHOUT_CASE, _THREE = 0xDFDFDFDF, 0xDFDFDF
_SECOND = np.uint16(_BUCKETS)
# More likely places than ordinary blocks have: a character may be repeated, and each of its places says the same.
_MANY = 256
# Multiplicative hashing (Knuth), to 16 bits.
_FACTOR, _SHIFT = np.uint32(0x9E3779B1), np.uint32(16)


class Needles:
    """Strings to be found, by their last four bytes at first.

    Args:
        exact: found as they are.
        folded: found in upper and lower case (of ASCII letters).

    Raises:
        ValueError: a needle is shorter than three bytes.
    """

    def __init__(self, exact: Iterable[bytes], folded: Iterable[bytes] = ()) -> None:
        exact_endings = _by_ending(exact)
        folded_endings = _by_ending(needle.lower() for needle in folded)
        places = [[bytes([byte]) for byte in gram] for gram in sorted(exact_endings)]
        places += [[bytes([byte, *bytes([byte]).swapcase()]) for byte in gram] for gram in sorted(folded_endings)]
        # Low byte: buckets in which the pair can be the first half; high byte: the second. Indexed as little-endian
        # pairs.
        halves = np.zeros((256, 256), np.uint16)
        for number, place in enumerate(sorted(places, key=len)):
            if len(place) < 3:
                raise ValueError("a needle has three bytes or more")
            first, second, third, fourth = (*place, _ANY)[:_GRAM]
            bucket = number * _BUCKETS // len(places)
            halves[np.ix_(list(second), list(first))] |= np.uint16(1 << bucket)
            halves[np.ix_(list(fourth), list(third))] |= np.uint16(1 << bucket + _BUCKETS)
        self._halves = halves.reshape(-1)
        # By their last four bytes without case: the needles, and whether each is found in upper and lower case.
        self._ending: dict[int, list[tuple[bytes, bool]]] = {}
        for endings, folds in ((exact_endings, False), (folded_endings, True)):
            for ending, needles in endings.items():
                gram = int.from_bytes(ending, "little") & _WITHOUT_CASE
                self._ending.setdefault(gram, []).extend((needle, folds) for needle in needles)

        self._hashed = np.zeros(1 << 16, np.bool_)
        self._hashed[_hash(np.array(list(self._ending), np.uint32))] = True

    def find(self, texts: Sequence[bytes]) -> dict[int, set[bytes]]:
        """Needles of each text by its index, ascending; folded ones in lower case. Texts without are left out."""
        joined = b"\n".join(texts) + b"\n"  # a needle of three bytes is looked for with the one behind it
        found: dict[int, set[bytes]] = {}
        ends = list(accumulate(len(text) + 1 for text in texts))
        seen: set[int] = set()  # endings in the text at hand: it is searched for what ends so once
        index = end = 0
        for position, gram in self._endings(joined, ends):
            if position >= end:
                index = bisect_right(ends, position)
                end, seen = ends[index], set()
            if gram not in seen:
                seen.add(gram)
                for needle, folded in self._ending[gram]:
                    if needle in (texts[index].lower() if folded else texts[index]):
                        found.setdefault(index, set()).add(needle)
        return found

    def _endings(self, joined: bytes, ends: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Where, ascending, the last four or three bytes of a needle may stand, and which."""
        for start in range(0, len(joined) - _GRAM + 1, _BLOCK_BYTES):
            pairs = min(_BLOCK_BYTES + 2, len(joined) - 1 - start)
            overlapping = np.ndarray((pairs,), "<u2", joined, start, (1,))
            # Every pair of bytes is a valid index: "clip" clips nothing, it only saves a check of all of them.
            halves = self._halves.take(overlapping, mode="clip")
            both = halves[2:] >> _SECOND
            both &= halves[:-2]
            places = (both != 0).nonzero()[0]
            grams = np.ndarray((pairs - 2,), "<u4", joined, start, (1,))[places] & _WITHOUT_CASE
            # Most are pairs of two needles of one bucket, which a hash of all four bytes, or of three, tells.
            likely = self._hashed[_hash(grams)] | self._hashed[_hash(grams & _THREE)]
            places, grams = places[likely], grams[likely]
            if len(places) > _MANY:
                # Of a text that repeats itself each ending is looked at once.
                texts = np.searchsorted(ends, places + start, "right")
                new = np.sort(np.unique((texts << 32) | grams, return_index=True)[1])
                places, grams = places[new], grams[new]
            for position, gram in zip(places.tolist(), grams.tolist(), strict=True):
                if gram in self._ending:
                    yield start + position, gram
                if gram & _THREE in self._ending:
                    yield start + position, gram & _THREE


def _hash(grams: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    return (grams * _FACTOR) >> _SHIFT


def _by_ending(needles: Iterable[bytes]) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    for needle in needles:
        found.setdefault(needle[-_GRAM:], []).append(needle)
    return found
