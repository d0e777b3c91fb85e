"""Estimate how likely each candidate action is to fail, given the session so far.

The answer comes from the network of the adapter version in use. A version is prepared on the side (checked, merged into
a copy of the base, probed) and then swapped by reference, so that no call ever mixes two versions. Loading in place
would tear: a call on another thread would read half of the old weights and half of the new.
"""

from __future__ import annotations

import base64
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from fleetlore.adapters.blob_store import sha256_of
from fleetlore.errors import AdapterRefused
from fleetlore.retrieval.encoder import StaticEncoder, Vectors, shared_encoder
from fleetlore.risk.inference import NOTHING, InferenceEngine, KVCache
from fleetlore.risk.network import (
    LORA_TARGETS,
    MAX_STEPS,
    SIGNATURE,
    TEXT_DIMENSIONS,
    Base,
    RiskNetwork,
    load_base,
    merge_lora,
    probe_inputs,
    read_adapter,
)
from fleetlore.risk.outlook import Outlook, blended
from fleetlore.risk.session_texts import StepLike, action_text, session_texts
from fleetlore.wire.adapter_manifest import Blend, Probe, ProceduralManifest, State

PROBE_TOLERANCE = 1e-3
NO_CHANGE = 1e-6
LEAST_LIKENESS = 0.5  # cosine below which a signature is no sign of a failure seen before

KEPT_SESSIONS = 64

# Agents of one process run the same versions: what one of them has merged and probed serves all, as an engine is never
# written to. Under everything that the result depends on, and only while somebody holds it.
_engines: WeakValueDictionary[tuple[str, str, int, int, Probe], InferenceEngine] = WeakValueDictionary()
_MERGING = threading.Lock()  # one at a time: a fleet that merges on all cores at once stalls everything else


class PrefixCache:
    """What one version has read of the sessions under way, so that the next call of each reads only what is new.

    They go with the version: numbers of two versions never meet. Safe on several threads.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, ...], KVCache] = OrderedDict()
        self._lock = threading.Lock()

    def longest(self, texts: tuple[str, ...]) -> KVCache:
        """As much of the beginning of a session, given by its texts, as was read before."""
        with self._lock:
            for length in range(len(texts), 0, -2):  # a step is two texts
                known = self._kept.get(texts[:length])
                if known is not None:
                    return known
        return NOTHING

    def keep(self, texts: tuple[str, ...], prefix: KVCache) -> None:
        """Remember it, and forget the one that was kept the longest ago."""
        with self._lock:
            self._kept[texts] = prefix
            if len(self._kept) > KEPT_SESSIONS:
                self._kept.popitem(last=False)


@dataclass(frozen=True, slots=True)
class LoadedAdapter:
    """A version that passed every check, ready to be swapped in.

    signatures: float32 (n, 64), of the manifest's signatures.
    prototypes: float32 (m, 256), of the goals it has learned from.
    blends: by tool and state.
    """

    manifest: ProceduralManifest
    engine: InferenceEngine
    signatures: Vectors
    prototypes: Vectors
    sessions: PrefixCache
    blends: Mapping[tuple[str, State], Blend]


@dataclass(frozen=True, slots=True)
class Risk:
    """A call that is likely to fail, and what it looks like.

    Attributes:
        probability: that it fails.
        pattern: id of the nearest failure pattern (`fleetlore.wire.lore.Pattern`); None where none is near.
        similarity: cosine to that pattern's signature.
        hint: what the fleet says about the pattern.
    """

    probability: float
    pattern: str | None = None
    similarity: float = 0.0
    hint: str | None = None


def no_hint(pattern: str) -> None:
    """Knows of no pattern."""


class RiskModel:
    """Scores candidate actions under the version in use; starts on the bare base.

    Raises ModelUnavailable when the `[adapters]` extra or the packaged base is missing.
    """

    kind = ProceduralManifest

    def __init__(self, base: Base | None = None, encoder: StaticEncoder | None = None) -> None:
        self.base = base or load_base()
        self.encoder = encoder or shared_encoder()
        self._current: LoadedAdapter | None = None

    @property
    def manifest(self) -> ProceduralManifest | None:
        current = self._current
        return current.manifest if current else None

    @property
    def version(self) -> str | None:
        """sha256 of the weights in use; None on the bare base."""
        manifest = self.manifest
        return manifest.version if manifest else None

    def failure_probabilities(
        self, steps: Sequence[StepLike], goal: str, candidates: Sequence[tuple[str, Any]]
    ) -> list[float | None]:
        """P(fails) of each candidate (tool, arguments) as the next step after `steps`.

        None where the risk model abstains: the version in use has not learned that tool (on the bare base: any tool),
        or no goal of this kind. Never blocks on I/O; ~1 ms for 8 candidates.
        """
        return [None if found is None else found.fails for found in self.outlook(steps, goal, candidates)]

    def outlook(
        self,
        steps: Sequence[StepLike],
        goal: str,
        candidates: Sequence[tuple[str, Any]],
        line: Sequence[float | None] | None = None,
    ) -> list[Outlook | None]:
        """As `failure_probabilities`, with P(ineffective). Choose best by ln(1 - fails) + ln(1 - ineffective).

        Args:
            line: P(fails) of each candidate by the call model, None where it does not know the tool. Where it does,
                the version in use changes that only where it was shown to add to it.
        """
        current = self._current
        found = self._read(current, steps, goal, candidates)
        asked = zip(candidates, found, line or [None] * len(candidates), strict=True)
        state = state_after(steps)
        return [
            _beside(current, (tool, state), None if seen is None else seen[0], chance)
            for (tool, _), seen, chance in asked
        ]

    def adds_to(self, tool: str, state: State) -> bool:
        """Whether the version in use was shown to add to the call model at such calls."""
        current = self._current
        return current is not None and (tool, state) in current.blends

    def risk(
        self,
        steps: Sequence[StepLike],
        goal: str,
        tool: str,
        arguments: Any,
        hint: Callable[[str], str | None] = no_hint,
        line: float | None = None,
    ) -> Risk | None:
        """Warn if this call is more likely to fail than not; None where it is not, or where the risk model abstains.

        hint: what to say about a failure pattern, by its id.
        line: as in `outlook`.
        """
        current = self._current
        (found,) = self._read(current, steps, goal, [(tool, arguments)])
        seen = _beside(current, (tool, state_after(steps)), None if found is None else found[0], line)
        if current is None or found is None or seen is None or seen.fails <= 0.5:
            return None
        fails = seen.fails
        mine = [place for place, known in enumerate(current.manifest.signatures) if known.tool == tool]
        if not mine:
            return Risk(fails)
        likeness = current.signatures[mine] @ found[1]
        nearest = int(likeness.argmax())
        if likeness[nearest] < LEAST_LIKENESS:
            return Risk(fails)
        pattern = current.manifest.signatures[mine[nearest]].pattern
        return Risk(fails, pattern, float(likeness[nearest]), hint(pattern))

    def _read(
        self, current: LoadedAdapter | None, steps: Sequence[StepLike], goal: str, candidates: Sequence[tuple[str, Any]]
    ) -> list[tuple[Outlook, Vectors] | None]:
        """Outlook and signature of each candidate; None where the risk model abstains."""
        found: list[tuple[Outlook, Vectors] | None] = [None] * len(candidates)
        if current is None:
            return found
        asked = [index for index, (tool, _) in enumerate(candidates) if tool in current.manifest.tools]
        if not asked:
            return found
        texts = tuple(session_texts(goal, steps[-(MAX_STEPS - 1) :]))
        prefix = current.sessions.longest(texts)
        fresh = texts[len(prefix) :]
        vectors = self.encoder.encode([texts[0], *fresh, *(action_text(*candidates[index]) for index in asked)])
        if len(current.prototypes) and float((current.prototypes @ vectors[0]).max()) < current.manifest.familiar.least:
            return found
        prefix, fails, ineffective, signatures = current.engine.read(prefix, vectors[1:], len(asked))
        if fresh:
            current.sessions.keep(texts, prefix)
        for place, index in enumerate(asked):
            known = candidates[index][0] in current.manifest.vain_tools
            found[index] = Outlook(fails[place], ineffective[place] if known else None), signatures[place]
        return found

    def prepare(self, weights: bytes, manifest: ProceduralManifest) -> LoadedAdapter:
        """Check everything and merge; the version in use is not touched. ~20 ms, safe on another thread.

        What is merged is shared with the other risk models of this process that run this version.

        Raises AdapterRefused with the reason `tampered`, `oversized`, `foreign`, `structure`, `not_finite` or `probe`.
        """
        if len(weights) > manifest.most_bytes:
            raise AdapterRefused("oversized", f"{len(weights)} bytes")
        if sha256_of(weights) != manifest.version:
            raise AdapterRefused("tampered", "the weights are not the ones the manifest names")
        if manifest.base_sha256 != self.base.sha256:
            raise AdapterRefused("foreign", "made for another base")
        if manifest.encoder_sha256 != self.encoder.sha256:
            raise AdapterRefused("foreign", f"made for another encoder ({manifest.encoder[:100]})")
        if set(manifest.targets) != set(LORA_TARGETS) or not 1 <= manifest.rank <= 64:
            raise AdapterRefused("structure", f"rank {manifest.rank}, targets {manifest.targets}")
        try:
            signatures = unpacked(tuple(known.vector for known in manifest.signatures), SIGNATURE)
            prototypes = unpacked(manifest.familiar.centres, TEXT_DIMENSIONS)
        except ValueError as error:
            raise AdapterRefused("structure", f"signatures or goals: {error}") from error
        blends = {each.where: each for each in manifest.blends}
        engine = self._merged(weights, manifest)
        return LoadedAdapter(manifest, engine, signatures, prototypes, PrefixCache(), blends)

    def apply(self, loaded: LoadedAdapter) -> None:
        """Put a prepared version into use: one assignment."""
        self._current = loaded

    def reset(self) -> None:
        """Back to the bare base, on which the risk model abstains: one assignment."""
        self._current = None

    def swap(self, weights: bytes, manifest: ProceduralManifest) -> None:
        """Prepare and apply. Raises AdapterRefused; the version in use then stays."""
        self.apply(self.prepare(weights, manifest))

    def is_loaded(self, manifest: ProceduralManifest) -> bool:
        """Whether a risk model of this process runs this version: to prepare it then takes 0.1 ms and no thread."""
        return self._key(manifest) in _engines

    def _key(self, manifest: ProceduralManifest) -> tuple[str, str, int, int, Probe]:
        return self.base.sha256, manifest.version, manifest.rank, manifest.alpha, manifest.probe

    def _merged(self, weights: bytes, manifest: ProceduralManifest) -> InferenceEngine:
        key = self._key(manifest)
        # Before the lock: an event loop must not wait for another version to be merged.
        engine = _engines.get(key)
        if engine is not None:
            return engine
        with _MERGING:
            engine = _engines.get(key)
            if engine is None:
                merged = merge_lora(self.base.network, read_adapter(weights, manifest.rank), manifest.scale)
                engine = _engine_of(merged)
                self._check_probe(engine, manifest.probe)
                _engines[key] = engine
        return engine

    def _check_probe(self, engine: InferenceEngine, probe: Probe) -> None:
        answers, expected = _answers(engine, probe.seed), np.array(probe.expected)
        if answers.shape != expected.shape or not bool((np.abs(answers - expected) <= PROBE_TOLERANCE).all()):
            raise AdapterRefused("probe", "the merged network does not answer as its manifest says")
        # An adapter without effect is the sign of a lost key prefix or of a path that skips it.
        if bool((np.abs(answers - _unadapted(self.base, probe.seed)) <= NO_CHANGE).all()):
            raise AdapterRefused("probe", "the adapter changes nothing")


def state_after(steps: Sequence[StepLike]) -> State:
    """What came right before the next call."""
    if not steps:
        return "first"
    return "after_success" if steps[-1].error_type is None and steps[-1].error_message is None else "after_failure"


def _beside(
    current: LoadedAdapter | None, where: tuple[str, State], network: Outlook | None, line: float | None
) -> Outlook | None:
    """What agents hear of a call: what both say where the network adds to the call model, else that one's word."""
    if line is None:
        return network
    if current is None or network is None or where not in current.blends:
        return Outlook(line, None if network is None else network.ineffective)
    return network._replace(fails=blended(current.blends[where], line, network.fails))


def _engine_of(network: RiskNetwork) -> InferenceEngine:
    return InferenceEngine({name: tensor.numpy() for name, tensor in network.state_dict().items()})


def _answers(engine: InferenceEngine, seed: int) -> Vectors:
    """What an agent's own reading gives for the probe: the same code that scores its actions."""
    return np.concatenate([engine.steps(session) for session in probe_inputs(seed)])


@lru_cache(maxsize=4)
def _unadapted(base: Base, seed: int) -> Vectors:
    return _answers(_engine_of(base.network), seed)


def packed(vector: Vectors) -> str:
    """A vector as a manifest holds it."""
    return base64.b64encode(vector.astype("<f2").tobytes()).decode()


@lru_cache(maxsize=16)
def unpacked(texts: tuple[str, ...], dimensions: int) -> Vectors:
    """Float32 (n, dimensions) of what `packed` gave. Raises ValueError."""
    rows = [np.frombuffer(base64.b64decode(text, validate=True), dtype="<f2") for text in texts]
    if any(len(row) != dimensions or not np.isfinite(row).all() for row in rows):
        raise ValueError(f"a vector is not {dimensions} finite numbers")
    vectors = np.array(rows, dtype=np.float32).reshape(len(rows), dimensions)
    vectors.setflags(write=False)  # all risk models of the process share it
    return vectors
