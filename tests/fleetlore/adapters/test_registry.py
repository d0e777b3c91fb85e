import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.adapters.blob_store import WeightsReference
from fleetlore.adapters.registry import RegistryView
from fleetlore.adapters.signatures import SigningKey, public_keys
from fleetlore.errors import AdapterRefused
from fleetlore.wire.adapter_manifest import ADAPTERS, CANARY, CHANNEL, AdapterManifest
from tests.random_adapters import pointer_to, version_of

KEY = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
OTHER = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(32)))


class Made:
    """Two versions of an adapter, and three pointers: to the first, to the second, and back (a rollback)."""

    def __init__(self, kind: type[AdapterManifest]) -> None:
        self.kind = kind
        made = [version_of(kind, seed, "acme") for seed in (1, 2)]
        self.weights = [weights for weights, _ in made]
        self.manifests = [manifest for _, manifest in made]
        self.keys = [manifest.version.encode() for manifest in self.manifests]
        pointers = [pointer_to(self.manifests[which], epoch) for which, epoch in ((0, 1), (1, 2), (0, 3))]
        self.records = [
            *(("adapters.weights", key, weights) for key, weights in zip(self.keys, self.weights, strict=True)),
            *(("adapters.manifests", manifest.key, KEY.sign(manifest)) for manifest in self.manifests),
            *(("adapters.pointers", pointer.key, KEY.sign(pointer)) for pointer in pointers),
        ]

    def registry(self, tenant: str = "acme") -> RegistryView[AdapterManifest]:
        return RegistryView(self.kind, tenant, public_keys(KEY.public_base64))


MADE = {kind.name: Made(kind) for kind in ADAPTERS}


@pytest.fixture(params=sorted(MADE))
def made(request: pytest.FixtureRequest) -> Made:
    return MADE[request.param]


@given(st.permutations(range(7)), st.integers(0, 3), st.sampled_from(sorted(MADE)))
def test_any_order_of_arrival_ends_at_the_newest_pointer(order: list[int], repeats: int, name: str) -> None:
    """Weights that came before their manifest are read again, as a reader of the topics does."""
    made = MADE[name]
    registry = made.registry()
    weights = [place for place in order if place < 2]
    for record in [made.records[place] for place in order + order[:repeats] + weights]:
        try:
            registry.take(*record)
        except AdapterRefused as refusal:
            assert refusal.reason == "stale"
    complete = registry.complete()
    assert complete is not None
    assert complete == (made.weights[0], made.manifests[0])


def test_nothing_is_complete_until_all_three_are_there(made: Made) -> None:
    registry = made.registry()
    for record in (made.records[2], made.records[0]):
        registry.take(*record)
        assert registry.complete() is None
    registry.take(*made.records[4])
    assert registry.complete() is not None


def refusal(registry: RegistryView[AdapterManifest], name: str, key: bytes, value: bytes) -> str:
    with pytest.raises(AdapterRefused) as refused:
        registry.take(name, key, value)
    return refused.value.reason


CUT = MADE["llm"].weights[0]


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("llm", CUT[:-1], "truncated"),
        ("llm", CUT[:100], "truncated"),
        ("llm", CUT[:5], "truncated"),
        ("llm", b"", "truncated"),
        ("llm", CUT[:-1] + b"\x7f", "tampered"),
        ("llm", MADE["llm"].weights[1], "tampered"),
        ("llm", b"\0" * 600_000, "oversized"),
        ("calls", MADE["calls"].weights[0][:-1], "truncated"),
        ("calls", MADE["calls"].weights[0][:-1] + b"\x7f", "tampered"),
        ("calls", MADE["calls"].weights[0] + b"\x7f", "tampered"),
        ("calls", b"\0" * 600_000, "oversized"),
    ],
)
def test_damaged_weights_are_refused_and_do_not_replace_good_ones(name: str, value: bytes, reason: str) -> None:
    made = MADE[name]
    registry = made.registry()
    for record in made.records[2:] + made.records[:2]:
        registry.take(*record)
    assert refusal(registry, "adapters.weights", made.keys[0], value) == reason
    assert registry.complete() == (made.weights[0], made.manifests[0])


def test_two_adapters_on_the_same_topics_are_kept_apart() -> None:
    """Each channel has its own epochs, and neither accepts or refuses records of the other."""
    first, other = MADE["calls"], MADE["llm"]
    registry = first.registry()
    for record in (*other.records, *first.records[2:5], *first.records[:2], *other.records):
        registry.take(*record)
    assert registry.complete() == (first.weights[0], first.manifests[0])
    assert registry.epoch == 1 and set(registry.versions) == {manifest.version for manifest in first.manifests}


def test_a_manifest_of_the_other_adapter_under_the_key_of_this_one_is_refused() -> None:
    manifest = MADE["llm"].manifests[0]
    key = b"calls/" + manifest.version.encode()
    assert refusal(MADE["calls"].registry(), "adapters.manifests", key, KEY.sign(manifest)) == "malformed"


def test_a_manifest_of_another_tenant_is_foreign(made: Made) -> None:
    assert refusal(made.registry("other"), *made.records[2]) == "foreign"


def test_a_pointer_of_another_tenant_is_foreign(made: Made) -> None:
    assert refusal(made.registry("other"), *made.records[4]) == "foreign"


def test_a_manifest_signed_by_a_stranger_is_refused(made: Made) -> None:
    reason = refusal(made.registry(), "adapters.manifests", made.manifests[0].key, OTHER.sign(made.manifests[0]))
    assert reason == "unknown_key"


def test_a_manifest_under_the_key_of_another_is_refused(made: Made) -> None:
    assert (
        refusal(made.registry(), "adapters.manifests", made.manifests[1].key, KEY.sign(made.manifests[0])) == "tampered"
    )


def test_an_old_pointer_after_a_newer_one_is_stale(made: Made) -> None:
    registry = made.registry()
    registry.take(*made.records[5])
    assert refusal(registry, *made.records[4]) == "stale"
    assert registry.pointer is not None and registry.pointer.epoch == 2


def test_a_second_pointer_of_the_same_epoch_is_stale(made: Made) -> None:
    registry = made.registry()
    registry.take(*made.records[5])
    pointer = pointer_to(made.manifests[0], 2)
    assert refusal(registry, "adapters.pointers", pointer.key, KEY.sign(pointer)) == "stale"


@pytest.mark.parametrize(("epoch", "tried"), [(1, False), (2, False), (3, True)])
def test_a_canary_counts_while_its_epoch_is_above_the_stable_one(made: Made, epoch: int, tried: bool) -> None:
    """If a rollback and a canary are written at once, the rollback counts."""
    registry = made.registry()
    canary = pointer_to(made.manifests[0], epoch, channel=CANARY)
    for record in (made.records[5], ("adapters.pointers", canary.key, KEY.sign(canary))):
        registry.take(*record)
    followed = registry.followed_by("a1")
    assert followed is not None and followed.channel == (CANARY if tried else CHANNEL)
    assert registry.pointer is not None and registry.pointer.channel == CHANNEL
    assert (registry.canary is not None) is tried


def test_reading_again_after_a_reconnect_counts_nothing(made: Made) -> None:
    registry = made.registry()
    for record in made.records + made.records:
        registry.take(*record)


def test_a_tombstone_forgets_a_version_but_never_a_pointer_nor_what_it_points_to(made: Made) -> None:
    registry = made.registry()
    for record in made.records[2:] + made.records[:2]:
        registry.take(*record)
    registry.take("adapters.pointers", made.kind.name.encode() + b"/stable", None)
    registry.take("adapters.weights", made.keys[0], None)
    registry.take("adapters.manifests", made.manifests[0].key, None)
    assert registry.complete() is not None
    registry.take("adapters.manifests", made.manifests[1].key, None)
    assert set(registry.versions) == {made.manifests[0].version}


def test_what_a_view_has_verified_makes_another_like_it(made: Made) -> None:
    registry, other = made.registry(), made.registry()
    for record in made.records[2:] + made.records[:2]:
        registry.take(*record)
    for record in registry.records():
        assert other.take(*record)
    assert other.complete() == registry.complete() is not None


def test_a_reference_completes_a_version_once_it_is_fetched(made: Made) -> None:
    registry, reference = (
        made.registry(),
        WeightsReference("file:///x/y", made.manifests[0].version, len(made.weights[0])),
    )
    for record in (made.records[2], made.records[4]):
        registry.take(*record)
    assert registry.stable == made.manifests[0] and registry.reference(reference.sha256) is None
    registry.take("adapters.weights", made.keys[0], reference.to_json())
    assert registry.complete() is None and registry.reference(reference.sha256) == reference
    assert made.manifests[0].version in registry.versions
    registry.fetched(reference, made.weights[0])
    assert registry.complete() == (made.weights[0], made.manifests[0])


def test_a_reference_is_under_its_own_key_and_never_in_the_place_of_weights(made: Made) -> None:
    registry, reference = (
        made.registry(),
        WeightsReference("file:///x/y", made.manifests[0].version, len(made.weights[0])),
    )
    for record in made.records[2:4]:
        registry.take(*record)
    assert refusal(registry, "adapters.weights", made.keys[1], reference.to_json()) == "tampered"
    for weights in (reference.to_json(), made.weights[0], reference.to_json()):
        registry.take("adapters.weights", made.keys[0], weights)
    assert registry.weights(made.manifests[0].version) == made.weights[0]
    assert registry.reference(made.manifests[0].version) is None
