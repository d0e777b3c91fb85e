from math import inf, nan

import pytest

from fleetlore import ConfigError
from fleetlore.fingerprint.fingerprint import failure_of
from fleetlore.watch.watchdog import Budget, Watchdog, _way_out
from tests.rows import for_each


def ids(guardian: Watchdog, now: float) -> list[str]:
    return [caution.id for caution in guardian.cautions(now)]


@for_each("used, warned", (0, None), (79.9, None), (80, "80 %"), (99, "99 %"), (100, "used up"), (300, "used up"))
def test_a_budget_warns_at_four_fifths_and_when_it_is_used_up(used: float, warned: str | None) -> None:
    for name in ("tokens", "money"):
        guardian = Watchdog(0.0, Budget(**{name: 100.0}))
        guardian.spend(**({"tokens": 0.0, "money": 0.0} | {name: used}))
        said = guardian.cautions(1.0)
        assert [caution.id for caution in said] == ([f"guard:{name}"] if warned else [])
        assert not warned or warned.replace(" %", "%") in said[0].text
    guardian = Watchdog(50.0, Budget(seconds=100.0), stall_seconds=inf)
    assert ids(guardian, 50.0 + used) == (["guard:time"] if warned else [])


def test_a_standstill_is_told_until_something_happens() -> None:
    guardian = Watchdog(1000.0, stall_seconds=120.0)
    assert ids(guardian, 1119.9) == []
    assert ids(guardian, 1120.0) == ["guard:stall"]
    guardian.saw_event(1130.0)
    assert ids(guardian, 1130.0) == []
    assert "for 130 seconds" in guardian.cautions(1260.0)[0].text


@for_each("wrong", 0, -1, inf, nan)
def test_figures_that_cannot_be_are_refused(wrong: float) -> None:
    with pytest.raises(ConfigError, match="tokens"):
        Budget(tokens=wrong)
    with pytest.raises(ConfigError, match="spent"):
        Watchdog(0.0).spend(wrong or -1, 0.0)
    with pytest.raises(ConfigError, match="stand still"):
        Watchdog(0.0, stall_seconds=0.0)


def test_a_loop_is_told_while_it_lasts_and_counted_once() -> None:
    guardian = Watchdog(0.0, Budget(tokens=1))
    guardian.spend(1, 0)
    for _ in range(5):
        guardian.took_place("poll", {"job": 1}, "waiting", None)
    assert ids(guardian, 0.0) == ["guard:loop", "guard:tokens"] and guardian.loops == 1
    guardian.took_place("cancel", {"job": 1}, "done", None)
    assert ids(guardian, 0.0) == ["guard:tokens"]
    for _ in range(3):
        guardian.took_place("start", {}, None, failure_of("start", {}, None, "no such job"))
    assert ids(guardian, 0.0)[0] == "guard:loop" and guardian.loops == 2


def test_a_loop_of_passing_faults_is_no_reason_to_change_the_call() -> None:
    guardian = Watchdog(0.0)
    for _ in range(3):
        guardian.took_place("pay", {"order": 1}, None, failure_of("pay", {}, None, "HTTP 503: Service Unavailable"))
    (caution,) = guardian.cautions(0.0)
    assert caution.text.startswith("Wait longer between the calls") and "change" not in caution.text


def test_a_loop_of_several_calls_does_not_pass_by_itself() -> None:
    guardian = Watchdog(0.0)
    for _ in range(4):
        guardian.took_place("read", {"order": 1}, None, failure_of("read", {}, None, "no such column x"))
        guardian.took_place("pay", {"order": 1}, None, failure_of("pay", {}, None, "HTTP 503: Service Unavailable"))
    (caution,) = guardian.cautions(0.0)
    assert caution.text.startswith("Take a step that is not one of them")


@for_each(
    "template, failed, advice",
    ("the same call gives the same result", True, "It will fail again"),
    ("the same call gives the same result", False, "Use that result"),
    ("3 calls in turn give the same results", False, "Take a step that is not one of them"),
    ("3 calls in turn give the same results", True, "Take a step that is not one of them"),
    ("small changes to the call do not help", True, "Small changes do not help"),
)
def test_each_kind_of_loop_has_a_way_out(template: str, failed: bool, advice: str) -> None:
    assert _way_out(template, failed=failed).startswith(advice)
