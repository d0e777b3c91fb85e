"""Which calls are held, once, and what holding leaves alone."""

from typing import Any

import pytest

from fleetlore import Fleet
from fleetlore.fingerprint.fingerprint import failure_of
from fleetlore.testing import FakeClock
from fleetlore.wire.lore import Pattern
from tests.build import memory_item
from tests.doubles.recorder import Recorder
from tests.rows import for_each

FAILING, WORKING = {"index": "products"}, {"index": "products-eu"}


def a_fleet(**options: Any) -> Fleet:
    fleet = Fleet("agent", broker="nowhere:1", holdout_share=0.0, clock=FakeClock(1000.0), **options)
    fleet.emitter = fleet.reviews = Recorder()
    failure = failure_of("search", FAILING, "LookupError", "index products does not exist")
    change: dict[str, Any] = {"was": ("index=products",), "now": ("index=products-eu",)}
    item = memory_item("r", tool="search", pattern=failure.class_, support=1, agents=2, **change)
    fleet.replica.index.put_item(item)
    return fleet


async def test_a_call_that_is_sure_to_fail_is_held_once_and_one_that_a_tip_led_to_never() -> None:
    async with a_fleet().session("g") as asking:
        held = asking.hold("search", FAILING)
        assert held is not None and held.call == WORKING and held.text.endswith("Send it again to run it as it is.")
        assert asking.hold("search", FAILING) is None
        assert asking.hold("search", WORKING) is None


@for_each("against", 0, 1, 9)
async def test_a_value_that_works_for_as_many_is_not_sure_to_fail(against: int) -> None:
    fleet = a_fleet()
    known = fleet.replica.index.items["r"]
    change: dict[str, Any] = {"was": known.was, "now": known.now, "pattern": known.pattern}
    fleet.replica.index.put_item(memory_item("r", tool="search", support=20, agents=9, against=against, **change))
    async with fleet.session("g") as asking:
        (tip,) = asking.advise("search", FAILING).tips
        assert tip.chance == pytest.approx(20.5 / (21 + against))
        assert (asking.hold("search", FAILING) is not None) == (against < 9)


@for_each("hold, held", ("off", False), ("sure", True), ("always", True))
async def test_the_setting_decides(hold: str, held: bool) -> None:
    async with a_fleet(hold=hold).session("g") as asking:
        assert (asking.hold("search", FAILING) is not None) == held


async def test_a_failed_call_that_never_works_unchanged_is_held_at_its_first_repeat_and_once() -> None:
    fleet, wrong, error = a_fleet(), {"query": "SELECT 1 FROM singers"}, "no such table: singers"
    failure = failure_of("sql", "", "", error)
    known = Pattern(id=failure.class_, level="class", tenant="default", tool="sql", failures=9, again=(99, 0, 9, 0))
    fleet.replica.index.put_pattern(known)
    async with fleet.session("g") as asking:
        assert asking.hold("sql", wrong) is None
        asking.record("sql", wrong, error_text=error)
        assert asking.hold("sql", {"query": "SELECT 2 FROM singers"}) is None, "a new argument"
        held = asking.hold("sql", wrong)
        assert held is not None and "99 of 99" in held.text
        assert asking.hold("sql", wrong) is None
    async with fleet.session("g") as asking:
        asking.record("sql", wrong, error_text=error)
        asking.record("edit", {"file": "a"}, result="saved")
        assert asking.hold("sql", wrong) is None, "a call that worked between may have changed something"


async def test_a_session_whose_calls_all_fail_remembers_the_newest_few_of_them() -> None:
    async with a_fleet().session("g") as asking:
        for number in range(200):
            asking.record("sql", {"query": f"SELECT {number}"}, error_text="no such table: singers")
        assert 0 < len(asking._history.unchanged) <= 32
