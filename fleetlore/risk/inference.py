"""Run the risk network in numpy, a few tokens at a time, with a KV cache of the session so far.

The numbers are those of `fleetlore.risk.network`, which learns. In a running session all tokens but the last were read
before: their keys and values are kept. Candidates for the next action are read as so many last tokens, none of which
sees another. For so few rows torch's own cost of an operation is larger than the operation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fleetlore.retrieval.encoder import Vectors
from fleetlore.risk.network import BLOCKS, HEADS, MAX_TOKENS, TEXT_DIMENSIONS, WIDTH

LEAST_COLUMNS = 8  # of a piece of a product; with that many rows several cores are worth their wait
_EPSILON = 1e-5  # of the layer norms
_HALF, _ROOT_HALF = np.float32(0.5), np.float32(math.sqrt(0.5))
_ERF = tuple(np.float32(a) for a in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592))
_ERF_SCALE = np.float32(0.3275911)


@dataclass(frozen=True, slots=True)
class KVCache:
    """The first tokens of a session: keys and values of each block, float32 (4, n, 32). Never written to."""

    keys: tuple[Vectors, ...]
    values: tuple[Vectors, ...]

    def __len__(self) -> int:
        return int(self.keys[0].shape[1])


_NONE = (np.zeros((HEADS, 0, WIDTH // HEADS), dtype=np.float32),) * BLOCKS
NOTHING = KVCache(_NONE, _NONE)


class InferenceEngine:
    """One version. Never written to after it is made, so threads and risk models can share it.

    weights: of `RiskNetwork` with the adapter merged in, float32, by the names of its state.
    """

    def __init__(self, weights: Mapping[str, Vectors]) -> None:
        kinds = weights["kinds.weight"][[0, *(1 + place % 2 for place in range(MAX_TOKENS - 1))]]
        self._places = _centred(weights["positions.weight"] + kinds + weights["project.bias"])
        self._project = _centred(weights["project.weight"].T) * np.float32(math.sqrt(TEXT_DIMENSIONS))
        self._blocks = [_Block(weights, f"blocks.{number}.") for number in range(BLOCKS)]
        self._heads = _Affine(weights, "step_head", "session_head", "signature_head", norm="last_norm")

    def read(
        self, prefix: KVCache, vectors: Vectors, candidates: int
    ) -> tuple[KVCache, list[float], list[float], Vectors]:
        """Read on in one pass: vectors (n + k, 256) of the n texts after `prefix` and of k next calls.

        Returns the cache with those n texts (at most 33 in all), and P(fails), P(ineffective) and signature (k, 64) of
        each candidate.
        """
        fresh = len(vectors) - candidates
        upto = len(prefix) + fresh
        places = self._places[len(prefix) : upto]
        if candidates:
            places = np.concatenate([places, np.broadcast_to(self._places[upto], (candidates, WIDTH))])
        after, rows = self._read(prefix, vectors, places, _hidden(fresh, candidates), candidates)
        signatures = rows[:, 2:]
        lengths = np.sqrt(np.einsum("ij,ij->i", signatures, signatures))
        chances = _sigmoid(rows[:, :2])
        fails, ineffective = chances[:, 0].tolist(), chances[:, 1].tolist()
        return after, fails, ineffective, signatures / np.maximum(lengths, np.float32(1e-12))[:, None]

    def steps(self, vectors: Vectors) -> Vectors:
        """P(the step fails) at each text of a session, (n, 256)."""
        count = len(vectors)
        _, rows = self._read(NOTHING, vectors, self._places[:count], _hidden(count, 0), count)
        return _sigmoid(rows[:, 0])

    def _read(
        self, prefix: KVCache, vectors: Vectors, places: Vectors, hidden: Vectors, answering: int
    ) -> tuple[KVCache, Vectors]:
        """Read more tokens: the prefix with all but those that answer, and what the heads say of those, the last ones.

        hidden: (n, n), minus infinity where the i-th must not look at the j-th.
        """
        x = _product(vectors, self._project)
        x += places
        first = len(vectors) - answering  # nobody reads the others to the end
        kept_keys, kept_values = [], []
        for number, (block, known_keys, known_values) in enumerate(
            zip(self._blocks, prefix.keys, prefix.values, strict=True)
        ):
            q, k, v = block.project(x)
            keys, values = np.concatenate([known_keys, k], axis=1), np.concatenate([known_values, v], axis=1)
            kept_keys.append(keys[:, : len(prefix) + first])
            kept_values.append(values[:, : len(prefix) + first])
            if number == BLOCKS - 1:
                x, q, hidden = x[first:], q[:, first:], hidden[first:]
            if len(x):
                block.attend(x, q, keys, values, hidden)
                block.feed(x)
        return KVCache(tuple(kept_keys), tuple(kept_values)), self._heads(_normal(x))


class _Affine:
    """One or several `nn.Linear` of the same rows, the gain and the shift of the norm before them folded in.

    added: what comes out is added to what norms read.
    """

    def __init__(self, weights: Mapping[str, Vectors], *names: str, norm: str = "", added: bool = False) -> None:
        weight: Vectors = np.concatenate([weights[f"{name}.weight"] for name in names])
        self.bias: Vectors = np.concatenate([weights[f"{name}.bias"] for name in names])
        if norm:
            self.bias = self.bias + weight @ weights[f"{norm}.bias"]
            weight *= weights[f"{norm}.weight"] * np.float32(math.sqrt(WIDTH))
        self.weight: Vectors = np.ascontiguousarray(weight.T)
        if added:
            self.weight, self.bias = _centred(self.weight), _centred(self.bias)

    def __call__(self, x: Vectors) -> Vectors:
        y = _product(x, self.weight)
        y += self.bias
        return y


class _Block:
    def __init__(self, weights: Mapping[str, Vectors], name: str) -> None:
        self._qkv = _Affine(weights, *(name + part for part in "qkv"), norm=f"{name}before_attention")
        scale = np.float32(1 / math.sqrt(WIDTH // HEADS))
        self._qkv.weight[:, :WIDTH] *= scale
        self._qkv.bias[:WIDTH] *= scale
        self._o = _Affine(weights, f"{name}o", added=True)
        self._up = _Affine(weights, f"{name}up", norm=f"{name}before_feed")
        self._down = _Affine(weights, f"{name}down", added=True)

    def project(self, x: Vectors) -> Vectors:
        """Queries, keys and values of each head: (3, 4, n, 32)."""
        return self._qkv(_normal(x)).reshape(len(x), 3, HEADS, WIDTH // HEADS).transpose(1, 2, 0, 3)

    def attend(self, x: Vectors, q: Vectors, keys: Vectors, values: Vectors, hidden: Vectors) -> None:
        scores: Vectors = q @ keys.transpose(0, 2, 1)
        scores[:, :, -hidden.shape[1] :] += hidden
        scores -= np.maximum.reduce(scores, axis=2, keepdims=True)
        np.exp(scores, out=scores)
        attended = scores @ values
        attended /= np.add.reduce(scores, axis=2, keepdims=True)
        x += self._o(attended.transpose(1, 0, 2).reshape(len(x), WIDTH))

    def feed(self, x: Vectors) -> None:
        x += self._down(_gelu(self._up(_normal(x))))


def _product(x: Vectors, weight: Vectors) -> Vectors:
    """x @ weight, in as many pieces as keep it on the thread that asks."""
    pieces = _pieces(len(x), *weight.shape)
    if pieces == 1:
        y: Vectors = x @ weight
        return y
    y = np.empty((len(x), weight.shape[1]), dtype=np.float32)
    columns, out = (rows.reshape(len(rows), pieces, -1).transpose(1, 0, 2) for rows in (weight, y))
    np.matmul(x, columns, out=out)
    return y


@lru_cache(maxsize=1024)
def _pieces(m: int, k: int, n: int) -> int:
    """Into how many pieces of its columns a product (m, k) @ (k, n) is cut.

    OpenBLAS, which numpy's wheels bring, gives a product of two matrices to all cores from 2^19 multiplications on, and
    one with a single row from 9,216. Beside a busy core each then waits for a thread that does not run: 0.04 ms become
    15.
    """
    largest = (9_216 if m == 1 else 2**19) - 1
    divisors = (pieces for pieces in range(1, n + 1) if n % pieces == 0)
    return next(pieces for pieces in divisors if m * k * n // pieces <= largest or n // pieces <= LEAST_COLUMNS)


def _centred(rows: Vectors) -> Vectors:
    """Without the mean of each row, which every norm would take off: so no norm has to."""
    centred: Vectors = np.ascontiguousarray(rows - rows.mean(axis=-1, keepdims=True, dtype=np.float32))
    return centred


def _normal(x: Vectors) -> Vectors:
    """Centred rows at length 1; the square root of the width, which makes their deviation 1, is in the weights."""
    squares = np.einsum("ij,ij->i", x, x)
    squares += np.float32(WIDTH * _EPSILON)
    y: Vectors = x / np.sqrt(squares)[:, None]
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


@lru_cache(maxsize=1024)
def _hidden(fresh: int, candidates: int) -> Vectors:
    """Each fresh token sees those before it; each candidate all of them and itself."""
    count = fresh + candidates
    seen = np.eye(count, dtype=bool)
    seen[:, :fresh] |= np.tri(count, fresh, dtype=bool)
    hidden: Vectors = np.where(seen, np.float32(0), np.float32(-np.inf)).astype(np.float32)
    return hidden
