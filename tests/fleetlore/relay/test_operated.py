"""A relay beside other roles: probes and metrics without a token, and OpenTelemetry's exports on the same port."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from fleetlore import Fleet
from fleetlore.join.otlp import Traces
from fleetlore.limits import refused
from fleetlore.relay.app import relay_app
from fleetlore.relay.callers import Tokens, read_tokens
from tests.doubles.recorder import Recorder


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    file = tmp_path / "tokens"
    file.write_text("first-token-0123456 ops:first\nother-token-0123456 ops:other\n")
    return read_tokens(file)


@contextmanager
def client_of(fleet: Fleet, tokens: Tokens | None) -> Iterator[TestClient]:
    with TestClient(relay_app({"default": fleet}, tokens), base_url="http://127.0.0.1") as client:
        yield client


def export(trace: str = "ab" * 16, agent: str = "shopper") -> bytes:
    """An export of one trace: an agent's span and a call below it that failed."""
    attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": agent}
    call = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
    spans = [
        _span(trace, "01", "", attributes, {}),
        _span(trace, "02", "01" * 8, call, {"code": 2, "message": "index products does not exist"}),
    ]
    return orjson.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})


def _span(trace: str, id: str, parent: str, attributes: dict[str, str], status: dict[str, Any]) -> dict[str, Any]:
    listed = [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]
    times = {"startTimeUnixNano": "1700000000000000000", "endTimeUnixNano": "1700000001000000000"}
    named = {"traceId": trace, "spanId": id * 8, "parentSpanId": parent, "name": "run"}
    return {**named, **times, "attributes": listed, "status": status}


JSON = {"content-type": "application/json"}


def bearer(token: str) -> dict[str, str]:
    return {**JSON, "authorization": f"Bearer {token}"}


def test_callers_with_one_trace_id_have_a_session_each(fleet: Fleet, recorder: Recorder, tokens: Tokens) -> None:
    with client_of(fleet, tokens) as client:
        for path in ("/v1/traces", "/v1/logs"):
            assert client.post(path, content=export(), headers=JSON).status_code == 401
        for token in ("first-token-0123456", "other-token-0123456"):
            packed = bearer(token) | {"content-encoding": "gzip"}
            assert client.post("/v1/traces", content=gzip.compress(export()), headers=packed).status_code == 200
    calls = [event.agent for event in recorder.events if event.kind == "outcome"]
    assert sorted(calls) == ["ops:first", "ops:other"], "of the token's agent, whatever the trace claims"
    assert "index products does not exist" in str(recorder.events)


def test_without_tokens_spans_name_their_agents(fleet: Fleet, recorder: Recorder) -> None:
    with client_of(fleet, None) as client:
        for number, agent in enumerate(("shopper", "buyer")):
            content = export(f"{number:032x}", agent)
            assert client.post("/v1/traces", content=content, headers=JSON).status_code == 200
    assert {event.agent for event in recorder.events} == {"shopper", "buyer"}


@pytest.mark.parametrize("token", ["first-token-0123456", ""])
def test_an_evaluation_after_its_trace_is_the_word_of_the_traced_agent_and_no_review(
    fleet: Fleet, recorder: Recorder, tokens: Tokens, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    fleet.reviews = reviews = Recorder()
    made: list[Traces] = []
    monkeypatch.setattr(Traces, "refuses", lambda traces: made.append(traces))
    late = _span("ab" * 16, "03", "01" * 8, {"gen_ai.evaluation.score.label": "fail"}, {})
    content = orjson.dumps(
        {"resourceSpans": [{"scopeSpans": [{"spans": [{**late, "name": "gen_ai.evaluation.result"}]}]}]}
    )
    headers = bearer(token) if token else JSON
    with client_of(fleet, tokens if token else None) as client:
        client.post("/v1/traces", content=export(), headers=headers)
        made[0].close("ab" * 16)
        assert client.post("/v1/traces", content=content, headers=headers).status_code == 200
    last = recorder.events[-1]
    assert (last.kind, last.agent) == ("feedback", "ops:first" if token else "shopper") and not reviews.events


def test_one_callers_spans_leave_room_for_others(fleet: Fleet, tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetlore.relay.app.MAX_SPANS", 4)
    with client_of(fleet, tokens) as client:
        answers = [
            client.post("/v1/traces", content=export(f"{number:032x}"), headers=bearer(token))
            for number, token in enumerate(["first-token-0123456"] * 2 + ["other-token-0123456"])
        ]
    assert [each.status_code for each in answers] == [200, 429, 200]
    assert int(answers[1].headers["retry-after"]) > 0


def test_probes_and_metrics_need_no_token(fleet: Fleet, tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    with client_of(fleet, tokens) as client:
        assert client.get("/livez").status_code == 200
        assert client.get("/readyz").status_code == 503, "its lore is not here yet"
        monkeypatch.setattr(type(fleet.replica), "loaded", True)
        assert client.get("/readyz").status_code == 200
        refused("foreign_agent", "a test")
        text = client.get("/metrics").text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    prefix = "fleetlore_relay_"
    assert {name.removeprefix(prefix) for name in families} == {
        "sent_events", "dropped_events", "waiting_events", "open_sessions", "loaded_tenants", "refused",
    }  # fmt: skip
    assert families[prefix + "loaded_tenants"].samples[0].value == 1
    by_reason = {each.labels["reason"]: each.value for each in families[prefix + "refused"].samples}
    assert by_reason["foreign_agent"] >= 1
    assert "default" not in text and "ops:" not in text
