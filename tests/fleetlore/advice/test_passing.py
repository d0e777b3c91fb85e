from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.advice.advice import advise
from fleetlore.advice.before_call import _TRANSIENT_SECONDS, _transient_weight
from fleetlore.advice.situation import Situation
from fleetlore.fingerprint.fingerprint import failure_of
from fleetlore.recall.index import LoreIndex, worth_showing
from fleetlore.watch.watchdog import Watchdog
from fleetlore.wire.lore import Pattern
from tests.build import failed_call, met, situation
from tests.rows import for_each

NOW = 1_760_000_000.0


def pattern(tool: str = "shell", error: str = "", **fields: Any) -> Pattern:
    failure = failure_of(tool, {}, None, error)
    values: dict[str, Any] = {"sessions": 4, "agents": 3, "last_seen": NOW - 150, "transient": failure.transient}
    values |= {"error_class": failure.error_class, "template": failure.template}
    return Pattern(id=failure.class_, level="class", tenant="t", tool=tool, **(values | fields))


def tool(ended: int, failed: int) -> Pattern:
    return Pattern(id="t", level="tool", tenant="t", tool="shell", sessions_ended=ended, sessions_failed=failed)


def test_weather_is_told_while_it_lasts_and_is_never_a_lesson() -> None:
    def met(seconds_ago: float, agents: int = 3) -> Pattern:
        return pattern("http", "HTTP 503 Service Unavailable", agents_lately=agents, last_seen=NOW - seconds_ago)

    assert not worth_showing(met(1))
    assert _transient_weight(met(119, agents=1), NOW) and not _transient_weight(met(121, agents=1), NOW)
    assert not _transient_weight(met(_TRANSIENT_SECONDS + 1, agents=10_000), NOW)
    assert _transient_weight(met(60), NOW) == pytest.approx(_transient_weight(met(0), NOW) / 2)
    assert _transient_weight(pattern(error="exit code 1"), NOW) == 0


@for_each(
    "ended, failed, of_tool, shown",
    (0, 0, tool(100, 40), True),  # nothing is known yet
    (7, 0, tool(100, 40), True),  # too little
    (100, 29, tool(300, 140), False),  # its sessions fail less often than the others
    (100, 80, tool(300, 140), True),
    (8, 7, tool(300, 140), True),
    (8, 4, tool(300, 140), False),  # may be chance
    (100, 29, tool(104, 33), True),  # nobody to compare with
    (100, 0, None, False),
    (100, 29, None, True),
)
def test_a_harmless_pattern_is_not_worth_a_warning(
    ended: int, failed: int, of_tool: Pattern | None, shown: bool
) -> None:
    met = pattern(error="user not found", sessions_ended=ended, sessions_failed=failed)
    assert worth_showing(met, of_tool) is shown


CALL, ERROR = {"order": "open"}, "HTTP 503: the payment service is unavailable"
LASTED = (285, 300, 570)


def moment(*, failed: bool = True, **fields: Any) -> Situation:
    """An agent that met the outage 20 s ago, or that asks before its first call."""
    if not failed:
        return situation("pay", CALL, **{"now": NOW} | fields)
    return situation(failed=replace(failed_call("pay", CALL, "", ERROR), moment=NOW - 20), **{"now": NOW} | fields)


def told(
    outages: tuple[tuple[int, int, int], ...],
    asks: Situation | None = None,
    *more: Pattern,
    passed: float = 0.0,
    alone: bool = False,
) -> list[str]:
    index = LoreIndex()
    fault = met("pay", CALL, "", ERROR, transient=True, last_seen=NOW - 10, agents=3, outages=outages)
    index.put_pattern(fault)
    seen = {"calls": 50, "failures": 50, "agents": 3, "first_seen": NOW - 900, "last_seen": passed or NOW - 10}
    seen["last_but_one"] = NOW - 10 if alone else seen["last_seen"]
    index.put_pattern(Pattern(id=fault.call or "", level="call", tenant="default", tool="pay", **seen))
    for each in more:
        index.put_pattern(each)
    return [tip.text for tip in advise(index, asks or moment()).tips]


def outages(age: int, *lasted: int, agents: int = 3) -> tuple[tuple[int, int, int], ...]:
    earlier = [(int(NOW) - 3_600 * (n + 1), seconds, agents) for n, seconds in enumerate(lasted)]
    return ((int(NOW) - age, age, 3), *earlier)


def test_an_outage_is_told_with_its_age_and_the_rest_that_earlier_ones_would_leave() -> None:
    (text,) = told(outages(200, *LASTED))
    assert text.startswith("Wait 130 s and send this pay call again: it has had a passing fault (http_503:")
    assert text.endswith("for 200 s. 2 of 3 earlier faults ended within 330 s.")
    (text,) = told(outages(200, *LASTED), moment(failed=False))
    assert text.startswith("If it fails, wait 130 s and send this pay call again")


@for_each(
    "known",
    outages(200, 300),  # one earlier one says little
    outages(700, *LASTED),  # none lasted as long as this one
    outages(200, *LASTED, agents=1),  # one agent alone met the earlier ones
    outages(200, 900, 900, 900),  # no agent waits so long
    (),
)
def test_no_seconds_are_told_without_earlier_outages(known: tuple[tuple[int, int, int], ...]) -> None:
    (text,) = told(known)
    assert text.startswith("Wait and send this pay call again")


def test_who_met_a_fault_is_told_that_it_has_passed() -> None:
    (text,) = told(outages(200, *LASTED), passed=NOW - 5)
    assert text.startswith("Send this pay call again: 5 s ago a later call got past http_503:")
    assert not told(outages(200, *LASTED), moment(failed=False), passed=NOW - 5), "it has passed"


def test_one_agent_alone_ends_no_outage_of_others() -> None:
    (text,) = told(outages(200, *LASTED), passed=NOW - 5, alone=True)
    assert text.startswith("Wait 130 s")
    assert told(outages(200, *LASTED), moment(failed=False), passed=NOW - 5, alone=True)
    (text,) = told(outages(200, *LASTED), moment(quorum=1), passed=NOW - 5, alone=True)
    assert text.startswith("Send this pay call again"), "the operator believes one agent"


@given(st.integers(0, 7_200))
def test_one_agent_alone_begins_no_outage_after_that_of_others(ago: int) -> None:
    """`ago`: seconds since the failures of the others. One agent failed 10 s ago."""
    assert bool(told(((int(NOW) - ago - 60, 60, 3),), moment(failed=False))) is (ago <= _TRANSIENT_SECONDS)


@for_each("ahead", -9, 280)
def test_one_agent_alone_ends_no_outage_by_a_failure_of_its_own(ahead: int) -> None:
    """Senders may date events five minutes ahead."""
    alone = (int(NOW) + ahead, 15, 1)
    for quorum in (2, 3):
        asks = moment(failed=False, quorum=quorum)
        assert told((alone, *outages(280, *LASTED)), asks) == told(outages(280, *LASTED), asks) != []


def test_a_later_call_that_failed_in_another_way_got_past_nothing() -> None:
    lasting = met("pay", CALL, "", "unknown field order", last_seen=NOW - 5)
    (text,) = told(outages(200, *LASTED), None, lasting, passed=NOW - 5)
    assert text.startswith("Wait 130 s")


def test_who_was_told_that_it_has_passed_and_failed_again_is_told_to_wait() -> None:
    failure = failure_of("pay", CALL, "", ERROR)
    (text,) = told(outages(200, *LASTED), moment(shown={f"{failure.class_}\x1fpassed"}), passed=NOW - 5)
    assert text.startswith("Wait 130 s")


def test_a_wait_with_other_seconds_is_no_news(index: LoreIndex) -> None:
    known = outages(200, *LASTED)
    index.put_pattern(met("pay", CALL, "", ERROR, transient=True, last_seen=NOW, agents=3, outages=known))
    one, other = (advise(index, moment(now=NOW + later)).tips[0] for later in (0, 7))
    assert one.text != other.text and one.key == other.key


def test_an_outage_in_the_future_is_no_older_than_nothing() -> None:
    (text,) = told(((int(NOW) + 45, 15, 3), *outages(0, *LASTED)[1:]))
    assert text.endswith("for 0 s. 2 of 3 earlier faults ended within 330 s.")


def test_only_a_passing_fault_of_the_loop_itself_takes_the_place_of_the_loop(index: LoreIndex) -> None:
    index.put_pattern(met("pay", CALL, "", ERROR, transient=True, last_seen=NOW, agents=3))
    for name, error, shown in (("pay", ERROR, ["passing"]), ("read", "no such column x", ["loop", "passing"])):
        guardian = Watchdog(0.0)
        for _ in range(3):
            guardian.took_place(name, CALL, None, failure_of(name, CALL, "", error))
        assert [tip.source for tip in advise(index, moment(failed=False), guardian.cautions(0.0)).tips] == shown
