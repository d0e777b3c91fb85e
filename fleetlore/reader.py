"""The procedural memory as an agent runs it: in numpy, a few tokens at a time, after a session of which the rest is kept.

The same numbers as `fleetlore.network`, which learns. In a session that goes on, all tokens but the last were read before:
their keys and values are kept, and candidates for the next action are read as so many last tokens of which none sees
another. For so few rows torch's own cost of an operation is larger than the operation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fleetlore.encoder import Vectors
from fleetlore.network import BLOCKS, HEADS, MAX_TOKENS, TEXT_DIMENSIONS, WIDTH

_EPSILON = 1e-5  # of the layer norms
_HALF, _ROOT_HALF = np.float32(0.5), np.float32(math.sqrt(0.5))
_ERF = tuple(np.float32(a) for a in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592))
_ERF_SCALE = np.float32(0.3275911)


@dataclass(frozen=True, slots=True)
class Prefix:
    """The first tokens of a session: keys and values of each block, float32 (4, n, 32). Never written to."""

    keys: tuple[Vectors, ...]
    values: tuple[Vectors, ...]

    def __len__(self) -> int:
        return int(self.keys[0].shape[1])


_NONE = (np.zeros((HEADS, 0, WIDTH // HEADS), dtype=np.float32),) * BLOCKS
NOTHING = Prefix(_NONE, _NONE)


class Reader:
    """One version. Never written to after it is made, so threads and policies can share it.

    weights: of `PolicyNetwork` with the adapter folded in, float32, by the names of its state.
    """

    def __init__(self, weights: Mapping[str, Vectors]) -> None:
        kinds = weights["kinds.weight"][[0, *(1 + place % 2 for place in range(MAX_TOKENS - 1))]]
        self._places = weights["positions.weight"] + kinds + weights["project.bias"]
        self._project = np.ascontiguousarray(weights["project.weight"].T) * np.float32(math.sqrt(TEXT_DIMENSIONS))
        self._blocks = [_Block(weights, f"blocks.{number}.") for number in range(BLOCKS)]
        self._heads = _Affine(weights, "step_head", "signature_head", norm="last_norm")

    def extend(self, prefix: Prefix, vectors: Vectors) -> Prefix:
        """The session with the texts that came after `prefix`: (n, 256), n > 0; with them it has at most 33."""
        return self._read(prefix, vectors, *self._in_order(prefix, vectors), answering=False)[0]

    def candidates(self, prefix: Prefix, vectors: Vectors) -> tuple[list[float], Vectors]:
        """P(fails) and signature (k, 64) of each of k texts (k, 256) as the next action after `prefix`."""
        place = len(prefix)
        _, rows = self._read(prefix, vectors, self._places[place], _alone(len(vectors)), answering=True)
        signatures = rows[:, 1:]
        lengths = np.sqrt(np.einsum("ij,ij->i", signatures, signatures))
        chances: list[float] = _sigmoid(rows[:, 0]).tolist()
        return chances, signatures / np.maximum(lengths, np.float32(1e-12))[:, None]

    def steps(self, vectors: Vectors) -> Vectors:
        """P(the step fails) at each text of a session, (n, 256)."""
        _, rows = self._read(NOTHING, vectors, *self._in_order(NOTHING, vectors), answering=True)
        return _sigmoid(rows[:, 0])

    def _in_order(self, prefix: Prefix, vectors: Vectors) -> tuple[Vectors, Vectors]:
        first, count = len(prefix), len(vectors)
        return self._places[first : first + count], _earlier(count)

    def _read(
        self, prefix: Prefix, vectors: Vectors, places: Vectors, hidden: Vectors, *, answering: bool
    ) -> tuple[Prefix, Vectors]:
        """Read more tokens. hidden: (n, n), minus infinity where the i-th must not look at the j-th.

        answering: what the heads say of each; otherwise nobody reads them to the end.
        """
        x: Vectors = vectors @ self._project
        x += places
        keys, values = [], []
        for block, known_keys, known_values in zip(self._blocks, prefix.keys, prefix.values, strict=True):
            q, k, v = block.project(x)
            keys.append(np.concatenate([known_keys, k], axis=1))
            values.append(np.concatenate([known_values, v], axis=1))
            if answering or len(keys) < BLOCKS:
                block.attend(x, q, keys[-1], values[-1], hidden)
                block.feed(x)
        return Prefix(tuple(keys), tuple(values)), self._heads(_normal(x)) if answering else x


class _Affine:
    """One or several `nn.Linear` of the same rows, the gain and the shift of the norm before them folded in."""

    def __init__(self, weights: Mapping[str, Vectors], *names: str, norm: str = "") -> None:
        weight: Vectors = np.concatenate([weights[f"{name}.weight"] for name in names])
        self.bias: Vectors = np.concatenate([weights[f"{name}.bias"] for name in names])
        if norm:
            self.bias = self.bias + weight @ weights[f"{norm}.bias"]
            weight *= weights[f"{norm}.weight"]
        self.weight: Vectors = np.ascontiguousarray(weight.T)

    def __call__(self, x: Vectors) -> Vectors:
        y: Vectors = x @ self.weight
        y += self.bias
        return y


class _Block:
    def __init__(self, weights: Mapping[str, Vectors], name: str) -> None:
        self._qkv = _Affine(weights, *(name + part for part in "qkv"), norm=f"{name}before_attention")
        scale = np.float32(1 / math.sqrt(WIDTH // HEADS))
        self._qkv.weight[:, :WIDTH] *= scale
        self._qkv.bias[:WIDTH] *= scale
        self._o = _Affine(weights, f"{name}o")
        self._up = _Affine(weights, f"{name}up", norm=f"{name}before_feed")
        self._down = _Affine(weights, f"{name}down")

    def project(self, x: Vectors) -> Vectors:
        """Queries, keys and values of each head: (3, 4, n, 32)."""
        return self._qkv(_normal(x)).reshape(len(x), 3, HEADS, WIDTH // HEADS).transpose(1, 2, 0, 3)

    def attend(self, x: Vectors, q: Vectors, keys: Vectors, values: Vectors, hidden: Vectors) -> None:
        scores: Vectors = q @ keys.transpose(0, 2, 1)
        scores[:, :, -len(x) :] += hidden
        scores -= np.maximum.reduce(scores, axis=2, keepdims=True)
        np.exp(scores, out=scores)
        attended = scores @ values
        attended /= np.add.reduce(scores, axis=2, keepdims=True)
        x += self._o(attended.transpose(1, 0, 2).reshape(len(x), WIDTH))

    def feed(self, x: Vectors) -> None:
        x += self._down(_gelu(self._up(_normal(x))))


def _normal(x: Vectors) -> Vectors:
    y: Vectors = np.subtract(x, np.add.reduce(x, axis=1, keepdims=True) / np.float32(WIDTH))
    y /= np.sqrt(np.einsum("ij,ij->i", y, y) / np.float32(WIDTH) + np.float32(_EPSILON))[:, None]
    return y


def _gelu(x: Vectors) -> Vectors:
    """x · Φ(x), with erf to 1.5e-7 (Abramowitz and Stegun 7.1.26): numpy has none."""
    size = np.abs(x)
    z = size * _ROOT_HALF
    t = z * _ERF_SCALE
    t += 1
    np.reciprocal(t, out=t)
    tail = t * _ERF[0]
    for coefficient in _ERF[1:]:
        tail += coefficient
        tail *= t
    z *= z
    tail *= np.exp(-z)
    tail *= size
    tail *= _HALF
    y: Vectors = np.maximum(x, np.float32(0))
    y -= tail
    return y


def _sigmoid(x: Vectors) -> Vectors:
    chances: Vectors = _HALF * (1 + np.tanh(_HALF * x))  # 1 / (1 + exp(-x)) overflows
    return chances


@lru_cache(maxsize=MAX_TOKENS)
def _earlier(count: int) -> Vectors:
    return _hiding(np.tri(count, dtype=np.float32))


@lru_cache(maxsize=64)
def _alone(count: int) -> Vectors:
    return _hiding(np.eye(count, dtype=np.float32))


def _hiding(seen: Vectors) -> Vectors:
    hidden: Vectors = np.where(seen > 0, np.float32(0), np.float32(-np.inf)).astype(np.float32)
    return hidden
