"""The world of retries: its faults, its rivals, and how an agent reads what it is told."""

import time

import pytest

from benchmarks import retries
from benchmarks.retries import Service, run


def test_a_limit_ends_when_it_says_and_a_gone_call_never_works() -> None:
    service = Service(0)
    service.now = 65.0
    status, error, after = service.call("reports", {"month": "may"})
    assert status == 429 and "rate limit" in error and after is not None
    service.now += after
    assert service.call("reports", {"month": "may"})[0] == 200
    for moment in (0.0, 1_000.0, 9_000.0):
        service.now = moment
        assert service.call("users", {"api": "accounts"})[0] == 410
        assert service.call("users", {"api": "members"})[0] == 200
        assert service.call("orders", {"customer": "ann"})[0] == 422
        assert service.call("orders", {"client_ref": "ann"})[0] == 200


async def test_every_arm_meets_the_same_first_failures_and_no_arm_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_sleep(seconds: float) -> None:
        raise AssertionError(f"slept {seconds} s")

    monkeypatch.setattr(time, "sleep", no_sleep)
    found = {arm: await run(arm, 0, 24) for arm in retries.ARMS}
    assert len({tuple(tool for tool, _ in tools) for tools in found.values()}) == 1
    for (_, gave_up), (_, again), (_, patient) in zip(*map(found.get, ("none", "blind", "careful")), strict=True):
        assert gave_up.attempts <= 2
        assert again.recovered or again.attempts == 10 or again.seconds > 120
        assert patient.attempts <= 10 and patient.attempts >= gave_up.attempts


@pytest.mark.parametrize(
    ("told", "arguments"),
    [
        ("", {"customer": "ann"}),
        ("Use `client_ref` instead of `customer` in orders.", {"client_ref": "ann"}),
        ("Use `client_ref=bob` instead of `customer=ann` in orders.", {"client_ref": "bob"}),
        ("Use `members` instead of `accounts` in users.", {"customer": "ann"}),
    ],
)
def test_a_reader_changes_what_it_is_told_to_change(told: str, arguments: dict[str, str]) -> None:
    assert retries._renamed({"customer": "ann"}, told) == arguments
