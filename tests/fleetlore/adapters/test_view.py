from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.adapters.signatures import SigningKey
from fleetlore.adapters.view import AdapterView
from fleetlore.errors import AdapterRefused
from fleetlore.wire.adapter_manifest import ADAPTERS, CANARY, AdapterManifest
from tests.random_adapters import KEY, OTHER, TRUSTED, record_of, version_of
from tests.rows import for_each

Record = tuple[bytes, bytes]


class Made:
    """Two versions of an adapter, and three records: of the first, of the second, and of the first (a rollback)."""

    def __init__(self, kind: type[AdapterManifest]) -> None:
        self.kind = kind
        self.versions = [version_of(kind, seed, "acme") for seed in (1, 2)]
        self.first, self.second = self.versions
        self.records = [self.record(which, epoch) for which, epoch in ((0, 1), (1, 2), (0, 3))]

    def record(self, which: int, epoch: int, key: SigningKey = KEY, **changes: Any) -> Record:
        return record_of(key, *self.versions[which], epoch, **changes)

    def view(self, *records: Record, tenant: str = "acme", **options: Any) -> AdapterView[AdapterManifest]:
        """A view that has taken these records."""
        made = AdapterView(self.kind, tenant, TRUSTED, **options)
        for record in records:
            made.take(*record)
        return made


MADE = {kind.name: Made(kind) for kind in ADAPTERS}


@pytest.fixture(params=sorted(MADE))
def made(request: pytest.FixtureRequest) -> Made:
    return MADE[request.param]


@given(st.permutations(range(3)), st.integers(0, 3), st.sampled_from(sorted(MADE)))
def test_any_order_of_arrival_ends_at_the_highest_epoch(order: list[int], repeats: int, name: str) -> None:
    made = MADE[name]
    view = made.view()
    for place in order + order[:repeats]:
        try:
            view.take(*made.records[place])
        except AdapterRefused as refusal:
            assert refusal.reason == "stale"
    assert view.complete() == made.first


def refusal(view: AdapterView[AdapterManifest], key: bytes, value: bytes) -> str:
    with pytest.raises(AdapterRefused) as refused:
        view.take(key, value)
    return refused.value.reason


CUT = MADE["llm"].first[0]


@for_each(
    "name, weights, reason",
    ("llm", CUT[:-1], "truncated"),
    ("llm", CUT[:5], "truncated"),
    ("llm", b"", "truncated"),
    ("llm", CUT[:-1] + b"\x7f", "tampered"),
    ("llm", MADE["llm"].second[0], "tampered"),
    ("llm", b"\0" * 600_000, "oversized"),
    ("calls", MADE["calls"].first[0][:-1], "truncated"),
    ("calls", MADE["calls"].first[0] + b"\x7f", "tampered"),
    ("calls", b"\0" * 600_000, "oversized"),
)
def test_damaged_weights_are_refused_and_do_not_replace_good_ones(name: str, weights: bytes, reason: str) -> None:
    made = MADE[name]
    view = made.view(made.records[0])
    key, value = record_of(KEY, weights, made.first[1], 5)
    assert refusal(view, key, value) == reason
    assert view.complete() == made.first and view.epoch == 1


def test_two_adapters_on_the_same_topic_are_kept_apart() -> None:
    """Each has its own epochs, and neither accepts or refuses records of the other."""
    first, other = MADE["calls"], MADE["llm"]
    view = first.view(*other.records, *first.records[:2], *other.records, all_versions=True)
    assert view.complete() == first.second
    assert view.epoch == 2 and set(view.versions) == {manifest.version for _, manifest in first.versions}


def test_a_manifest_of_the_other_adapter_under_the_key_of_this_one_is_refused() -> None:
    _, value = MADE["llm"].records[0]
    assert refusal(MADE["calls"].view(), b"calls/" + MADE["llm"].first[1].version.encode(), value) == "malformed"


def test_a_record_of_another_tenant_signer_version_or_time_is_refused(made: Made) -> None:
    assert refusal(made.view(tenant="other"), *made.records[0]) == "foreign"
    assert refusal(made.view(), *made.record(0, 1, OTHER)) == "unknown_key"
    assert refusal(made.view(), made.records[1][0], made.records[0][1]) == "tampered"
    view = made.view(made.records[1])
    assert refusal(view, *made.records[0]) == "stale" and view.complete() == made.second


def test_the_first_of_two_records_of_one_epoch_counts(made: Made) -> None:
    """The other one lost a race, and is no attack."""
    assert made.view(made.records[1], made.record(0, 2)).complete() == made.second


@pytest.mark.parametrize(("epoch", "tried"), [(1, False), (2, False), (3, True)])
def test_a_canary_counts_while_its_epoch_is_above_the_stable_one(made: Made, epoch: int, tried: bool) -> None:
    """If a rollback and a canary are written at once, the rollback counts."""
    view = made.view(made.records[1], made.record(0, epoch, channel=CANARY))
    followed = view.followed_by("a1")
    assert followed is not None and followed.manifest == made.versions[0 if tried else 1][1]
    assert view.complete() == made.second
    assert (view.canary is not None) is tried


def test_an_agent_keeps_one_version_of_a_channel(made: Made) -> None:
    view = made.view(*made.records)

    def held() -> list[int]:
        return [len(each) for each in vars(view).values() if isinstance(each, dict | set | list)]

    before = held()
    for epoch in range(4, 40):
        view.take(*made.record(epoch % 2, epoch))
    assert held() == before and not view.releases


def test_a_tombstone_forgets_a_version_but_none_that_a_channel_runs(made: Made) -> None:
    view = made.view(*made.records, all_versions=True)
    for key, _ in made.records:
        view.take(key, None)
    assert set(view.versions) == {made.first[1].version}
    assert view.complete() == made.first


def test_publishers_keep_the_newest_record_of_each_version(made: Made) -> None:
    view, again = made.view(*made.records, all_versions=True), made.view(all_versions=True)
    assert {each.record.epoch for each in view.releases.values()} == {2, 3}
    for each in view.releases.values():
        again.take(each.record.key, each.value)
    assert again.releases == view.releases and again.complete() == view.complete() == made.first


def test_a_publisher_keeps_the_highest_of_many_claims_of_unknown_keys(made: Made) -> None:
    view = made.view(*made.records, all_versions=True)
    for number in range(300):
        key, value = made.record(0, 1000 - number, OTHER)
        forged = value.replace(OTHER.key_id.encode(), f"{number:016x}".encode())
        assert refusal(view, key, forged) == "unknown_key"
    assert view.next_epoch == 1001 and len(view.unknown_keys) == 64


def test_what_a_host_remembers_runs_once_the_log_brings_its_weights(made: Made) -> None:
    view, later = made.view(*made.records), made.view()
    for key, document in view.documents().items():
        later.remember(key, document)
    assert later.epoch == 3 and later.complete() is None
    for record in made.records:
        later.take(*record)
    assert later.complete() == made.first


def test_weights_at_a_uri_complete_a_version_once_they_are_fetched(made: Made) -> None:
    _, value = record = made.record(0, 1, uri="file:///x/y")
    view = made.view(record)
    assert len(value) < len(made.first[0])
    assert view.complete() is None
    assert view.stable is not None and view.stable.value == value
    view.fetched(made.first[0])
    assert view.complete() == made.first
