"""Record in a manifest which sessions a version was learned from, by hash, so that an erasure finds it."""

from __future__ import annotations

import base64
from collections.abc import Iterable

import numpy as np

from fleetlore.stats.hashing import stable_hash


def pack(sessions: Iterable[str]) -> str:
    """Hashes of the sessions' ids, sorted: base64 of little-endian 64-bit integers."""
    return base64.b64encode(np.array(sorted(map(stable_hash, sessions)), "<u8").tobytes()).decode()


def unpack(packed: str) -> frozenset[int]:
    """The hashes that `pack` wrote."""
    return frozenset(np.frombuffer(base64.b64decode(packed), "<u8").tolist())
