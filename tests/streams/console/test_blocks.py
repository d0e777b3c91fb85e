"""The six questions, answered from a snapshot."""

from prometheus_client import generate_latest

from fleetlore.adapters.listing import AdapterListing
from fleetlore.testing import FakeClock
from sinks.metrics import Metrics
from streams.console import blocks
from streams.console.sources import Scraper
from tests.streams.console.lore import NOW, family, form, item, snapshot, tool

ALL_DAY = [(ago, 100, 0) for ago in range(12)]


def test_new_failures_come_first_then_rising_ones_and_cured_ones_last() -> None:
    sql = tool("sql", *ALL_DAY)
    rows = [
        family("sql", "Old", (1, 20, 20), (7, 20, 20)),
        family("sql", "Cured", (7, 40, 40)),
        family("sql", "Rising", (1, 60, 60), (7, 5, 5)),
        family("sql", "New", (0, 3, 3), first_seen=NOW - 60),
        family("sql", "Weather", (0, 9, 9), transient=True),
    ]
    found = blocks.failing(snapshot(sql, *rows))
    changes = [f"{each.family.error_class} {each.change}" for each in found]
    assert changes == ["New new", "Rising rising", "Old ", "Cured cured"]
    assert found[0].failures == 3 and found[0].calls == 600 and 0 < found[0].low < 3 / 600 < found[0].high


def test_the_newest_of_many_equally_frequent_failures_is_shown() -> None:
    rows = [
        family("sql", f"New{number}", (0, 1, 1), first_seen=NOW - 60, last_seen=NOW - number) for number in range(9)
    ]
    found = blocks.failing(snapshot(tool("sql", *ALL_DAY), *reversed(rows)))
    assert [each.family.error_class for each in found] == [f"New{number}" for number in range(blocks.ROWS)]


def test_a_failure_is_shown_by_its_commonest_form_and_what_agents_are_told_of_it() -> None:
    of = family("sql", "Missing", (0, 9, 9))
    rare, common = form(of, "rare", failures=1), form(of, "no space left on device", failures=8, sessions=4, agents=2)
    better = item("i", tool="sql", pattern=common.id, was=("into=main",), now=("into=spare",))
    (found,) = blocks.failing(snapshot(tool("sql", *ALL_DAY), of, rare, common, better))
    assert found.example == common
    assert "into=spare" in found.hint and "2 agents in 3 sessions" in found.hint


def test_only_items_first_seen_in_a_day_are_new() -> None:
    today, before = item("today", first_seen=NOW - 60), item("before", first_seen=NOW - 2 * 86_400)
    assert blocks.learned(snapshot(today, before, item("unknown", first_seen=0.0))) == [today]


def test_junk_is_counted_by_its_reason() -> None:
    metrics, scraper = Metrics("worker"), Scraper(["http://a"], FakeClock())
    metrics.junk_items.labels("transient").inc(3)
    scraper.take([generate_latest(metrics.registry).decode()])
    shown = snapshot(figures=scraper.figures)
    assert blocks.refused(shown).junk == (("transient", 3),)


def test_versions_say_who_runs_them_whatever_their_manifest_holds() -> None:
    listing = AdapterListing(
        ({"name": "calls", "version": "a", "ordinal": 1, "created": 5.0, "metrics": {"auroc": 0.9, "odd": "x"}}, {}),
        ({"name": "calls", "version": "a", "channel": "stable"},),
        (
            {"adapter": "calls", "version": "a", "result": "applied", "agent": "x"},
            {"adapter": "calls", "version": "a", "result": "bad_signature", "agent": "y"},
        ),
        ({"what": "a"},),
    )
    shown = snapshot(adapters=listing)
    first, odd = blocks.versions(shown)
    assert first.channels == ("stable", "revoked")
    assert (first.running, first.refused) == (("x",), ("y (bad_signature)",))
    assert first.metrics == (("auroc", 0.9),)
    assert (odd.version, odd.ordinal) == ("", 0)
    assert blocks.refused(shown).adapters == (("bad_signature", 1),)
