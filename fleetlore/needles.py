"""Which of many texts contain one of a few dozen short strings, found in one pass over the bytes of all of them.

A `needle in text` for each of fifty needles costs about 15 ns a byte; this costs 2, because the pass is numpy's. The idea is
Teddy's (Hyperscan, Wang et al., NSDI 2019), on pairs of bytes: a table says for each pair in which needles it can be the
first or the second half of the last four bytes, eight buckets of needles at a time, and a needle can only be where a first
half is followed by a second half of its bucket. The few places so found are compared with the needles' last bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

import numpy as np

__all__ = ["Needles"]

_GRAM = 4
_ANY = bytes(range(256))
_BUCKETS = 8
_BLOCK_BYTES = (
    32 * 1024
)  # what numpy makes of a block on the way, twelve times its size, stays in the processor's cache
_SECOND = np.uint16(_BUCKETS)


class Needles:
    """Strings to be found by their last four bytes.

    Args:
        exact: found as they are.
        folded: found in upper and lower case (of ASCII letters).

    Raises:
        ValueError: a needle is shorter than three bytes.
    """

    def __init__(self, exact: Iterable[bytes], folded: Iterable[bytes] = ()) -> None:
        self._exact = {needle[-_GRAM:] for needle in exact}
        self._folded = {needle[-_GRAM:].lower() for needle in folded}
        places = [[bytes([byte]) for byte in gram] for gram in sorted(self._exact)]
        places += [[bytes([byte, *bytes([byte]).swapcase()]) for byte in gram] for gram in sorted(self._folded)]
        # Low byte: buckets in which the pair can be the first half; high byte: the second. Indexed as little-endian pairs.
        halves = np.zeros((256, 256), np.uint16)
        for number, place in enumerate(sorted(places, key=len)):
            if len(place) < 3:
                raise ValueError("a needle has three bytes or more")
            first, second, third, fourth = (*place, _ANY)[:_GRAM]
            bucket = number * _BUCKETS // len(places)
            halves[np.ix_(list(second), list(first))] |= np.uint16(1 << bucket)
            halves[np.ix_(list(fourth), list(third))] |= np.uint16(1 << bucket + _BUCKETS)
        self._halves = halves.reshape(-1)

    def suspects(self, texts: Sequence[bytes]) -> list[int]:
        """Indices, ascending, of the texts that contain the last four bytes (or the whole, if shorter) of a needle."""
        joined = b"\n".join(texts) + b"\n"  # a needle of three bytes is looked for with the one behind it
        found: list[int] = []
        ends = accumulate(len(text) + 1 for text in texts)
        index, end = -1, 0
        for position in self._positions(joined):
            if position < end and found and found[-1] == index:
                continue
            gram = joined[position : position + _GRAM]
            if not (self._is_in(gram, self._exact) or self._is_in(gram.lower(), self._folded)):
                continue
            while position >= end:
                index, end = index + 1, next(ends)
            found.append(index)
        return found

    def _positions(self, joined: bytes) -> Iterator[int]:
        for start in range(0, len(joined) - _GRAM + 1, _BLOCK_BYTES):
            pairs = min(_BLOCK_BYTES + 2, len(joined) - 1 - start)
            overlapping = np.ndarray((pairs,), "<u2", joined, start, (1,))
            # Every pair of bytes is a valid index: "clip" clips nothing, it only saves a check of all of them.
            halves = self._halves.take(overlapping, mode="clip")
            both = halves[2:] >> _SECOND
            both &= halves[:-2]
            for position in (both != 0).nonzero()[0].tolist():
                yield start + position

    @staticmethod
    def _is_in(gram: bytes, grams: set[bytes]) -> bool:
        return gram in grams or gram[:3] in grams
