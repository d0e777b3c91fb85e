"""The pages over a snapshot, without a browser: what they say, what they refuse, how fast they are."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import pytest

pytest.importorskip("starlette")
from starlette.testclient import TestClient

from fleetlore.adapters.listing import AdapterListing
from fleetlore.errors import BrokerUnavailable
from fleetlore.testing.sessions import call, trajectory
from fleetlore.wire.lore import Pattern
from models.judge.session_state import SessionState
from streams.console.access import is_loopback
from streams.console.pages import Console
from tests.streams.console.lore import NOW, Still, family, form, item, snapshot, tool

LOCAL = "http://127.0.0.1:7070"
EVIL = "<script>alert(1)</script>\u202e"
LISTING = AdapterListing(
    ({"name": "calls", "version": "v2", "parent": "v1", "ordinal": 2}, {"name": "calls", "version": "v1"}), (), ()
)


class Deciding:
    """Actions that are noted, or fail."""

    names: ClassVar = {"revoke": "Revoke it."}

    def __init__(self, error: Exception | None = None) -> None:
        self.done: list[tuple[str, ...]] = []
        self.error = error

    async def decide(self, *what: str) -> None:
        if self.error is not None:
            raise self.error
        self.done.append(what)


def client(
    *entries: Any, token: str | None = None, actions: Any = None, base: str = LOCAL, **fields: Any
) -> TestClient:
    sessions = fields.pop("sessions", None)
    page = Console(Still(snapshot(*entries, **fields), sessions), token, actions)
    return TestClient(page.app, base_url=base, follow_redirects=False)


def test_the_overview_answers_six_questions_without_a_script() -> None:
    of = family("sql", "Missing", (0, 9, 9))
    page = client(tool("sql", (0, 50, 9)), of, form(of, "no such table: cars"), item("one")).get("/")
    assert page.status_code == 200
    questions = (
        "Alive?",
        "What breaks?",
        "What was learned today?",
        "Did it help?",
        "Who runs what?",
        "What was refused?",
    )
    assert all(question in page.text for question in questions)
    assert "no such table: cars" in page.text and "title of one" in page.text


def test_every_row_leads_to_its_page_and_from_there_to_its_sessions() -> None:
    of = family("sql", "Missing", (0, 9, 9))
    failed = form(of, "no such table", id="p1")
    taught = item("i1", pattern="p1", sessions=("s/1 #2",))
    steps = (
        call("sql", "SELECT 1", error="no such table", advice=("i1", "gone")),
        call("sql", "SELECT 2", withheld=("p1",)),
    )
    state = SessionState(trajectory=trajectory(*steps, session="s/1 #2", goal="count cars", reward=1.0))
    pages = client(tool("sql", (0, 50, 9)), of, failed, taught, sessions={"s/1 #2": state})
    assert 'href="/patterns/p1"' in pages.get("/patterns").text
    assert 'href="/items/i1"' in pages.get("/patterns/p1").text
    link = 'href="/sessions/s/1%20%232"'
    assert link in pages.get("/patterns/p1").text and link in pages.get("/items/i1").text
    session = pages.get("/sessions/s/1%20%232").text
    assert "count cars" in session and 'href="/items/i1"' in session and "(forgotten)" in session
    assert "Withheld" in session and "reward 1" in session


@pytest.mark.parametrize("path", ["/patterns/x", "/items/x", "/sessions/x", "/versions/calls/x", "/nothing"])
def test_what_is_not_there_is_said(path: str) -> None:
    page = client().get(path)
    assert page.status_code == 404
    assert path == "/nothing" or "x" in page.text


def test_texts_of_others_are_shown_and_not_run() -> None:
    of = family("sql", "Missing", (0, 9, 9))
    failed = form(of, EVIL, id="p1")
    pages = client(tool("sql", (0, 50, 9)), of, failed, item("i1", title=EVIL, content=EVIL))
    for path in ("/", "/patterns", "/patterns/p1", "/items", "/items/i1"):
        page = pages.get(path)
        assert "<script>alert" not in page.text and "\u202e" not in page.text
        assert "default-src 'none'" in page.headers["content-security-policy"]


def test_a_search_needs_all_its_words_and_pages_are_of_a_hundred() -> None:
    of = family("sql", "Missing", (0, 9, 9))
    pages = client(of, *(form(of, f"no such table {number}", id=f"p{number}") for number in range(250)))
    assert "page 1 of 3" in pages.get("/patterns").text
    assert "250 in all" in pages.get("/patterns?q=TABLE+such&page=9").text
    assert "1 in all" in pages.get("/patterns?q=table+249").text
    assert pages.get("/patterns?page=x").status_code == 200


def test_the_first_page_of_ten_thousand_patterns_comes_within_a_second() -> None:
    of = [family("sql", f"E{number}", (0, 9, 9)) for number in range(1_000)]
    forms = [form(each, f"text {number}", id=f"{each.id}-{number}") for each in of for number in range(9)]
    pages = client(tool("sql", (0, 50, 9)), *of, *forms)
    for path in ("/", "/patterns", "/patterns?q=text+7"):
        start = time.process_time()
        assert pages.get(path).status_code == 200
        assert time.process_time() - start < 1.0


# --- who may see, who may act ---


def test_off_loopback_a_token_is_asked_for_and_kept_in_a_cookie() -> None:
    pages = client(token="secret", base="http://fleet.example:7070")
    assert pages.get("/").status_code == 401
    assert pages.get("/?token=wrong").status_code == 401
    entered = pages.get("/?token=secret")
    assert entered.status_code == 303 and entered.headers["location"] == "/"
    cookie = entered.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie
    assert pages.get("/").status_code == 200
    fresh = client(token="secret", base="http://fleet.example:7070")
    assert fresh.get("/", headers={"authorization": "Bearer secret"}).status_code == 200


def test_a_probe_needs_neither_the_token_nor_the_name() -> None:
    for pages in (client(token="secret"), client(base="http://10.1.1.1:7070")):
        answer = pages.get("/livez")
        assert (answer.status_code, answer.text) == (200, "ok\n")


def test_a_name_that_points_here_from_outside_is_not_served() -> None:
    assert client(base="http://rebound.example").get("/").status_code == 421


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("10.1.1.1", False),
        ("example.org", False),
    ],
)
def test_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) == loopback


def test_an_action_asks_once_and_comes_from_the_page_itself() -> None:
    actions = Deciding()
    pages = client(actions=actions, adapters=LISTING)
    path = "/versions/calls/v2/revoke"
    assert path in pages.get("/versions/calls/v2").text
    assert "Revoke it." in pages.get(path).text and not actions.done
    assert pages.post(path).status_code == 403
    assert pages.post(path, headers={"origin": "http://other.example"}).status_code == 403
    done = pages.post(path, headers={"origin": LOCAL})
    assert done.status_code == 303 and actions.done == [("revoke", "default", "calls", "v2")]
    assert pages.post("/versions/calls/v2/destroy", headers={"origin": LOCAL}).status_code == 404


def test_a_page_that_may_only_be_read_offers_no_action() -> None:
    pages = client(adapters=LISTING)
    assert "revoke" not in pages.get("/versions/calls/v2").text
    assert pages.post("/versions/calls/v2/revoke", headers={"origin": LOCAL}).status_code == 404


def test_an_action_that_fails_says_why() -> None:
    pages = client(actions=Deciding(BrokerUnavailable("no Kafka broker at x:1")), adapters=LISTING)
    page = pages.post("/versions/calls/v2/revoke", headers={"origin": LOCAL})
    assert page.status_code == 503 and "no Kafka broker at x:1" in page.text


def test_lore_that_is_not_all_read_yet_is_said() -> None:
    assert "may not be all" in client(loaded=False).get("/").text
    assert "may not be all" not in client().get("/").text


def test_a_pattern_that_was_seen_at_no_known_time_is_shown() -> None:
    pattern = Pattern(id="p", level="family", tenant="default", tool="t", last_seen=NOW)
    assert client(pattern).get("/patterns/p").status_code == 200
