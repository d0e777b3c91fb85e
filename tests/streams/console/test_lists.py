"""Every list has pages at 20,000 rows, and tools, changes and tenants can be chosen."""

import html
import re
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("starlette")
from starlette.testclient import TestClient

from fleetlore.adapters.listing import AdapterListing
from fleetlore.wire.dead_letter import read_dead_letter
from fleetlore.wire.lore import Decision, Pattern
from streams.console.pages import Console
from streams.console.requests import Identity, People, Tenants
from streams.console.sessions import SeenSession
from streams.console.sources import Snapshot
from tests.build import letter
from tests.doubles.memory_log import Record
from tests.streams.console.lore import NOW, Still, family, form, item, snapshot, tool
from tests.streams.console.test_pages import LOCAL, Deciding, client

MANY = 20_000


@pytest.fixture(scope="module")
def crowded() -> TestClient:
    entries: list[Any] = []
    for number in range(MANY):
        entries.append(tool(f"tool-{number:06}", (0, 9, 1)))
        pattern = Pattern(id=f"p{number:06}", level="class", tenant="t", tool="sql", template=f"no {number}",
                          failures=1, first_seen=NOW - 60, last_seen=NOW)  # fmt: skip
        entries += [pattern, item(f"i{number:06}")]
    sessions = tuple(
        SeenSession(f"s{number}", f"agent-{number:06}", "", "g", NOW - 9, NOW - 5, "success", 4, 1)
        for number in range(MANY)
    )
    decisions = [Decision(kind="item", id=f"d{n:06}", on=True, by="kim", why="w", time=NOW - n) for n in range(MANY)]
    return client(*entries, index_sessions=sessions, decisions={each.key: each for each in decisions})


LISTS = dict.fromkeys(["/tools", "/patterns", "/items", "/sessions", "/agents", "/decisions"], MANY)
LISTS["/changes"] = 2 * MANY + 3_601


@pytest.mark.long
@pytest.mark.parametrize("path", LISTS)
def test_a_list_of_many_rows_has_pages(crowded: TestClient, path: str) -> None:
    pages = -(-LISTS[path] // 100)
    first, last = crowded.get(path), crowded.get(f"{path}?page={pages}")
    assert first.status_code == last.status_code == 200
    for text in (first.text, last.text):
        assert f"{LISTS[path]:,} in all, page" in text and len(text) < 150_000
    rows = [re.findall(r'<th scope="row">(.*?)</th>', each.text, re.DOTALL) for each in (first, last)]
    assert len(rows[0]) == 100 and 0 < len(rows[1]) <= 100 and rows[0][0] != rows[1][-1]
    assert 'rel="next"' in first.text and 'rel="prev"' in last.text and 'rel="next"' not in last.text


def test_tools_are_listed_by_words_time_and_order() -> None:
    entries = [
        tool("sql", (0, 50, 9), (30, 500, 0)), family("sql", "Missing", (0, 9, 9)),
        tool("bash", (0, 80, 2)), tool("http", (20, 9, 9)),
    ]  # fmt: skip
    pages = client(*entries)

    def listed(query: str) -> list[str]:
        return re.findall(r'<th scope="row"><a href="/patterns\?q=([^"]+)"', pages.get(f"/tools{query}").text)

    assert listed("?since=hour") == ["sql", "bash"]
    assert listed("?since=day&sort=calls") == ["bash", "sql", "http"]
    assert listed("?since=all&sort=name") == ["bash", "http", "sql"]
    assert listed("?since=all&q=SQ") == ["sql"]
    assert listed("?sort=most&since=day") == ["http", "sql", "bash"]
    assert "Missing ×9" in pages.get("/tools").text


def test_what_changed_in_the_last_hour_is_on_one_page() -> None:
    of = family("sql", "Missing", (0, 60, 60), (7, 5, 5))
    made = letter(detail="bad")
    read = read_dead_letter(Record(made.topic, 0, 1, made.key, made.value, tuple(made.headers), 1_000 * (NOW - 40)))
    decision = Decision(kind="item", id="i9", on=True, by="kim", why="it misleads", time=NOW - 30)
    version = {"name": "calls", "version": "v2", "ordinal": 2, "created": NOW - 20}
    pages = client(
        tool("sql", (0, 80, 60), (7, 80, 5)), of,
        form(of, "no such table: cars", first_seen=NOW - 50), form(of, "no such table: old", first_seen=NOW - 9_000),
        item("i1", first_seen=NOW - 10), item("i2", first_seen=NOW - 9_000),
        letters=[read], decisions={decision.key: decision}, adapters=AdapterListing((version,), (), ()),
    )  # fmt: skip
    text = html.unescape(pages.get("/changes").text)
    for shown in ("sql: no such table: cars", "title of i1", "item i9 revoked by kim: it misleads", "not_json: bad"):
        assert shown in text
    assert "title of i2" not in text and "What changed in the last hour?" in text
    assert "rising failure" in text
    assert "title of i2" in pages.get("/changes?since=day").text
    assert "title of i1" not in pages.get("/changes?q=misleads").text


def of_tenant(name: str) -> Snapshot:
    return replace(snapshot(item(f"of-{name}")), tenant=name)


def test_a_browser_switches_the_tenant() -> None:
    names = ("acme", "other")
    apps = {
        name: Console(Still(of_tenant(name)), People(local=Identity("Ann", is_operator=True)), None, names).app
        for name in names
    }
    pages = TestClient(Tenants(apps), base_url=LOCAL, follow_redirects=False)
    assert "title of of-acme" in pages.get("/items").text
    assert 'href="/tenant/other"' in pages.get("/items").text
    assert pages.get("/tenant/other").headers["location"] == "/"
    assert "title of of-other" in pages.get("/items").text
    assert pages.get("/tenant/evil").status_code == 404
    pages.cookies.clear()
    pages.cookies.set("fleetlore_tenant", "evil")
    assert "title of of-acme" in pages.get("/items").text


def test_a_form_of_another_tenants_page_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.console.pages._HEARD_SECONDS", 0.0)
    names, kim = ("acme", "other"), People(local=Identity("Kim", is_operator=True))
    decided = {name: Deciding() for name in names}
    apps = {name: Console(Still(of_tenant(name)), kim, decided[name], names).app for name in names}
    pages = TestClient(Tenants(apps), base_url=LOCAL, follow_redirects=False)
    path = "/decide/revoke?kind=item&id=of-acme"
    tenant = re.findall(r'name="tenant" value="(.*?)"', pages.get(path).text)
    assert tenant == ["acme"]
    sent: dict[str, Any] = {"data": {"why": "wrong", "tenant": tenant[0]}, "headers": {"Origin": LOCAL}}
    pages.cookies.set("fleetlore_tenant", "other")
    refused = pages.post("/decide/revoke?kind=item&id=of-other", **sent)
    assert refused.status_code == 409 and "the form is of tenant" in refused.text
    pages.cookies.set("fleetlore_tenant", "acme")
    assert pages.post(path, **sent).status_code == 303
    assert [each[2] for each in decided["acme"].done] == ["of-acme"] and not decided["other"].done


def test_one_tenant_is_no_choice() -> None:
    assert "/tenant/" not in client().get("/").text
