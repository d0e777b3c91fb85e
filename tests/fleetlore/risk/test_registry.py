from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetlore.errors import AdapterRefused
from fleetlore.risk import registry as module
from fleetlore.risk.blob_store import WeightsReference
from fleetlore.risk.registry import RegistryView
from fleetlore.risk.signatures import SigningKey, public_keys
from fleetlore.testing.adapters import manifest_for, pointer_to, random_weights

KEY = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
OTHER = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(32)))
WEIGHTS = [random_weights(seed) for seed in (1, 2)]
MANIFESTS = [manifest_for(weights, "acme") for weights in WEIGHTS]
KEYS = [manifest.version.encode() for manifest in MANIFESTS]


def new_registry(tenant: str = "acme") -> RegistryView:
    return RegistryView(tenant, public_keys(KEY.public_base64))


def records() -> list[tuple[str, bytes, bytes]]:
    """Two versions and three pointers: to the first, to the second, and back (a rollback)."""
    pointers = [pointer_to(MANIFESTS[which], epoch) for which, epoch in ((0, 1), (1, 2), (0, 3))]
    return [
        *(("adapters.weights", key, weights) for key, weights in zip(KEYS, WEIGHTS, strict=True)),
        *(("adapters.manifests", manifest.key, KEY.sign(manifest)) for manifest in MANIFESTS),
        *(("adapters.pointers", pointer.key, KEY.sign(pointer)) for pointer in pointers),
    ]


@given(st.permutations(records()), st.integers(0, 3))
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_any_order_of_arrival_ends_at_the_newest_pointer(order: list[tuple[str, bytes, bytes]], repeats: int) -> None:
    registry = new_registry()
    for record in order + order[:repeats]:
        try:
            registry.take(*record)
        except AdapterRefused as refusal:
            assert refusal.reason == "stale"
    complete = registry.complete()
    assert complete is not None
    assert complete == (WEIGHTS[0], MANIFESTS[0])


def test_nothing_is_complete_until_all_three_are_there() -> None:
    registry = new_registry()
    for record in (records()[0], records()[2]):
        registry.take(*record)
        assert registry.complete() is None
    registry.take(*records()[4])
    assert registry.complete() is not None


def test_a_rejected_version_is_not_offered_again() -> None:
    registry = new_registry()
    for record in records():
        registry.take(*record)
    registry.reject(MANIFESTS[0].version)
    assert registry.complete() is None


def refusal(registry: RegistryView, name: str, key: bytes, value: bytes) -> str:
    with pytest.raises(AdapterRefused) as refused:
        registry.take(name, key, value)
    return refused.value.reason


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (WEIGHTS[0][:-1], "truncated"),
        (WEIGHTS[0][:100], "truncated"),
        (WEIGHTS[0][:5], "truncated"),
        (b"", "truncated"),
        (WEIGHTS[0][:-1] + b"\x7f", "tampered"),
        (WEIGHTS[1], "tampered"),
        (b"\0" * 600_000, "oversized"),
    ],
)
def test_damaged_weights_are_refused_and_do_not_replace_good_ones(value: bytes, reason: str) -> None:
    registry = new_registry()
    for record in records():
        registry.take(*record)
    assert refusal(registry, "adapters.weights", KEYS[0], value) == reason
    assert registry.complete() == (WEIGHTS[0], MANIFESTS[0])


def test_a_manifest_of_another_tenant_is_foreign() -> None:
    assert refusal(new_registry("other"), *records()[2]) == "foreign"


def test_a_pointer_of_another_tenant_is_foreign() -> None:
    assert refusal(new_registry("other"), *records()[4]) == "foreign"


def test_a_manifest_signed_by_a_stranger_is_refused() -> None:
    reason = refusal(new_registry(), "adapters.manifests", MANIFESTS[0].key, OTHER.sign(MANIFESTS[0]))
    assert reason == "unknown_key"


def test_a_manifest_under_the_key_of_another_is_refused() -> None:
    assert refusal(new_registry(), "adapters.manifests", MANIFESTS[1].key, KEY.sign(MANIFESTS[0])) == "tampered"


def test_an_old_pointer_after_a_newer_one_is_stale() -> None:
    registry = new_registry()
    registry.take(*records()[5])
    assert refusal(registry, *records()[4]) == "stale"
    assert registry.pointer is not None and registry.pointer.epoch == 2


def test_a_second_pointer_of_the_same_epoch_is_stale() -> None:
    registry = new_registry()
    registry.take(*records()[5])
    pointer = pointer_to(MANIFESTS[0], 2)
    assert refusal(registry, "adapters.pointers", pointer.key, KEY.sign(pointer)) == "stale"


def test_reading_again_after_a_reconnect_counts_nothing() -> None:
    registry = new_registry()
    for record in records() + records():
        registry.take(*record)


def test_a_tombstone_forgets_a_version_but_never_a_pointer() -> None:
    registry = new_registry()
    for record in records():
        registry.take(*record)
    registry.take("adapters.pointers", b"procedural/stable", None)
    assert registry.complete() is not None
    registry.take("adapters.weights", KEYS[0], None)
    assert registry.complete() is None
    registry.take("adapters.manifests", MANIFESTS[1].key, None)
    assert registry.versions == {}


def test_it_keeps_few_versions_and_always_the_one_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_VERSIONS", 2)
    registry = new_registry()
    for record in records():
        registry.take(*record)
    for seed in range(10, 15):
        weights = random_weights(seed)
        registry.take_weights(manifest_for(weights, "acme").version.encode(), weights)
    assert registry.complete() == (WEIGHTS[0], MANIFESTS[0])


def test_a_reference_completes_a_version_once_it_is_fetched() -> None:
    registry, reference = new_registry(), WeightsReference("file:///x/y", MANIFESTS[0].version, len(WEIGHTS[0]))
    registry.take("adapters.weights", KEYS[0], reference.to_json())
    assert registry.elsewhere() is None
    for record in (records()[2], records()[4]):
        registry.take(*record)
    assert registry.complete() is None and registry.elsewhere() == reference
    assert MANIFESTS[0].version in registry.versions
    registry.fetched(reference, WEIGHTS[0])
    assert registry.complete() == (WEIGHTS[0], MANIFESTS[0]) and registry.elsewhere() is None


def test_a_reference_is_under_its_own_key_and_never_in_the_place_of_weights() -> None:
    registry, reference = new_registry(), WeightsReference("file:///x/y", MANIFESTS[0].version, len(WEIGHTS[0]))
    assert refusal(registry, "adapters.weights", KEYS[1], reference.to_json()) == "tampered"
    for weights in (reference.to_json(), WEIGHTS[0], reference.to_json()):
        registry.take("adapters.weights", KEYS[0], weights)
    assert registry.weights(MANIFESTS[0].version) == WEIGHTS[0]
    assert registry.reference(MANIFESTS[0].version) is None


def test_a_rejected_version_is_not_fetched() -> None:
    registry, reference = new_registry(), WeightsReference("file:///x/y", MANIFESTS[0].version, len(WEIGHTS[0]))
    registry.take("adapters.weights", KEYS[0], reference.to_json())
    for record in (records()[2], records()[4]):
        registry.take(*record)
    registry.reject(MANIFESTS[0].version)
    assert registry.elsewhere() is None
