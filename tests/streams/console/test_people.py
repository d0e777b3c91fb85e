"""Who may see the page and act on it, and what persons write, approve and read back there."""

import html
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

pytest.importorskip("starlette")
from starlette.requests import Request
from starlette.responses import Response
from starlette.testclient import TestClient

from fleetlore.config import Settings
from fleetlore.errors import ConfigError
from fleetlore.wire.lore import Decision, Hint
from streams.console.pages import Console
from streams.console.requests import People, access
from streams.console.sessions import SeenSessions
from tests.build import call, judgment
from tests.rows import for_each
from tests.streams.console.lore import NOW, Still, family, form, item, snapshot
from tests.streams.console.test_pages import EVIL, LOCAL, OWN, Deciding, client

PUBLIC = "http://fleet.example:7070"
REVOKE = "/decide/revoke?kind=item&id=i1"


def served(people: People, address: str = "10.0.0.7", base: str = PUBLIC, actions: Any = None) -> TestClient:
    source = Still(snapshot(item("i1")))
    actions = actions or Deciding()
    actions.source = source
    app = Console(source, people, actions).app
    return TestClient(app, base_url=base, follow_redirects=False, client=(address, 1))


def people(host: str = "0.0.0.0", **settings: Any) -> People:
    return People.of(Settings(**settings), host, "made-here")


BEHIND = people(console_proxies=("10.0.0.7", "10.1.0.0/16"), console_operators=("ann",))


@for_each("address", "10.0.0.7", "10.1.2.3")
def test_a_trusted_proxy_says_who_acts_and_the_form_does_not(address: str) -> None:
    actions = Deciding()
    pages = served(BEHIND, address, actions=actions)
    page = pages.get("/items/i1", headers={"x-forwarded-user": "ann"}).text
    assert "ann, operator" in page and "Revoke it" in page
    said = {"why": "wrong", "by": "root"}
    done = pages.post(REVOKE, data=said, headers={"x-forwarded-user": "ann", "origin": PUBLIC})
    assert done.status_code == 303 and actions.done == [("revoke", "item", "i1", "ann", "wrong")]


@for_each("name", "José", "王芳", 'O\'Brien "x"')
def test_a_proxy_names_persons_in_utf_8(name: str) -> None:
    behind = people(console_proxies=("10.0.0.7",), console_operators=(name,))
    page = served(behind).get("/items/i1", headers={"x-forwarded-user": name.encode()}).text
    assert f"{name}, operator" in html.unescape(page) and "Revoke it" in page


def test_a_viewer_looks_and_does_not_act() -> None:
    actions = Deciding()
    pages = served(BEHIND, actions=actions)
    bob = {"x-forwarded-user": "bob", "origin": PUBLIC}
    assert "ann, operator" in pages.get("/", headers={"x-forwarded-user": "ann"}).text
    page = pages.get("/items/i1", headers=bob)
    assert page.status_code == 200 and "bob, viewer" in page.text and "Revoke" not in page.text
    assert pages.post(REVOKE, data={"why": "x"}, headers=bob).status_code == 404
    for address in ("/hints/write", "/review"):
        assert pages.post(address, data={"why": "x", "id": "i1"}, headers=bob).status_code == 403
    assert pages.get("/hints/write", headers=bob).status_code == 403 and not actions.done


@for_each("address", "10.0.0.8", "10.2.0.1", "127.0.0.1", "::1", "testclient")
def test_a_name_from_anybody_else_is_not_believed(address: str) -> None:
    named = {"x-forwarded-user": "ann", "x-forwarded-for": "10.0.0.7"}
    assert served(BEHIND, address).get("/", headers=named).status_code == 401
    assert served(BEHIND, address, base=LOCAL).get("/", headers=named).status_code == 401


@for_each("name", "", " ", "a\tb", "x" * 101)
def test_a_proxy_that_names_nobody_lets_nobody_in(name: str) -> None:
    assert served(BEHIND).get("/", headers={"x-forwarded-user": name}).status_code == 401
    two = [("x-forwarded-user", "ann"), ("x-forwarded-user", "bob")]
    assert served(BEHIND).get("/", headers=two).status_code == 401
    assert served(BEHIND).get("/").status_code == 401


def test_a_token_says_who_it_is_of_and_what_that_person_may() -> None:
    known = people(console_token="ann:operator:s3cret-a, bob:viewer:s3cret-b,s3cret-c")
    for token, shown in (("s3cret-a", "ann, operator"), ("s3cret-b", "bob, viewer"), ("s3cret-c", "viewer, viewer")):
        pages = served(known)
        assert pages.get(f"/?token={token}").status_code == 303
        page = pages.get("/items/i1").text
        assert shown in page and ("Revoke it" in page) is (shown == "ann, operator")
    assert served(known).get("/?token=made-here").status_code == 401


async def asked(known: People, method: str, path: str, query: bytes = b"", origin: str | None = None) -> Response:
    headers = [(b"host", b"127.0.0.1"), *([] if origin is None else [(b"origin", origin.encode())])]
    about = {"type": "http", "method": method, "path": path, "query_string": query, "headers": headers}

    async def page(request: Request) -> Response:
        return Response("the page")

    return await access(known)(Request(about), page)


@given(st.text(st.sampled_from("/\\.:[]x%@"), max_size=8))
@example("/evil.example/")
async def test_a_token_in_an_address_leads_to_this_site(path: str) -> None:
    response = await asked(people(console_token="bob:viewer:s3cret-b"), "GET", f"/{path}", b"token=s3cret-b")
    assert response.status_code == 303
    assert not response.headers["location"].replace("\\", "/").startswith("//")


@given(st.text("htp:/[]x.,"))
@example("http://[x")
async def test_only_the_page_itself_acts_whatever_else_an_origin_is(origin: str) -> None:
    local = people("127.0.0.1")
    assert (await asked(local, "POST", "/review", origin=origin)).status_code == 403
    assert (await asked(local, "POST", "/review", origin="http://127.0.0.1")).status_code == 200


def test_beyond_loopback_without_names_the_page_is_read_only() -> None:
    pages = served(people())
    pages.get("/?token=made-here")
    assert pages.get("/items/i1").status_code == 200
    assert pages.post(REVOKE, data={"why": "x"}, headers={"origin": PUBLIC}).status_code == 404


def test_on_loopback_every_user_of_the_machine_acts_unless_a_proxy_or_token_is_set() -> None:
    local = people("127.0.0.1").local
    assert local is not None and local.is_operator and local.name
    for settings in ({"console_proxies": ("127.0.0.1",)}, {"console_token": "ann:operator:s3cret-a"}):
        assert people("127.0.0.1", **settings).local is None
    proxied = served(people("127.0.0.1", console_proxies=("127.0.0.1",)), "127.0.0.1", LOCAL)
    assert proxied.get("/").status_code == 401


@for_each(
    "settings",
    {"console_token": "ann:root:s3cret-a"},
    {"console_token": "ann:operator:x"},
    {"console_token": ":operator:s3cret-a"},
    {"console_proxies": ("fleet.example",)},
    {"console_proxies": ("10.0.0.1/8",)},
)
def test_malformed_settings_are_told_without_the_token(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="FLEETLORE_CONSOLE") as refused:
        people(**settings)
    assert "s3cret" not in str(refused.value)


# --- what persons write ---


DRAFT = {"text": "Join by order_id.", "before": "orders\r\nsql", "days": "2", "why": "I know it"}


def test_a_hint_is_written_listed_changed_and_its_history_shown() -> None:
    pages = client(item("i1", tool="sql", was=("id",), now=("oid",)), actions=Deciding())
    made = pages.post("/hints/write", data=DRAFT, headers=OWN)
    assert made.status_code == 303
    page = html.unescape(pages.get(made.headers["location"]).text)
    for text in ("A hint by Ann", DRAFT["text"], "before a call with orders, sql", "I know it"):
        assert text in page
    listed = pages.get("/hints").text
    assert made.headers["location"] in listed and "Join by order_id." not in pages.get("/hints?q=nothing").text
    id = made.headers["location"].rpartition("/")[2]
    form_ = html.unescape(pages.get(f"/hints/write?id={id}").text)
    assert "orders\nsql" in form_ and 'value="2"' in form_
    changed = pages.post(f"/hints/write?id={id}", data=DRAFT | {"text": EVIL[:-1]}, headers=OWN)
    assert changed.headers["location"] == made.headers["location"]
    assert "<script>alert" not in pages.get("/hints").text + pages.get(f"/hints/{id}").text
    correction = pages.get("/hints/write?id=i1")
    assert "`oid`" in html.unescape(correction.text)
    assert "I know it" in pages.get("/history").text and pages.get("/hints/gone").status_code == 404


@for_each(
    "change, message",
    ({"text": ""}, "the text has 1 to 400 characters"),
    ({"before": " "}, "say when agents are shown it"),
    ({"days": "soon"}, "no number of days"),
    ({"days": "-1"}, "0 to 36,500 days"),
    ({"why": ""}, "the reason has 1 to 500"),
)
def test_a_bad_hint_is_explained_and_the_form_kept(change: dict[str, str], message: str) -> None:
    page = client(actions=Deciding()).post("/hints/write", data=DRAFT | change, headers=OWN)
    assert page.status_code == 400 and message in html.unescape(page.text) and 'role="alert"' in page.text


def test_lessons_are_approved_and_rejected_in_bulk_with_their_evidence() -> None:
    sessions = SeenSessions()
    failed = form(family("sql", "Missing", (0, 9, 9)), "no such column", id="p1")
    worked = judgment(call("sql", "SELECT 1", advice=("hint1",)), ended=NOW - 9)
    steps = [call("sql", "SELECT id", error="no such column") for _ in range(3)]
    met = judgment(*steps, session="s2", ended=NOW - 9)
    for each in (worked, met):
        sessions.take(each.to_json())
    pattern = next(step.pattern for step in met.trajectory.steps)
    waiting = [
        item(f"i{n}", tool="sql", was=("id",), now=(f"oid{n}",), pattern=pattern, proposed=True) for n in range(3)
    ]
    seen = sessions.newest(0, lambda _: False)
    pages = client(failed, *waiting, item("live"), actions=Deciding(), index_sessions=seen)
    page = html.unescape(pages.get("/review").text)
    assert all(f"`oid{n}`" in page for n in range(3)) and "title of live" not in page
    assert '<td class="number">3</td>' in page and "/static/review.js" in page
    assert all(f'value="{each.id} {each.wording}"' in page for each in waiting)
    both = {"id": [f"{each.id} {each.wording}" for each in waiting[:2]], "why": "right", "judgment": "approve"}

    def reviewed(data: dict[str, Any]) -> int:
        return pages.post("/review", data=data, headers=OWN).status_code

    assert reviewed(both) == 303
    assert "`oid0`" not in html.unescape(pages.get("/review").text)
    assert reviewed({"id": "i2 read", "why": "no", "judgment": "reject"}) == 303
    assert "No lesson waits" in pages.get("/review").text
    assert reviewed({"why": "x"}) == reviewed({"id": "gone read", "why": "x", "judgment": "reject"}) == 400


def test_an_approval_is_refused_if_a_lesson_changed_since_the_page_was_read() -> None:
    read = [item(f"i{n}", tool="sql", was=("id",), now=("oid",), proposed=True) for n in range(2)]
    actions = Deciding()
    pages = client(*read, actions=actions)
    assert actions.source is not None
    index = actions.source.now.index
    index.put_item(item("i1", tool="sql", was=("id",), now=("evil",), proposed=True))
    both = {"id": [f"{each.id} {each.wording}" for each in read], "why": "right", "judgment": "approve"}
    refused = pages.post("/review", data=both, headers=OWN)
    assert refused.status_code == 409 and "`evil`" in html.unescape(refused.text)
    assert not any(index.vouched(each) for each in index.items.values()), "none of them is approved"
    assert pages.post("/review", data=both | {"id": ["i0"]}, headers=OWN).status_code == 409, "no wording"


def test_a_lesson_to_approve_is_shown_to_its_last_word() -> None:
    way = item("i1", kind="strategy", content="x" * 900 + "rm -rf", proposed=True)
    assert "rm -rf</a>" in client(way, actions=Deciding()).get("/review").text


def test_an_item_that_was_corrected_can_still_be_revoked_on_its_page() -> None:
    actions = Deciding()
    pages = client(item("i1"), actions=actions)
    assert pages.post("/hints/write?id=i1", data=DRAFT, headers=OWN).status_code == 303
    assert "Revoke it" in pages.get("/items/i1").text
    assert pages.post(REVOKE, data={"why": "wrong"}, headers=OWN).status_code == 303 and len(actions.done) == 1


def test_a_hint_is_judged_on_its_page_in_the_words_that_were_read() -> None:
    actions = Deciding()
    pages = client(actions=actions)
    address = pages.post("/hints/write", data=DRAFT, headers=OWN).headers["location"]

    def judge(wanted: str, value: str) -> int:
        return pages.post("/review", data={"id": value, "judgment": wanted, "why": "x"}, headers=OWN).status_code

    (value,) = re.findall(r'name="id" value="([^"]+)"', pages.get(address).text)
    for wanted, state in (("approve", "shown"), ("expire", "ended"), ("reject", "hidden"), ("approve", "shown")):
        assert judge(wanted, value) == 303
        page = pages.get(address).text
        assert DRAFT["text"] in page and f"<dd>{state}</dd>" in page
    pages.post(f"/hints/write?id={value.split()[0]}", data=DRAFT | {"text": "Be evil."}, headers=OWN)
    assert judge("approve", value) == 409 and judge("burn", value) == 400


def test_a_form_keeps_the_end_of_a_hint_and_what_somebody_else_wrote_meanwhile() -> None:
    actions = Deciding()
    pages = client(actions=actions)
    path = pages.post("/hints/write", data=DRAFT | {"days": "0.25"}, headers=OWN).headers["location"]
    address = path.replace("/hints/", "/hints/write?id=")

    def read() -> dict[str, str]:
        fields = dict(re.findall(r'name="(wording|days)"[^>]*value="([^"]+)"', pages.get(address).text))
        assert float(fields["days"]) == 0.25
        return DRAFT | fields

    ann, bob = read(), read()
    assert pages.post(address, data=ann | {"text": "Ann's words."}, headers=OWN).status_code == 303
    refused = pages.post(address, data=bob | {"text": "Bob's words."}, headers=OWN)
    page = html.unescape(refused.text)
    assert refused.status_code == 409 and "It says now: Ann's words." in page and "Bob's words.</textarea>" in page
    assert pages.post(address, data=read() | {"text": "Bob's words."}, headers=OWN).status_code == 303


def test_a_hint_says_when_a_call_confirmed_it() -> None:
    sessions = SeenSessions()
    sessions.take(judgment(call("sql", "SELECT 1", advice=("hint1",)), ended=NOW - 9).to_json())
    (seen,) = sessions.newest(0, lambda _: False)
    assert seen.worked == ("hint1",) and seen.met == ()


def test_all_decisions_are_listed_newest_first_and_by_words() -> None:
    made = [Decision(kind="item", id=f"i{n}", on=True, by="Ann", why=f"reason {n}", time=NOW - n) for n in range(250)]
    pages = client(history=made)
    first = pages.get("/history").text
    assert first.index("reason 0") < first.index("reason 99") and "reason 100<" not in first and "250 in all" in first
    assert "reason 249" in pages.get("/history?q=reason+249").text
    hint = Hint(text="x", author="Ann", written=1.0, start=True, until=NOW)
    ended = Decision(kind="hint", id="h", on=False, by="Ann", why="", time=NOW, hint=hint)
    approved = Decision(kind="item", id="i", on=False, by="Ann", why="", time=NOW, wording="w")
    text = client(history=[ended, approved]).get("/history").text
    assert "<td>ended</td>" in text and "<td>approved</td>" in text
