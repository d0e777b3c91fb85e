"""Define the bytes of a version of the call model: a compressed MessagePack document of int8 weights, kinds and names.

Everything is bounded, because an authorised sender may still be hostile.
"""

import zlib
from typing import Self

import msgspec
import numpy as np
import numpy.typing as npt

from fleetlore.calls.places import Ended
from fleetlore.wire.adapter_manifest import CallsManifest, State
from fleetlore.wire.decode import msgpack_reader
from fleetlore.wire.stats import cached_hash

__all__ = [
    "CALL_BITS", "KIND_BITS", "MAX_BYTES", "MAX_KINDS", "Document", "Kind", "LookUp", "Named", "OldValue",
    "Place", "Threshold", "old_value_key", "quantised",
]  # fmt: skip

Weights = npt.NDArray[np.float32]

_SCHEMA = 2
_FEATURES = 4
CALL_BITS = 17
KIND_BITS = 16
MAX_KINDS = 64
MAX_BYTES = CallsManifest.most_bytes
_MAX_DOCUMENT = 4 * 1024 * 1024
_BLOCK = 256


class _Table(msgspec.Struct, frozen=True, array_like=True):
    weights: bytes
    scales: bytes

    def restored(self, bits: int) -> Weights:
        """Return float32 (2 ** bits,). Raises ValueError: another size, or not finite."""
        blocks, scales = np.frombuffer(self.weights, np.int8), np.frombuffer(self.scales, "<f2")
        if len(blocks) != 2**bits or len(scales) != 2**bits // _BLOCK or not np.isfinite(scales).all():
            raise ValueError(f"{len(blocks)} weights in {len(scales)} blocks")
        weights = (blocks.reshape(-1, _BLOCK).astype(np.float32) * scales.astype(np.float32)[:, None]).ravel()
        weights.setflags(write=False)  # shared by all agents of the process
        return weights


class Kind(msgspec.Struct, frozen=True, array_like=True):
    """A kind of failure: the error without names. `agents`: number that met it."""

    tool: str
    text: str
    agents: int = 1


class Named(msgspec.Struct, frozen=True, array_like=True):
    """How calls of a tool, or of a program that it runs, ended that held these names. `failed`, `held`: sessions, of no
    agent more than of the median agent. `lone`: the most of one agent that did not fail so.
    """

    tool: str
    kind: str
    names: tuple[str, ...]
    failed: int
    held: int
    agents: int
    program: str = ""
    lone: int = 0


class Place(msgspec.Struct, frozen=True, array_like=True):
    """A place. At least two agents met everything in it. `names`: as spelled in most calls. `words`: of the goals
    there. `members`: columns of a table, fields of a resource. `look_up`, `look_up_by`: call and tool that found names,
    or "".
    """

    sessions: int
    names: dict[str, Ended]
    words: tuple[str, ...] = ()
    members: dict[str, tuple[str, ...]] = {}
    look_up: str = ""
    look_up_by: str = ""


class Threshold(msgspec.Struct, frozen=True, array_like=True):
    """When to warn of calls of a tool, in one state of the session. `least`: smallest probability. `failed`, `calls`:
    those at or above it, before they were learned.
    """

    tool: str
    state: State
    least: float
    failed: int
    calls: int


class LookUp(msgspec.Struct, frozen=True, array_like=True):
    """A call that found working names. `tool`, `kind`: of the failure. `by`, `text`: the call's tool, and its text with
    placeholders. `used`, `met`: sessions that made it next, of those that got past such a failure.
    """

    tool: str
    kind: str
    by: str
    text: str
    used: int
    met: int
    agents: int


class OldValue(msgspec.Struct, frozen=True, array_like=True):
    """An argument, or its name, that agents replaced after it had failed. `key`: `old_value_key`, so that no value is
    in a version. `replaced`: agents that did. `works`: agents whose calls worked with it after a quorum had replaced
    it.
    """

    key: int
    replaced: int
    works: int


def old_value_key(tool: str, part: str) -> int:
    return cached_hash(f"{tool}\x1f{part}")


class Document(msgspec.Struct, frozen=True):
    """One version of the call model. `tools`: calls learned of each tool. `look_ups`: the most frequent one of each
    kind of failure. `until`: broker time of the newest learned session, in Unix seconds.
    """

    calls: _Table
    kinds: _Table
    bias: float
    tools: dict[str, int]
    kind_texts: tuple[Kind, ...] = ()
    kind_counts: tuple[int, ...] = ()
    named: tuple[Named, ...] = ()
    places: dict[str, Place] = {}
    thresholds: tuple[Threshold, ...] = ()
    look_ups: tuple[LookUp, ...] = ()
    until: float = 0.0
    old_values: tuple[OldValue, ...] = ()
    features: int = _FEATURES
    schema: int = _SCHEMA

    def to_bytes(self) -> bytes:
        """Return compressed bytes, equal for equal documents."""
        return zlib.compress(msgspec.msgpack.encode(self, order="deterministic"), 9)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Raises ValueError: it is malformed, or of another release."""
        if len(data) > MAX_BYTES:
            raise ValueError(f"{len(data)} bytes, at most {MAX_BYTES} are read")
        inflate = zlib.decompressobj()
        try:
            document = msgpack_reader(cls)(inflate.decompress(data, _MAX_DOCUMENT))
        except zlib.error as error:
            raise ValueError(f"not compressed as it should be: {error}") from error
        if (document.schema, document.features) != (_SCHEMA, _FEATURES):
            raise ValueError(f"schema {document.schema} with features {document.features} is of another release")
        if len(document.kind_texts) > MAX_KINDS or len(document.kind_counts) != len(document.kind_texts):
            raise ValueError(f"{len(document.kind_texts)} kinds with {len(document.kind_counts)} counts")
        return document


def quantised(weights: Weights, share: float = 1.0) -> _Table:
    """Return float32 (n,) as int8, n a multiple of 256. Only the largest `share` is kept."""
    least = np.quantile(np.abs(weights), 1.0 - share) if share < 1.0 else 0.0
    blocks = np.where(np.abs(weights) >= least, weights, np.float32(0)).reshape(-1, _BLOCK)
    scales = (np.abs(blocks).max(axis=1) / 127).astype("<f2")
    divisors = np.where(scales > 0, scales, np.float16(1)).astype(np.float32)
    rounded = np.clip(np.rint(blocks / divisors[:, None]), -127, 127).astype(np.int8)
    return _Table(rounded.tobytes(), scales.tobytes())
