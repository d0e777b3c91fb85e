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
    more: Pattern | None = None,
    passed: float = 0.0,
    alone: bool = False,
) -> list[str]:
    index = LoreIndex()
    fault = met("pay", CALL, "", ERROR, transient=True, last_seen=NOW - 10, agents=3, outages=outages)
    index.put_pattern(fault)
    seen = {"calls": 50, "failures": 50, "agents": 3, "first_seen": NOW - 900, "last_seen": passed or NOW - 10}
    seen["last_but_one"] = NOW - 10 if alone else seen["last_seen"]
    index.put_pattern(Pattern(id=fault.call or "", level="call", tenant="default", tool="pay", **seen))
    if more is not None:
        index.put_pattern(more)
    return [tip.text for tip in advise(index, asks or moment()).tips]


def outages(age: int, *lasted: int, agents: int = 3) -> tuple[tuple[int, int, int], ...]:
    earlier = [(int(NOW) - 3_600 * (n + 1), seconds, agents) for n, seconds in enumerate(lasted)]
    return ((int(NOW) - age, age, 3), *earlier)


KNOWN, PASSED, BEFORE_CALL = outages(200, *LASTED), {"passed": NOW - 5}, {"asks": moment(failed=False)}
WAIT, SEND = (
    "Wait 130 s and send this pay call again",
    "Send this pay call again: 5 s ago a later call got past http_503:",
)
TOLD_SO = moment(shown={f"{failure_of('pay', CALL, '', ERROR).class_}\x1fpassed"})
OTHER_FAILURE = met("pay", CALL, "", "unknown field order", last_seen=NOW - 5)


@for_each(
    "known, options, begin, end",
    (
        KNOWN,
        {},
        f"{WAIT}: it has had a passing fault (http_503:",
        "for 200 s. 2 of 3 earlier faults ended within 330 s.",
    ),
    (KNOWN, BEFORE_CALL, "If it fails, wait 130 s and send this pay call again", ""),
    # An outage in the future is no older than nothing.
    (((int(NOW) + 45, 15, 3), *KNOWN[1:]), {}, "Wait", "for 0 s. 2 of 3 earlier faults ended within 330 s."),
    # No seconds: one earlier outage says little, none lasted as long, one agent alone met them, no agent waits so long.
    (outages(200, 300), {}, "Wait and send this pay call again", ""),
    (outages(700, *LASTED), {}, "Wait and send this pay call again", ""),
    (outages(200, *LASTED, agents=1), {}, "Wait and send this pay call again", ""),
    (outages(200, 900, 900, 900), {}, "Wait and send this pay call again", ""),
    ((), {}, "Wait and send this pay call again", ""),
    # Whoever met the fault is told that it has passed, unless one agent alone says so and the operator believes no one
    # alone, the later call failed in another way, or the agent was told so before and failed again.
    (KNOWN, PASSED, SEND, ""),
    (KNOWN, {**PASSED, "alone": True}, WAIT, ""),
    (KNOWN, {**PASSED, **BEFORE_CALL, "alone": True}, "If it fails, wait 130 s", ""),
    (KNOWN, {**PASSED, "alone": True, "asks": moment(quorum=1)}, "Send this pay call again", ""),
    (KNOWN, {**PASSED, "more": OTHER_FAILURE}, WAIT, ""),
    (KNOWN, {**PASSED, "asks": TOLD_SO}, WAIT, ""),
)
def test_an_outage_is_told_with_its_age_its_rest_and_its_end(
    known: tuple[tuple[int, int, int], ...], options: dict[str, Any], begin: str, end: str
) -> None:
    (text,) = told(known, **options)
    assert text.startswith(begin) and text.endswith(end)


def test_nothing_is_said_before_a_call_of_an_outage_that_has_passed() -> None:
    assert not told(KNOWN, **BEFORE_CALL, **PASSED)


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


def test_a_wait_with_other_seconds_is_no_news(index: LoreIndex) -> None:
    known = outages(200, *LASTED)
    index.put_pattern(met("pay", CALL, "", ERROR, transient=True, last_seen=NOW, agents=3, outages=known))
    one, other = (advise(index, moment(now=NOW + later)).tips[0] for later in (0, 7))
    assert one.text != other.text and one.key == other.key


def test_only_a_passing_fault_of_the_loop_itself_takes_the_place_of_the_loop(index: LoreIndex) -> None:
    index.put_pattern(met("pay", CALL, "", ERROR, transient=True, last_seen=NOW, agents=3))
    for name, error, shown in (("pay", ERROR, ["passing"]), ("read", "no such column x", ["loop", "passing"])):
        guardian = Watchdog(0.0)
        for _ in range(3):
            guardian.took_place(name, CALL, None, failure_of(name, CALL, "", error))
        assert [tip.source for tip in advise(index, moment(failed=False), guardian.cautions(0.0)).tips] == shown
