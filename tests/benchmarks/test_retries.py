"""The world of retries: its faults, its rivals, how an agent reads what it is told, and the doors."""

import time

import pytest

from benchmarks import retries
from benchmarks.retries import ARMS, DOORS, Clock, Result, Service, run
from tests.rows import for_each


async def test_a_limit_ends_when_it_says_and_a_gone_call_never_works() -> None:
    clock = Clock()
    service = Service(0, clock)

    async def use() -> Result:
        status, error, after = await service.call("reports", {"month": "may"})
        assert status == 429 and "rate limit" in error and after is not None
        await clock.wait(after)
        assert (await service.call("reports", {"month": "may"}))[0] == 200
        for seconds in (0.0, 1_000.0, 9_000.0):
            await clock.wait(seconds)
            assert (await service.call("users", {"api": "accounts"}))[0] == 410
            assert (await service.call("users", {"api": "members"}))[0] == 200
            assert (await service.call("orders", {"customer": "ann"}))[0] == 422
            assert (await service.call("orders", {"client_ref": "ann"}))[0] == 200
        return Result(True, 1, 0.0)

    await clock.run([(65.0, use())])


async def test_every_arm_meets_the_same_first_failures_and_no_arm_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_sleep(seconds: float) -> None:
        raise AssertionError(f"slept {seconds} s")

    monkeypatch.setattr(time, "sleep", no_sleep)
    found = {arm: await run(arm, 0, 24) for arm in ARMS}
    assert len({tuple(tool for tool, _ in tools) for tools in found.values()}) == 1
    for (_, gave_up), (_, again), (_, patient) in zip(*map(found.get, ("none", "blind", "careful")), strict=True):
        assert gave_up.attempts <= 2
        assert again.recovered or again.attempts == 10 or again.seconds > 119
        assert patient.attempts <= 10 and patient.attempts >= gave_up.attempts and patient.seconds <= 130


@pytest.mark.parametrize("door", DOORS)
async def test_agents_of_each_door_learn_the_renamed_field_from_each_other(
    door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetlore.advice.advice.withheld", lambda *_: False)
    found = await run("fleetlore", 0, 45, door)
    renamed = [result for tool, result in found[-4:] if tool in ("orders", "users")]
    assert len(renamed) == 4 and all(result.recovered and result.attempts <= 2 for result in renamed)


@for_each(
    "told, arguments",
    ("", {"customer": "ann"}),
    ("Use `client_ref` instead of `customer` in orders.", {"client_ref": "ann"}),
    ("Use `client_ref=bob` instead of `customer=ann` in orders.", {"client_ref": "bob"}),
    ("Use `members` instead of `accounts` in users.", {"customer": "ann"}),
)
def test_a_reader_changes_what_it_is_told_to_change(told: str, arguments: dict[str, str]) -> None:
    assert retries._renamed({"customer": "ann"}, told) == arguments
