"""Evaluations and records of memory in OpenTelemetry's form are read over HTTP."""

from itertools import pairwise
from typing import Any

import httpx2
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from fleetlore import Fleet
from fleetlore.join.otlp import Traces, receiving_app
from fleetlore.transcripts.spans import Span, session_of
from fleetlore.wire import events
from tests.doubles.recorder import Recorder
from tests.rows import for_each

T, A = "0af7651916cd43dd8448eb211c80319c", "00f067aa0ba902b7"


def spans(*evaluations: tuple[str, dict[str, Any]]) -> list[Span]:
    """An agent's run with one call, and what was made of the run."""
    call = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "sql", "gen_ai.tool.call.result": "1"}
    run = Span("agent", T, A, "", 1.0, 3.0, {"gen_ai.operation.name": "invoke_agent"}, events=evaluations)
    return [Span("execute_tool sql", T, "b" * 16, A, 1.0, 2.0, call), run]


def evaluation(**says: Any) -> tuple[str, dict[str, Any]]:
    names = {"label": "gen_ai.evaluation.score.label", "value": "gen_ai.evaluation.score.value"}
    return "gen_ai.evaluation.result", {
        "gen_ai.evaluation.name": "x",
        **{names[key]: each for key, each in says.items()},
    }


@for_each(
    "evaluations, outcome",
    ([], "unknown"),
    ([evaluation(label="pass")], "success"),
    ([evaluation(label="pass", value=0.0)], "success"),
    ([evaluation(label="Fail", value=1.0)], "failure"),
    ([evaluation(label="pass"), evaluation(label="fail")], "failure"),
    ([evaluation(label="correct"), evaluation(value=0.0)], "success"),
    ([evaluation(value=1.0)], "unknown"),  # of a scale that nobody names: of toxicity 0 is the best
    ([evaluation(value=0.0)], "unknown"),
    ([evaluation(value=1.0, label="relevant")], "unknown"),
)
def test_labels_of_the_run_say_how_it_ended_and_scores_do_not(evaluations: Any, outcome: str) -> None:
    session = session_of(spans(*evaluations))
    assert session is not None and (session.outcome, session.reward) == (outcome, None)


def test_an_evaluation_of_one_call_says_nothing_of_the_run() -> None:
    call, run = spans()
    session = session_of([call._replace(events=[evaluation(label="fail")]), run])
    assert session is not None and session.outcome == "unknown"


def test_memory_of_others_is_a_tool() -> None:
    about = {"gen_ai.operation.name": "search_memory", "gen_ai.memory.query.text": "chairs"}
    worked = Span(
        "search_memory mem0", T, "c" * 16, A, 1.0, 2.0, {**about, "gen_ai.memory.records": '[{"content":"a"}]'}
    )
    failed = worked._replace(id="d" * 16, end=2.5, attributes={**about, "error.type": "TimeoutError"}, failed=True)
    session = session_of([worked, failed, spans()[1]])
    assert session is not None
    outcomes = [data for kind, data in session.events if kind == "outcome"]
    assert [each[events.TOOL] for each in outcomes] == ["search_memory"] * 2
    assert outcomes[0][events.RESULT] == [{"content": "a"}] and events.ERROR_TYPE in outcomes[1]


def exported(*given: Span) -> Any:
    """Return an export with these spans."""
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for span in given:
        made = scope.spans.add(name=span.name, start_time_unix_nano=int(span.start * 1e9))
        made.trace_id, made.span_id = bytes.fromhex(span.trace), bytes.fromhex(span.id)
        made.parent_span_id, made.end_time_unix_nano = bytes.fromhex(span.parent), int(span.end * 1e9)
        made.attributes.extend(
            KeyValue(key=name, value=AnyValue(string_value=value)) for name, value in span.attributes.items()
        )
    return request


async def test_an_evaluation_that_comes_later_is_feedback(fleet: Fleet, recorder: Recorder) -> None:
    """The evaluation is a log's record, as emitters send it today."""
    traces = Traces(fleet, max_spans=2)
    app, form = receiving_app(traces), {"content-type": "application/x-protobuf"}
    logs = ExportLogsServiceRequest()
    for id in (A, "b" * 16):  # of the run, and of the call
        record = logs.resource_logs.add().scope_logs.add().log_records.add(event_name="gen_ai.evaluation.result")
        record.trace_id, record.span_id = bytes.fromhex(T), bytes.fromhex(id)
        label = KeyValue(key="gen_ai.evaluation.score.label", value=AnyValue(string_value="fail"))
        record.attributes.append(label)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://x", headers=form) as client:
        export = exported(*spans()).SerializeToString()
        answers = [(await client.post("/v1/traces", content=export)).status_code for _ in range(2)]
        assert answers == [200, 429], "exporters send it again"
        list(traces.close_silent(0.0))
        assert (await client.post("/v1/logs", content=logs.SerializeToString())).status_code == 200
        assert (await client.post("/v1/traces", content=b"\xff")).status_code == 400
    assert recorder.kinds == ["session.started", "outcome", "session.ended", "feedback"]
    *_, ended, feedback = recorder.events
    assert ended.data[events.OUTCOME] == "unknown" and feedback.data == {events.OUTCOME: "failure"}
    assert feedback.session == ended.session


async def test_evaluations_come_over_http_too(fleet: Fleet, recorder: Recorder) -> None:
    score = {"key": "gen_ai.evaluation.score.value", "value": {"doubleValue": 1.0}}
    label = {"key": "gen_ai.evaluation.score.label", "value": {"stringValue": "pass"}}
    record = {"eventName": "gen_ai.evaluation.result", "traceId": T, "spanId": A, "attributes": [score, label]}
    other = {"eventName": "gen_ai.client.inference.operation.details", "traceId": T, "spanId": A}
    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": [record, other]}]}]}
    app = receiving_app(Traces(fleet))
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://x") as client,
    ):
        form = {"content-type": "application/x-protobuf"}
        await client.post("/v1/traces", content=exported(*spans()).SerializeToString(), headers=form)
        assert (await client.post("/v1/logs", json=logs)).json() == {}
    assert recorder.events[-1].data == {events.OUTCOME: "success"}


@pytest.mark.long
async def test_an_evaluation_after_the_fleet_has_ended_raises_nothing_in_the_agent(unused_address: str) -> None:
    async with Fleet("agent", broker=unused_address) as fleet:
        traces = Traces(fleet)
        for span in spans():
            traces.add(span)
        traces.close(T)
    traces.add(Span("gen_ai.evaluation.result", T, "c" * 16, A, 4.0, 4.0, evaluation(label="pass")[1]))


async def test_traces_are_closed_in_slices(fleet: Fleet, recorder: Recorder) -> None:
    traces = Traces(fleet)
    for number in range(600):
        kind = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search", "gen_ai.tool.call.result": "x"}
        traces.add(Span("search", f"{number // 300:032x}", f"{number:016x}", "", 1.0 + number, 2.0 + number, kind))
    slices = [len(recorder.events) for _ in traces.close_silent(0.0)]
    assert max(after - before for before, after in pairwise([0, *slices])) <= 256
    assert recorder.kinds.count("outcome") == 600
