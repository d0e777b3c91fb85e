"""What the newest word on each of many sessions is, for a bounded sample of them.

The sessions with the smallest hashes are kept (bottom-k, see `fleetlore.stats.bottom_k`), and of each the greatest value. So the
sample is a join-semilattice: merging commutes, associates and repeats without effect, and a count of it never counts twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T", bound=tuple[object, ...])

_HASHES = 2**52  # of fleetlore.stats.bottom_k.stable_hash


class LatestBottomK(Generic[T]):
    """Values by session hash; of several values of a session the greatest.

    Attributes:
        k: how many sessions are kept at the most.
        kept: by session hash.
    """

    __slots__ = ("_largest", "k", "kept")

    def __init__(self, k: int, kept: Iterable[tuple[int, T]] = ()) -> None:
        self.k = k
        self.kept: dict[int, T] = dict(kept)
        # Of a full sample, so that the many sessions that come too late cost a comparison and no search; -1 where not known.
        self._largest = -1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LatestBottomK) and self.k == other.k and self.kept == other.kept

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __len__(self) -> int:
        return len(self.kept)

    def add(self, session: int, value: T) -> bool:
        """Merge one session's value in; say whether anything changed."""
        known = self.kept.get(session)
        if known is not None:
            if value <= known:
                return False
        elif len(self.kept) >= self.k:
            if self._largest < 0:
                self._largest = max(self.kept)
            if session > self._largest:
                return False
            del self.kept[self._largest]
            self._largest = -1
        self.kept[session] = value
        return True

    def merge(self, other: LatestBottomK[T]) -> bool:
        """Merge another sample in; say whether anything changed."""
        # A list, because `any` alone would stop at the first change.
        return any([self.add(session, value) for session, value in other.kept.items()])

    @property
    def scale(self) -> float:
        """How many sessions one kept session stands for: 1 while all are kept."""
        if len(self.kept) < self.k:
            return 1.0
        return (self.k - 1) / (max(self.kept) / _HASHES) / self.k

    def sorted(self) -> list[tuple[int, T]]:
        """Equal samples give equal lists."""
        return sorted(self.kept.items())
