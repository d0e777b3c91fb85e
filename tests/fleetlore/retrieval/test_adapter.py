"""A version of the retrieval adapter in an agent: what is refused, and what it changes."""

from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from benchmarks.random_adapters import manifest_for, random_weights
from fleetlore.errors import AdapterRefused
from fleetlore.retrieval.adapter import Ranking, RetrievalSlot
from fleetlore.wire.adapter_manifest import Probe

WEIGHTS = random_weights(1)


def changed(**tensors: Any) -> bytes:
    """The weights with other tensors, by side and factor."""
    held = safetensors.numpy.load(WEIGHTS)
    for name, change in tensors.items():
        side, factor = name.split("_")
        key = f"{side}.lora_{factor}.weight"
        held[key] = change(held[key])
    return bytes(safetensors.numpy.save(held))


def refused(weights: bytes, **said: Any) -> str:
    slot = RetrievalSlot()
    slot.apply(slot.prepare(WEIGHTS, manifest_for(WEIGHTS, "t")))
    made = manifest_for(WEIGHTS, "t", version=said.pop("version", None) or _sha(weights), **said)
    with pytest.raises(AdapterRefused) as refusal:
        slot.prepare(weights, made)
    assert slot.version == _sha(WEIGHTS), "the version in use stays"
    return refusal.value.reason


def _sha(weights: bytes) -> str:
    import hashlib

    return hashlib.sha256(weights).hexdigest()


@pytest.mark.parametrize(
    ("weights", "said", "reason"),
    [
        (WEIGHTS, {"version": "0" * 64}, "tampered"),
        (WEIGHTS, {"encoder_sha256": "0" * 64}, "foreign"),
        (WEIGHTS, {"rank": 0}, "structure"),
        (WEIGHTS, {"rank": 4}, "structure"),
        (WEIGHTS, {"rank": 10_000}, "structure"),
        (WEIGHTS, {"alpha": 160}, "probe"),
        (WEIGHTS, {"probe": Probe(2, (0.1,))}, "probe"),
        (b"\0" * 3_000_000, {}, "oversized"),
        (b"no safetensors", {}, "malformed"),
        (changed(query_A=lambda a: a.astype(np.float16)), {}, "structure"),
        (changed(query_A=lambda a: a[:, :8]), {}, "structure"),
        (changed(answer_B=lambda b: b * np.nan), {}, "not_finite"),
        (changed(answer_B=lambda b: b * 2), {}, "probe"),
    ],
)
def test_a_version_that_is_not_what_its_manifest_says_is_refused(
    weights: bytes, said: dict[str, Any], reason: str
) -> None:
    assert refused(weights, **said) == reason


def test_a_version_that_changes_nothing_is_refused() -> None:
    idle = changed(query_B=lambda b: 0 * b, answer_B=lambda b: 0 * b)
    with pytest.raises(AdapterRefused, match="changes nothing"):
        RetrievalSlot().prepare(idle, manifest_for(idle, "t"))


def test_agents_of_a_process_share_what_one_has_read() -> None:
    slots, manifest = [RetrievalSlot() for _ in range(2)], manifest_for(WEIGHTS, "t")
    first, again = (slot.prepare(WEIGHTS, manifest) for slot in slots)
    assert first.value is again.value and slots[1].is_loaded(manifest)
    assert slots[0].value is None and slots[0].version is None
    slots[0].apply(first)
    assert slots[0].version == manifest.version
    slots[0].reset()
    assert slots[0].version is None


def test_texts_are_ranked_by_words_and_by_the_adapter() -> None:
    slot = RetrievalSlot()
    slot.apply(slot.prepare(WEIGHTS, manifest_for(WEIGHTS, "t")))
    adapter = slot.value
    assert adapter is not None
    ranking = Ranking(["cars of the makers", "a poem", "cars"], slot.encoder)
    words = ranking.by_words("cars makers")
    assert words.argmax() == 0 and words.max() == 1.0 and words[1] == 0.0
    vectors = slot.encoder.encode(["cars makers", "cars of the makers", "a poem", "cars"])
    learned = adapter.cosines(vectors[0], vectors[1:])
    assert ranking.scores("cars makers", adapter) == pytest.approx(words + 2 * learned)
    assert Ranking([], slot.encoder).scores("x", adapter).shape == (0,)
    assert (Ranking(["", "y"], slot.encoder).by_words("z") == 0).all()
