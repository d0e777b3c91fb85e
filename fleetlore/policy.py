"""What an agent asks before it acts: how likely is each candidate to fail, given this session so far?

The answer comes from the network of the adapter version in use. A version is prepared on the side (checked, folded into
a copy of the base, probed) and then swapped by reference, so that no call ever mixes two versions. Loading in place
would tear: a call on another thread would read half of the old weights and half of the new.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol
from weakref import WeakValueDictionary

import numpy as np

from fleetlore.encoder import StaticEncoder, Vectors, shared_encoder
from fleetlore.errors import AdapterRefused
from fleetlore.manifest import MAX_WEIGHTS_BYTES, AdapterManifest, Probe
from fleetlore.network import (
    LORA_TARGETS,
    MAX_STEPS,
    SIGNATURE,
    TEXT_DIMENSIONS,
    Base,
    PolicyNetwork,
    fold,
    load_base,
    probe_answers,
    read_adapter,
)

PROBE_TOLERANCE = 1e-3
LEAST_LIKENESS = 0.5  # cosine below which a signature is no sign of a failure seen before

# Agents of one process run the same versions: what one of them has folded and probed serves all, as networks are never
# written to. Under everything that the result depends on, and only while somebody holds it.
_folded: WeakValueDictionary[tuple[str, str, int, int, Probe], PolicyNetwork] = WeakValueDictionary()
_FOLDING = threading.Lock()  # one at a time: a fleet that folds on all cores at once stalls everything else
_unadapted = lru_cache(maxsize=4)(probe_answers)
MAX_TEXT = 400
_PUNCTUATION = re.compile(r'[\s{}\[\]",:]+')


class StepLike(Protocol):
    """What the policy reads of a past step; `fleetlore.trajectory.Step` is one."""

    @property
    def tool(self) -> str: ...
    @property
    def arguments(self) -> Any: ...
    @property
    def error_type(self) -> str | None: ...
    @property
    def error_message(self) -> str | None: ...


def goal_text(goal: str) -> str:
    """The goal as the encoder sees it."""
    return goal[:MAX_TEXT]


def action_text(tool: str, arguments: Any) -> str:
    """The call as the encoder sees it: the tool and its arguments as words, JSON's punctuation left out."""
    text = _json(_parsed(arguments) if isinstance(arguments, str) else arguments)
    return f"{tool} {_PUNCTUATION.sub(' ', text[: 2 * MAX_TEXT]).strip()}"[:MAX_TEXT].strip()


def outcome_text(error_type: str | None, error_message: str | None) -> str:
    """The outcome as the encoder sees it: `ok`, or the error's type and first line."""
    if error_type is None and error_message is None:
        return "ok"
    first_line = next(iter((error_message or "").strip().splitlines()), "")
    return " ".join(part for part in ("error", error_type, first_line) if part)[:MAX_TEXT]


def session_texts(goal: str, steps: Sequence[StepLike]) -> list[str]:
    """Texts of the tokens of a session in order: goal, action 1, outcome 1, …"""
    texts = [goal_text(goal)]
    for step in steps:
        texts.append(action_text(step.tool, step.arguments))
        texts.append(outcome_text(step.error_type, step.error_message))
    return texts


@dataclass(frozen=True, slots=True)
class LoadedAdapter:
    """A version that passed every check, ready to be swapped in.

    signatures: float32 (n, 64), of the manifest's signatures; centres: float32 (m, 256), of the goals it has learned from.
    """

    manifest: AdapterManifest | None
    network: PolicyNetwork
    signatures: Vectors = field(default_factory=lambda: np.zeros((0, SIGNATURE), dtype=np.float32))
    centres: Vectors = field(default_factory=lambda: np.zeros((0, TEXT_DIMENSIONS), dtype=np.float32))


@dataclass(frozen=True, slots=True)
class Risk:
    """A call that is likely to fail, and what it looks like.

    Attributes:
        probability: that it fails.
        pattern: id of the failure pattern (`fleetlore.lore.Pattern`) that it lies nearest to; None where none is near.
        similarity: cosine to that pattern's signature.
        hint: what the fleet says about the pattern.
    """

    probability: float
    pattern: str | None = None
    similarity: float = 0.0
    hint: str | None = None


def no_hint(pattern: str) -> None:
    """Knows of no pattern."""


class Policy:
    """Scores candidate actions under the version in use; starts on the bare base.

    Raises ModelUnavailable when the `[policy]` extra or the packaged base is missing.
    """

    def __init__(self, base: Base | None = None, encoder: StaticEncoder | None = None) -> None:
        self.base = base or load_base()
        self.encoder = encoder or shared_encoder()
        self._current = LoadedAdapter(None, self.base.network)

    @property
    def manifest(self) -> AdapterManifest | None:
        return self._current.manifest

    @property
    def version(self) -> str | None:
        """sha256 of the weights in use; None on the bare base."""
        manifest = self._current.manifest
        return manifest.version if manifest else None

    def score(self, steps: Sequence[StepLike], goal: str, candidates: Sequence[tuple[str, Any]]) -> list[float | None]:
        """P(fails) of each candidate (tool, arguments) as the next step after `steps`.

        None where the policy abstains: the version in use has not learned that tool (on the bare base: any tool), or no goal
        of this kind. Never blocks on a network; ~2 ms for 8 candidates.
        """
        return [None if found is None else found[0] for found in self._read(self._current, steps, goal, candidates)]

    def risk(
        self,
        steps: Sequence[StepLike],
        goal: str,
        tool: str,
        arguments: Any,
        hint: Callable[[str], str | None] = no_hint,
    ) -> Risk | None:
        """A warning if this call is more likely to fail than not; None where it is not, or where the policy abstains.

        hint: what to say about a failure pattern, by its id.
        """
        current = self._current
        (found,) = self._read(current, steps, goal, [(tool, arguments)])
        if found is None or found[0] <= 0.5:
            return None
        assert current.manifest is not None
        mine = [place for place, known in enumerate(current.manifest.signatures) if known.tool == tool]
        if not mine:
            return Risk(found[0])
        likeness = current.signatures[mine] @ found[1]
        nearest = int(likeness.argmax())
        if likeness[nearest] < LEAST_LIKENESS:
            return Risk(found[0])
        pattern = current.manifest.signatures[mine[nearest]].pattern
        return Risk(found[0], pattern, float(likeness[nearest]), hint(pattern))

    def _read(
        self, current: LoadedAdapter, steps: Sequence[StepLike], goal: str, candidates: Sequence[tuple[str, Any]]
    ) -> list[tuple[float, Vectors] | None]:
        """P(fails) and signature of each candidate; None where the policy abstains."""
        known = current.manifest.tools if current.manifest else ()
        asked = [index for index, (tool, _) in enumerate(candidates) if tool in known]
        found: list[tuple[float, Vectors] | None] = [None] * len(candidates)
        if not asked:
            return found
        texts = session_texts(goal, steps[-(MAX_STEPS - 1) :])
        vectors = self.encoder.encode(texts + [action_text(*candidates[index]) for index in asked])
        if not self._familiar(current, vectors[0]):
            return found
        risks, signatures = current.network.risks(vectors[: len(texts)], vectors[len(texts) :])
        for place, index in enumerate(asked):
            found[index] = risks[place], signatures[place]
        return found

    def _familiar(self, current: LoadedAdapter, goal: Vectors) -> bool:
        if current.manifest is None or not len(current.centres):
            return True
        return float((current.centres @ goal).max()) >= current.manifest.familiar.least

    def prepare(self, weights: bytes, manifest: AdapterManifest) -> LoadedAdapter:
        """Check everything and fold; the version in use is not touched. ~20 ms, safe on another thread.

        The network is shared with the other policies of this process that run this version.

        Raises AdapterRefused with the reason `tampered`, `oversized`, `foreign`, `structure`, `not_finite` or `probe`.
        """
        if len(weights) > MAX_WEIGHTS_BYTES:
            raise AdapterRefused("oversized", f"{len(weights)} bytes")
        if hashlib.sha256(weights).hexdigest() != manifest.version:
            raise AdapterRefused("tampered", "the weights are not the ones the manifest names")
        if manifest.base_sha256 != self.base.sha256:
            raise AdapterRefused("foreign", "made for another base")
        if manifest.encoder_sha256 != self.encoder.sha256:
            raise AdapterRefused("foreign", f"made for another encoder ({manifest.encoder[:100]})")
        if set(manifest.targets) != set(LORA_TARGETS) or not 1 <= manifest.rank <= 64:
            raise AdapterRefused("structure", f"rank {manifest.rank}, targets {manifest.targets}")
        try:
            signatures = unpacked([known.vector for known in manifest.signatures], SIGNATURE)
            centres = unpacked(manifest.familiar.centres, TEXT_DIMENSIONS)
        except ValueError as error:
            raise AdapterRefused("structure", f"signatures or goals: {error}") from error
        return LoadedAdapter(manifest, self._network(weights, manifest), signatures, centres)

    def apply(self, loaded: LoadedAdapter) -> None:
        """Put a prepared version into use: one assignment."""
        self._current = loaded

    def reset(self) -> None:
        """Back to the bare base, on which the policy abstains: one assignment."""
        self._current = LoadedAdapter(None, self.base.network)

    def swap(self, weights: bytes, manifest: AdapterManifest) -> None:
        """Prepare and apply. Raises AdapterRefused; the version in use then stays."""
        self.apply(self.prepare(weights, manifest))

    def _network(self, weights: bytes, manifest: AdapterManifest) -> PolicyNetwork:
        key = (self.base.sha256, manifest.version, manifest.rank, manifest.alpha, manifest.probe)
        with _FOLDING:
            network = _folded.get(key)
            if network is None:
                network = fold(self.base.network, read_adapter(weights, manifest.rank), manifest.scale)
                self._check_probe(network, manifest.probe)
                _folded[key] = network
        return network

    def _check_probe(self, network: PolicyNetwork, probe: Probe) -> None:
        unadapted, expected = np.array(_unadapted(self.base.network, probe.seed)), np.array(probe.expected)
        answers = np.array(probe_answers(network, probe.seed))
        if answers.shape != expected.shape or not bool((np.abs(answers - expected) <= PROBE_TOLERANCE).all()):
            raise AdapterRefused("probe", "the folded network does not answer as its manifest says")
        # An adapter without effect is the sign of a lost key prefix or of a path that skips it.
        if bool((answers == unadapted).all()):
            raise AdapterRefused("probe", "the adapter changes nothing")


def packed(vector: Vectors) -> str:
    """A vector as a manifest holds it."""
    return base64.b64encode(vector.astype("<f2").tobytes()).decode()


def unpacked(texts: Sequence[str], dimensions: int) -> Vectors:
    """Float32 (n, dimensions) of what `packed` gave. Raises ValueError."""
    rows = [np.frombuffer(base64.b64decode(text, validate=True), dtype="<f2") for text in texts]
    if any(len(row) != dimensions or not np.isfinite(row).all() for row in rows):
        raise ValueError(f"a vector is not {dimensions} finite numbers")
    return np.array(rows, dtype=np.float32).reshape(len(rows), dimensions)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text) if text[:1] in ("{", "[") else text
    except (ValueError, RecursionError):
        return text


def _json(value: Any) -> str:
    # The standard library's, because orjson raises on integers of more than 64 bits: an agent's arguments may hold any.
    try:
        return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return str(value)
