"""The relay's own API, over real sockets: what agents send, what they are told, and what is refused."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import jsonschema_rs
import pytest

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore import Fleet
from fleetlore.advice.decide import Draft, write
from fleetlore.errors import ConfigError
from fleetlore.fingerprint.fingerprint import failure_of
from fleetlore.relay.app import openapi, relay_app
from fleetlore.relay.callers import Caller, read_tokens
from fleetlore.wire import events as names
from fleetlore.wire.lore import MemoryItem, Pattern
from tests.build import memory_item, met
from tests.doubles.recorder import Recorder
from tests.fleetlore.relay.conftest import client_of

ERROR = "index products does not exist, it was split into products-eu and products-us"
WRONG = {"index": "products"}


def event(kind: str, session: str = "s1", sequence: int | None = None, **data: Any) -> dict[str, Any]:
    made = {"specversion": "1.0", "type": f"ai.fleetlore.{kind}.v1", "session": session, "data": data}
    return made if sequence is None else made | {"sequence": sequence}


STARTED = event("session.started", **{names.GOAL: "find a chair", names.TASK: "shop"})
FAILED = event("outcome", **{names.TOOL: "search", names.ARGUMENTS: WRONG, names.ERROR_MESSAGE: ERROR})
RIGHT = {"index": "products-eu"}
WORKED = event("outcome", **{names.TOOL: "search", names.ARGUMENTS: RIGHT, names.RESULT: "three chairs"})
ENDED = event("session.ended", **{names.OUTCOME: "success", names.REWARD: 1.0})


def lore(tenant: str = "default") -> tuple[Pattern, MemoryItem]:
    """That the search fails, and what to search instead."""
    pattern = met("search", WRONG, "LookupError", ERROR, tenant=tenant, agents=3)
    change: dict[str, Any] = {"was": ("index=products",), "now": ("index=products-eu",), "support": 3, "agents": 3}
    return pattern, memory_item("better", tenant=tenant, tool="search", **change)


def know(fleet: Fleet) -> None:
    """The fleet knows that the search fails, and what to search instead."""
    pattern, item = lore()
    fleet.replica.index.put_pattern(pattern)
    fleet.replica.index.put_item(item)


def know_way_out(fleet: Fleet, error: str) -> None:
    """The fleet knows what gets past the failure."""
    pattern = failure_of("search", WRONG, "", error).class_
    backed: dict[str, Any] = {"pattern": pattern, "support": 3, "agents": 3}
    fleet.replica.index.put_item(memory_item("r1", tool="search", now=("region=products-eu",), **backed))


async def test_a_session_in_one_batch(http: httpx2.AsyncClient, recorder: Recorder) -> None:
    answer = await http.post("/v1/events", json=[STARTED, FAILED, WORKED, ENDED])
    assert answer.status_code == 202
    assert answer.json() == {"accepted": 4, "repeated": 0, "stored": True, "relay": answer.json()["relay"]}
    assert recorder.kinds == ["session.started", "outcome", "outcome", "session.ended"]
    assert [each.sequence for each in recorder.events] == [0, 1, 2, 3]
    assert {(each.agent, each.session, each.tenant) for each in recorder.events} == {("a1", "s1", "default")}
    assert recorder.error(recorder.outcomes[0]) == ("_OTHER", ERROR) and names.DURATION not in recorder.outcomes[0]
    assert recorder.events[-1].data == {names.OUTCOME: "success", names.REWARD: 1.0}


async def test_each_mode_of_cloudevents_says_the_same(http: httpx2.AsyncClient, recorder: Recorder) -> None:
    attributes = {"specversion": "1.0", "type": "ai.fleetlore.outcome.v1", "sequence": "1", "session": "s%201"}
    binary = {f"ce-{name}": value for name, value in attributes.items()}
    one = FAILED | {"session": "s 1", "sequence": 1}
    for agent, content, headers in (
        ("structured", json.dumps(one), {"content-type": "application/cloudevents+json"}),
        ("batch", json.dumps([one]), {"content-type": "application/cloudevents-batch+json"}),
        ("binary", json.dumps(one["data"]), binary),
    ):
        answer = await http.post("/v1/events", content=content, headers=headers | {"fleetlore-agent": agent})
        assert answer.status_code == 202, answer.text
    assert len(recorder.events) == 3
    assert len({repr(each._replace(agent="")) for each in recorder.events}) == 1


async def test_what_is_sent_again_counts_once(http: httpx2.AsyncClient, recorder: Recorder) -> None:
    numbered = [STARTED | {"sequence": 0}, FAILED | {"sequence": 1}]
    await http.post("/v1/events", json=numbered)
    answer = await http.post("/v1/events", json=[*numbered, WORKED | {"sequence": 2}])
    assert answer.json()["accepted"] == 1 and answer.json()["repeated"] == 2
    assert [each.sequence for each in recorder.events] == [0, 1, 2]


async def test_after_a_restart_the_same_event_has_the_same_id(fleet: Fleet, recorder: Recorder) -> None:
    """What was sent and not answered is sent again, to a relay that knows nothing of it."""
    for _ in range(2):
        async with client_of(relay_app({"default": fleet})) as http:
            await http.post("/v1/events", json=[STARTED | {"sequence": 0}, FAILED | {"sequence": 1}])
            unknown = await http.post("/v1/events", json=WORKED | {"session": "s2"})
            assert unknown.status_code == 409 and "session.started" in unknown.json()["detail"]
    assert [each.id for each in recorder.events[:2]] == [each.id for each in recorder.events[2:]]


async def test_a_full_buffer_takes_nothing_and_says_so(http: httpx2.AsyncClient, recorder: Recorder) -> None:
    await http.post("/v1/events", json=STARTED)
    recorder.full = True
    answer = await http.post("/v1/events", json=[FAILED, WORKED])
    assert answer.status_code == 429 and answer.headers["retry-after"] == "1"
    recorder.full = False
    assert (await http.post("/v1/events", json=[FAILED, WORKED])).json()["accepted"] == 2
    assert [each.sequence for each in recorder.events] == [0, 1, 2] and recorder.dropped == 0


async def test_another_agent_is_warned_in_time(http: httpx2.AsyncClient, fleet: Fleet, recorder: Recorder) -> None:
    know(fleet)
    asked = {"session": "s2", "goal": "find a chair", "task": "shop", "tool": "search", "arguments": WRONG}
    told = (await http.post("/v1/advise", json=asked)).json()
    assert "products-eu" in told["text"] and told["call"] == {"index": "products-eu"} and told["sure"]
    assert told["introduction"].startswith("Lines between <fleet-memory") and not told["held"]
    held = (await http.post("/v1/advise", json=asked | {"hold": True})).json()
    assert held["held"] and "not made" in held["text"]
    again = (await http.post("/v1/advise", json=asked | {"hold": True})).json()
    assert not again["held"], "a call that is sent again is made"
    await http.post("/v1/events", json=[STARTED | {"session": "s2"}, WORKED | {"session": "s2"}])
    assert recorder.kinds == ["session.started", "outcome"], "what was asked is no event"


async def test_what_was_shown_is_in_the_outcome(http: httpx2.AsyncClient, fleet: Fleet, recorder: Recorder) -> None:
    know(fleet)
    await http.post("/v1/events", json=STARTED)
    told = (await http.post("/v1/advise", json={"session": "s1", "tool": "search", "arguments": WRONG})).json()
    quoting = event("message", **{names.ROLE: "assistant", names.CONTENT: told["text"]})
    begun = event("action", **{names.TOOL: "note", names.ARGUMENTS: {"text": told["text"]}})
    await http.post("/v1/events", json=[quoting, begun, FAILED])
    assert recorder.outcomes[0][names.ADVICE] == [each["id"] for each in told["tips"]]
    assert recorder.events[1].data[names.CONTENT] == "[fleet-memory]", "advice that is quoted is no evidence"
    assert recorder.events[2].data[names.ARGUMENTS] == {"text": "[fleet-memory]"}


async def test_the_way_out_follows_a_failure(http: httpx2.AsyncClient, fleet: Fleet) -> None:
    know_way_out(fleet, ERROR)
    await http.post("/v1/events", json=[STARTED, FAILED])
    assert "products-eu" in (await http.post("/v1/advise", json={"session": "s1"})).json()["text"]


async def test_a_brief_speaks_of_the_tools_at_hand(http: httpx2.AsyncClient, fleet: Fleet) -> None:
    index, draft = fleet.replica.index, Draft(text="Ask products-eu.", why="known", start=True, tool="search")
    index.put_hint(write(index, draft, by="ann", now=1.0))
    told = (await http.post("/v1/brief", json={"session": "s3", "tools": ["search"]})).json()
    assert "products-eu" in told["text"]
    assert not (await http.post("/v1/brief", json={"session": "s4", "tools": ["other"]})).json()["text"]


async def test_a_call_may_be_said_to_begin(http: httpx2.AsyncClient, fleet: Fleet, recorder: Recorder) -> None:
    begun = event("action", **{names.TOOL: "search", names.ARGUMENTS: WRONG})
    await http.post("/v1/events", json=[STARTED, begun])
    fleet.clock.advance(2.0)
    await http.post("/v1/events", json=FAILED)
    assert recorder.kinds == ["session.started", "action", "outcome"]
    assert recorder.outcomes[0][names.DURATION] == 2.0


async def test_a_session_is_ended_by_its_address(http: httpx2.AsyncClient, recorder: Recorder) -> None:
    await http.post("/v1/events", json=STARTED)
    ended = await http.post("/v1/sessions/s1/end", json={"outcome": "failure", "reward": 0.0})
    assert ended.status_code == 202
    assert recorder.events[-1].data == {names.OUTCOME: "failure", names.REWARD: 0.0}
    assert recorder.events[-1].sequence == 1
    assert (await http.post("/v1/sessions/s1/end", json={})).status_code == 409
    assert (await http.get("/v1/health")).json()["sessions"] == 0
    for correction in (event("feedback"), event("feedback", **{names.OUTCOME: "success"})):
        assert (await http.post("/v1/events", json=correction)).status_code == 202
    assert recorder.kinds[-2:] == ["feedback"] * 2


async def test_lore_is_listed_and_filtered(http: httpx2.AsyncClient, fleet: Fleet) -> None:
    know(fleet)
    waits = replace(lore()[1], id="waits", proposed=True)
    fleet.replica.index.put_item(waits)
    whole = (await http.get("/v1/lore", params={"level": "exact"})).json()
    assert [each["tool"] for each in whole["patterns"]] == ["search"]
    assert [each["id"] for each in whole["items"]] == ["better"], "a lesson waits for a person"
    fleet.replica.index.revoke("waits", waits.wording, on=False)  # its approval
    assert len((await http.get("/v1/lore")).json()["items"]) == 2
    some = (await http.get("/v1/lore", params={"level": "exact", "show": "patterns", "text": "SPLIT INTO"})).json()
    assert len(some["patterns"]) == 1 and some["items"] == []
    assert (await http.get("/v1/lore", params={"tool": "other", "level": "exact"})).json()["patterns"] == []
    assert "limit" in (await http.get("/v1/lore", params={"limit": 0})).json()["detail"]


async def test_changes_are_streamed(http: httpx2.AsyncClient, fleet: Fleet) -> None:
    async with http.stream("GET", "/v1/stream") as stream, asyncio.timeout(120):
        lines = stream.aiter_lines()

        async def next_event() -> tuple[str, Any]:
            kind = await anext(lines)
            data = await anext(lines)
            assert await anext(lines) == ""
            return kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))

        assert await next_event() == ("ready", {})
        fleet.replica.index.put_item(replace(lore()[1], id="waits", proposed=True))
        know(fleet)
        assert {(await next_event())[0] for _ in range(2)} == {"pattern", "item"}
        fleet.replica.index.forget("better")
        assert await next_event() == ("forgotten", {"id": "better"})


@pytest.mark.parametrize(
    ("content", "reason", "said"),
    [
        (b"{", "not_json", ""),
        (json.dumps(FAILED | {"sequence": "x"}).encode(), "bad_field", "Expected `int`"),
        (json.dumps([STARTED, FAILED | {"data": {}}]).encode(), "missing_field", names.TOOL),
        (json.dumps(FAILED | {"tenant": "other"}).encode(), "foreign_tenant", "other"),
        (json.dumps(STARTED | {"data": {names.PLACE: "x" * 300}}).encode(), "", "place"),
        pytest.param(b"[" * 100_000, "not_json", "", id="too deep"),
    ],
)
async def test_a_bad_event_is_refused_whole(
    http: httpx2.AsyncClient, recorder: Recorder, content: bytes, reason: str, said: str
) -> None:
    answer = await http.post("/v1/events", content=content)
    assert answer.status_code in (400, 403) and answer.headers["content-type"] == "application/problem+json"
    assert answer.json().get("reason", "") == reason and said in answer.json()["detail"]
    assert recorder.events == []


@pytest.mark.parametrize("path", ["/v1/advise", "/v1/brief", "/v1/sessions/s1/end", "/v1/hooks/codex"])
@pytest.mark.parametrize("value", [b'"', b"[" * 100_000], ids=["cut", "too deep"])
async def test_unreadable_bytes_are_the_callers_mistake(http: httpx2.AsyncClient, path: str, value: bytes) -> None:
    answer = await http.post(path, content=b'{"session": %b, "outcome": %b, "session_id": %b}' % (value, value, value))
    assert answer.status_code == 400 and answer.json()["detail"]


async def test_other_mistakes_are_told(http: httpx2.AsyncClient) -> None:
    assert "session" in (await http.post("/v1/advise", json={})).json()["detail"]
    assert (await http.post("/v1/events", content=b" " * (5 << 20))).status_code == 413
    assert (await http.get("/v1/nothing")).json()["status"] == 404
    assert (await http.get("/v1/health", headers={"fleetlore-tenant": "other"})).status_code == 404
    assert (await http.get("/v1/health", headers={"fleetlore-tenant": "A.b"})).status_code == 400
    assert (await http.get("/v1/events")).status_code == 405


async def test_a_token_is_one_agent_of_one_tenant(fleet: Fleet, recorder: Recorder, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("# who\nfirst-token-000001 a1\nsecond-token-00002 a2 shop\n")
    async with client_of(relay_app({"default": fleet}, read_tokens(file))) as http:
        first = {"authorization": "Bearer first-token-000001"}
        assert (await http.post("/v1/events", json=STARTED)).status_code == 401
        assert (await http.post("/v1/events", json=STARTED, headers=first)).status_code == 202
        foreign = await http.post("/v1/events", json=FAILED | {"agent": "a2"}, headers=first)
        assert foreign.status_code == 403 and foreign.json()["reason"] == "foreign_agent"
        assert (await http.get("/v1/health", headers=first | {"fleetlore-agent": "a2"})).status_code == 403
        second = await http.get("/v1/health", headers={"fleetlore-token": "second-token-00002"})
        assert second.status_code == 404 and "shop" in second.json()["detail"]
    assert [each.agent for each in recorder.events] == ["a1"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("short a1\n", "line 1"),
        ("first-token-000001\n", "an agent"),
        ("", "no token"),
        ("a" * 20 + " a1 T.x", "tenant"),
    ],
)
def test_malformed_tokens_are_told(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "tokens"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_tokens(file)
    file.write_text("first-token-000001 a1\n")
    assert set(read_tokens(file).values()) == {Caller("default", "a1", sure=True)}


async def test_the_document_describes_what_is_answered(http: httpx2.AsyncClient, fleet: Fleet) -> None:
    know(fleet)
    document = (await http.get("/v1/openapi.json")).json()
    assert document == json.loads(json.dumps(openapi()))
    answers = {
        "AdviceAnswer": (await http.post("/v1/brief", json={"session": "s", "tools": ["search"]})).json(),
        "LoreAnswer": (await http.get("/v1/lore", params={"level": "exact"})).json(),
        "EventsAnswer": (await http.post("/v1/events", json=STARTED)).json(),
        "HealthAnswer": (await http.get("/v1/health")).json(),
        "Problem": (await http.get("/v1/none")).json(),
        "CloudEvent": STARTED,
    }
    for name, answer in answers.items():
        schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        jsonschema_rs.Draft202012Validator(schema).validate(answer)
    paths = {f"{method} {path}" for path, each in document["paths"].items() for method in each}
    assert len(paths) == 10 and "post /v1/sessions/{id}/end" in paths


async def test_only_operators_use_hints(broker: EmbeddedBroker, make_topics: Any, tmp_path: Path) -> None:
    await make_topics(broker.address, "hints", "patterns", "items", "decisions", "decisions.history", partitions=1)
    file = tmp_path / "tokens"
    file.write_text(f"{'a' * 16} agent hints\n{'o' * 16} ann hints operator\n")
    async with (
        Fleet("relay", broker=broker.address, tenant="hints") as fleet,
        client_of(relay_app({"hints": fleet}, read_tokens(file))) as client,
    ):

        async def post(path: str, token: str, **body: Any) -> tuple[int, Any]:
            answer = await client.post(path, json=body, headers={"fleetlore-token": token * 16})
            return answer.status_code, answer.json()

        hint = {"text": "Use products-eu.", "before": ["search"], "why": "it was split"}
        status, refused = await post("/v1/hints", "a", **hint)
        assert status == 403 and "operator" in refused["detail"]
        status, refused = await post("/v1/hints", "o", **hint | {"text": ""})
        assert status == 400 and "the text has 1 to 400 characters" in refused["detail"]
        assert (await post("/v1/hints", "o", text="x"))[0] == 400
        status, refused = await post("/v1/hints", "o", **hint, tools="search")
        assert status == 400 and "`tools`" in refused["detail"], "agents of all tools would be shown it"
        status, made = await post("/v1/hints", "o", **hint)
        assert status == 200 and made["by"] == made["hint"]["author"] == "ann"
        assert await fleet.replica.caught_up(120)
        asked = {"session": "s", "tool": "search", "arguments": WRONG}
        assert "Use products-eu. (written by ann)" in (await post("/v1/advise", "a", **asked))[1]["text"]
        agent, person = ({"fleetlore-token": each * 16} for each in "ao")
        assert (await client.get("/v1/hints", headers=agent)).status_code == 403, "it lists lessons that wait"
        listed = (await client.get("/v1/hints", headers=person)).json()
        wording = listed["wording"][made["id"]]
        assert listed == {"hints": [made], "proposed": [], "review": {}, "wording": {made["id"]: wording}}
        path = f"/v1/hints/{made['id']}/judge"
        assert (await post(path, "a", judgment="reject", why="no"))[0] == 403
        assert (await post(path, "o", judgment="burn", why="no"))[0] == 400
        assert (await post(path, "o", judgment="reject", why="no", words=wording))[0] == 400
        assert not (await post(path, "o", judgment="approve", why="yes", wording=wording))[1]["on"]
        for read in ({}, {"wording": "other"}):
            status, refused = await post(path, "o", judgment="approve", why="yes", **read)
            assert status == 409 and "Use products-eu." in refused["detail"] and wording in refused["detail"]
        edit = {**hint, "id": made["id"], "wording": wording}
        both = await asyncio.gather(*(post("/v1/hints", "o", **edit | {"text": text}) for text in ("One.", "Two.")))
        assert sorted(status for status, _ in both) == [200, 409], "the second read the words of before"
        assert (await post(path, "o", judgment="reject", why="no"))[1]["on"]
        assert (await post("/v1/hints/gone/judge", "o", judgment="reject", why="no"))[0] == 400
        assert not fleet.replica.index.hints.standing


async def test_without_tokens_nobody_reads_or_writes_hints(http: httpx2.AsyncClient) -> None:
    assert (await http.get("/v1/hints")).status_code == 403
    answer = await http.post("/v1/hints", json={"text": "x", "why": "y", "start": True})
    assert answer.status_code == 403
