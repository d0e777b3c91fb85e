"""Traces become sessions, whoever emits them: in the agent's process and over OTLP."""

import asyncio
import gzip
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import orjson
import pytest
import zstandard
from google.protobuf.json_format import MessageToDict, ParseDict
from openinference.instrumentation import TracerProvider as OpenInferenceProvider
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, Sum
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Status, StatusCode
from pydantic_ai import Agent
from pydantic_ai.capabilities import Instrumentation
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.instrumented import InstrumentationSettings

from fleetlore import Fleet, metrics
from fleetlore.fingerprint.fingerprint import call_id, failure_of, strategy_id
from fleetlore.join.otel import FleetSpanProcessor, _span, show_advice, show_metrics
from fleetlore.join.otlp import MAX_SPANS, Traces, receiving_app
from fleetlore.join.pydantic_ai import FleetLore
from fleetlore.kafka.encode import encode
from fleetlore.transcripts.session import LoggedSession
from fleetlore.transcripts.spans import Span, session_of, spans_of
from fleetlore.wire import events
from fleetlore.wire.lore import Pattern
from tests.doubles.recorder import Recorder
from tests.fleetlore.join.conftest import DENIED, GOAL, read_file
from tests.rows import for_each

WAY = strategy_id("look", GOAL)

PATHS = ("/srv/a", "/etc/shadow")


class Provider(TracerProvider):
    """Knows its processors, so that the provider of another package can have them."""

    def __init__(self) -> None:
        super().__init__()
        self.processors: list[SpanProcessor] = []

    def add_span_processor(self, span_processor: SpanProcessor) -> None:
        self.processors.append(span_processor)
        super().add_span_processor(span_processor)


Emit = Callable[[Provider], None]


def pydantic_ai(provider: Provider) -> None:
    """The real package, with a scripted model."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        # The calls are made one after the other, because an error cancels a call beside it.
        return ModelResponse([ToolCallPart("read_file", {"path": PATHS[len(messages) // 2]})])

    traced = Instrumentation(InstrumentationSettings(tracer_provider=provider))
    agent = Agent(FunctionModel(answer), tools=[read_file], name="reader", capabilities=[traced])
    with pytest.raises(PermissionError):
        asyncio.run(agent.run("look"))


def open_inference_tracer(provider: Provider) -> Any:
    made = OpenInferenceProvider()
    for processor in provider.processors:
        made.add_span_processor(processor)
    return made.get_tracer("test")


def open_inference(provider: Provider) -> None:
    tracer = open_inference_tracer(provider)
    tool = tracer.tool(read_file)

    @tracer.agent
    def run(question: str) -> str:
        tool(PATHS[0])
        return str(tool(PATHS[1]))

    with pytest.raises(PermissionError):
        run("look")


def by_conventions(kind: tuple[str, str], agent: tuple[str, str], names: tuple[str, str, str], goal: str) -> Emit:
    """Emit spans by the conventions of an emitter whose package is not installed."""

    def emit(provider: Provider) -> None:
        tracer = provider.get_tracer("test")
        with tracer.start_as_current_span("agent", attributes={agent[0]: agent[1], goal: "look"}):
            for path in PATHS:
                attributes = {kind[0]: kind[1], names[0]: "read_file", names[1]: orjson.dumps({"path": path}).decode()}
                with tracer.start_as_current_span("read_file", attributes=attributes) as span:
                    try:
                        span.set_attribute(names[2], read_file(path))
                    except PermissionError as error:
                        span.record_exception(error)
                        span.set_status(Status(StatusCode.ERROR, str(error)))

    return emit


semantic_conventions = by_conventions(
    ("gen_ai.operation.name", "execute_tool"),
    ("gen_ai.operation.name", "invoke_agent"),
    ("gen_ai.tool.name", "gen_ai.tool.call.arguments", "gen_ai.tool.call.result"),
    "input.value",
)
open_llmetry = by_conventions(
    ("traceloop.span.kind", "tool"),
    ("traceloop.span.kind", "workflow"),
    ("traceloop.entity.name", "traceloop.entity.input", "traceloop.entity.output"),
    "traceloop.entity.input",
)


def conventional(kind: str, tool: str, agent: str, names: tuple[str, str, str]) -> Emit:
    return by_conventions((kind, tool), (kind, agent), names, names[1])


langfuse_names = ("x", "langfuse.observation.input", "langfuse.observation.output")
vercel_names = ("ai.toolCall.name", "ai.toolCall.args", "ai.toolCall.result")
EMITTERS: dict[str, Emit] = {
    "langfuse": conventional("langfuse.observation.type", "tool", "agent", langfuse_names),
    "mlflow": conventional("mlflow.spanType", '"TOOL"', '"AGENT"', ("x", "mlflow.spanInputs", "mlflow.spanOutputs")),
    "vercel": by_conventions(
        ("ai.operationId", "ai.toolCall"), ("ai.operationId", "ai.generateText"), vercel_names, "ai.prompt"
    ),
    "langsmith": by_conventions(
        ("gen_ai.operation.name", "execute_tool"),
        ("langsmith.span.kind", "chain"),
        ("gen_ai.tool.name", "gen_ai.prompt", "gen_ai.completion"),
        "gen_ai.input.messages",
    ),
    "pydantic-ai 1": by_conventions(
        ("logfire.msg", "running tool: read_file"),
        ("gen_ai.operation.name", "invoke_agent"),
        ("gen_ai.tool.name", "tool_arguments", "tool_response"),
        "input.value",
    ),
    "pydantic-ai": pydantic_ai,
    "openinference": open_inference,
    "semantic conventions": semantic_conventions,
    "openllmetry": open_llmetry,
}


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> Iterator[Provider]:
    made = Provider()
    made.add_span_processor(SimpleSpanProcessor(exporter))
    yield made
    made.shutdown()


def check(outcomes: list[dict[str, Any]]) -> None:
    """Check that a trace tells of one call that worked and of one that failed, as the same pattern."""
    assert [each[events.TOOL] for each in outcomes] == ["read_file"] * 2
    by_path = {each[events.ARGUMENTS]["path"]: each for each in outcomes}
    worked, failed = (by_path[path] for path in PATHS)
    assert events.ERROR_MESSAGE not in worked and worked[events.RESULT] == "text of /srv/a"
    arguments = {"path": PATHS[1]}
    expected = failure_of("read_file", arguments, *DENIED)
    assert failure_of("read_file", arguments, failed[events.ERROR_TYPE], failed[events.ERROR_MESSAGE]) == expected


def told(spans: Any) -> LoggedSession:
    session = session_of(list(spans))
    assert session is not None
    return session


def as_json(spans: tuple[ReadableSpan, ...]) -> bytes:
    """OTLP in JSON: ids in hex, where protobuf's own JSON has base64."""
    export = MessageToDict(encode_spans(spans))
    ids = iter([(s.context, s.parent) for s in spans])
    for resource in export["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                context, parent = next(ids)
                assert context is not None
                span["traceId"], span["spanId"] = f"{context.trace_id:032x}", f"{context.span_id:016x}"
                span["parentSpanId"] = "" if parent is None else f"{parent.span_id:016x}"
    return orjson.dumps(export)


@pytest.mark.parametrize("emitter", EMITTERS)
def test_every_emitter_s_bytes_tell_the_same(emitter: str, provider: Provider, exporter: InMemorySpanExporter) -> None:
    EMITTERS[emitter](provider)
    spans = exporter.get_finished_spans()
    session = told(spans_of(encode_spans(spans).SerializeToString(), "application/x-protobuf"))
    check([data for kind, data in session.events if kind == "outcome"])
    assert session.goal == "look", "the goal"
    assert session.outcome == ("failure" if emitter in ("pydantic-ai", "openinference") else "unknown")
    if len({span.instrumentation_scope for span in spans}) == 1:
        assert told(spans_of(as_json(spans), "application/json")) == session


@pytest.mark.parametrize("emitter", EMITTERS)
def test_in_the_agent_s_process(emitter: str, fleet: Fleet, recorder: Recorder) -> None:
    provider = Provider()
    provider.add_span_processor(FleetSpanProcessor(fleet))
    EMITTERS[emitter](provider)
    provider.shutdown()
    check(recorder.outcomes)
    assert recorder.kinds[0] == "session.started" and recorder.kinds[-1] == "session.ended"
    assert [event.sequence for event in recorder.events] == list(range(len(recorder.events)))


async def test_a_call_without_a_text_of_its_error_has_failed_all_the_same() -> None:
    """MCP's own spans have `error.type` and no text, no arguments and no result."""
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "x", "error.type": "tool_error"}
    session = told([Span("tools/call x", "t", "s", "", 1.0, 2.0, attributes)])
    [(_, data)] = session.events
    assert data[events.ERROR_TYPE] == "_OTHER" and data[events.TOOL] == "x"


TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "x"}
GIVEN = {"gen_ai.tool.call.arguments": '{"q":1}'}


@for_each("attributes, said, error",
    ({"langfuse.observation.level": "ERROR", "langfuse.observation.status_message": "no rule"}, [], "no rule"),
    ({"gen_ai.tool.call.result": '{"isError": true, "content": "no rule"}', "error.type": "tool_error"}, [], "no rule"),
    ({"gen_ai.tool.status": "error"}, [("gen_ai.choice", {"message": '[{"text": "no rule"}]'})], "no rule"),
    ({}, [("gen_ai.choice", {"message": '[{"text": "3 rows"}]'})], None),
)  # fmt: skip
def test_how_a_call_ended_is_read_where_its_emitter_says_it(
    attributes: dict[str, str], said: list[tuple[str, dict[str, str]]], error: str | None
) -> None:
    asked = [] if said == [] else [("gen_ai.tool.message", {"role": "tool", "content": '{"q":1}'})]
    given = attributes if said else attributes | GIVEN
    span = Span("execute_tool x", "t", "s", "", 1.0, 2.0, TOOL | given, "error.type" in attributes, events=asked + said)
    [(_, data)] = told([span]).events
    assert data[events.ARGUMENTS] == {"q": 1} and data.get(events.ERROR_MESSAGE) == error


@for_each("kind", "langgraph.errors.GraphInterrupt", "pydantic_ai.exceptions.ApprovalRequired", "CancelledError")
def test_a_call_that_waits_for_a_person_neither_failed_nor_worked(kind: str) -> None:
    raised = [("exception", {"exception.type": kind, "exception.message": "()"})]
    session = told([Span("x", "t", "s", "", 1.0, 2.0, TOOL | GIVEN, failed=True, events=raised)])
    assert not session.events and session.unanswered == 1


def test_a_call_that_client_and_server_trace_too_is_one_call() -> None:
    result = {"gen_ai.tool.call.result": "3 rows"}
    mcp = {"mcp.method.name": "tools/call", "gen_ai.tool.name": "x"}
    other = TOOL | {"gen_ai.tool.name": "y"} | result
    spans = [
        Span("execute_tool x", "t", "a", "run", 1.0, 9.0, TOOL | GIVEN | result),
        Span("HTTP POST", "t", "b", "a", 2.0, 8.0, {}),
        Span("tools/call x", "t", "c", "b", 2.0, 7.0, mcp | GIVEN | result),
        Span("tools/call x", "t", "d", "c", 3.0, 6.0, mcp | result | {"gen_ai.tool.call.arguments": '{"q": 1}'}),
        Span("execute_tool y", "t", "e", "a", 3.0, 5.0, other),  # a sub-agent's
        Span("execute_tool y", "t", "f", "run", 9.0, 9.5, TOOL | {"gen_ai.tool.name": "y"}),
        Span("tools/call y", "t", "g", "f", 9.1, 9.4, mcp | {"gen_ai.tool.name": "y"} | GIVEN | result),
        Span("execute_tool (merged)", "t", "h", "run", 9.0, 9.9, TOOL | {"gen_ai.tool.name": "(merged tools)"}),
    ]
    loop = [Span("a", "t", "i", "j", 1.0, 2.0, {}), Span("b", "t", "j", "i", 1.0, 2.0, other)]
    calls = [(data[events.TOOL], data[events.ARGUMENTS]) for _, data in told([*spans, *loop]).events]
    assert calls == [("y", None), ("y", None), ("x", {"q": 1}), ("y", {"q": 1})][-len(calls) :] and len(calls) == 4


MCP = {"mcp.method.name": "tools/call", "gen_ai.tool.name": "x"}


@for_each(
    "outer, inner, error",
    ({}, [{"status": "no rule", "failed": True}], "no rule"),
    ({}, [{"attributes": MCP | {"error.type": "a.Timeout"}}], "3 rows"),
    ({}, [{"events": [("exception", {"exception.type": "Gone", "exception.message": "no"})]}], "Gone: no"),
    ({}, [{"status": "again", "failed": True}, {"start": 5.0, "end": 6.0}], None),  # it was tried again
    ({}, [{"end": 4.5}, {"status": "no rule", "failed": True, "parent": "i0"}], "no rule"),  # the server's
    ({"worked": True}, [{"status": "no rule", "failed": True}], None),
    ({"failed": True, "status": "own"}, [{"status": "no rule", "failed": True}], "own"),
    ({}, [{"attributes": MCP | {"error.type": "CancelledError"}}], None),
    ({"attributes": TOOL, "failed": True, "status": "no rule"}, [{"attributes": MCP | GIVEN}], "no rule"),
)
def test_a_failure_that_one_span_of_a_call_alone_tells_is_not_lost(
    outer: dict[str, Any], inner: list[dict[str, Any]], error: str | None
) -> None:
    result = {"gen_ai.tool.call.result": "3 rows"}
    kept = Span("execute_tool x", "t", "o", "", 1.0, 9.0, TOOL | GIVEN | result)._replace(**outer)
    below = [
        Span("tools/call x", "t", f"i{number}", "o", 2.0, 4.0, MCP)._replace(**given)
        for number, given in enumerate(inner)
    ]
    for spans in ([kept, *below], [*below[::-1], kept]):
        [(_, data)] = [each for each in told(spans).events if each[0] == "outcome"]
        assert (error is None) == (events.ERROR_MESSAGE not in data)
        assert error is None or error in data[events.ERROR_MESSAGE]


async def wait(path: str) -> str:
    """Wait."""
    await asyncio.sleep(60)
    return path


async def cancelled_pydantic_ai(provider: Provider) -> None:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([ToolCallPart("wait", {"path": "x"})])

    traced = Instrumentation(InstrumentationSettings(tracer_provider=provider))
    await Agent(FunctionModel(answer), tools=[wait], capabilities=[traced]).run("look")


async def cancelled_open_inference(provider: Provider) -> None:
    tracer = open_inference_tracer(provider)

    @tracer.agent
    async def run(question: str) -> str:
        return str(await tracer.tool(wait)("x"))

    await run("look")


@pytest.mark.parametrize("emit", [cancelled_pydantic_ai, cancelled_open_inference])
async def test_a_cancelled_call_neither_failed_nor_worked(fleet: Fleet, recorder: Recorder, emit: Any) -> None:
    provider = Provider()
    provider.add_span_processor(FleetSpanProcessor(fleet))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await emit(provider)
    provider.shutdown()
    assert not recorder.outcomes
    assert {event.data[events.OUTCOME] for event in recorder.events if event.kind == "session.ended"} <= {"unknown"}


def test_a_call_that_ended_without_a_result_worked_where_its_emitter_says_so() -> None:
    given = {"openinference.span.kind": "TOOL", "tool.name": "x", "input.value": "{}"}
    assert told([Span("x", "t", "s", "", 1.0, 2.0, given, worked=True)]).events[0][0] == "outcome"
    session = told([Span("x", "t", "s", "", 1.0, 2.0, given)])
    assert not session.events and session.unanswered == 1


def test_a_span_that_ends_in_a_forked_process_waits_for_no_lock(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fleet, "is_forked", True)
    monkeypatch.setattr(fleet, "lock", None)  # its parent may have held it
    provider = Provider()
    provider.add_span_processor(FleetSpanProcessor(fleet))
    provider.get_tracer("test").start_span("look").end()
    provider.shutdown()


def test_two_traces_of_a_conversation_are_two_parts_of_it(fleet: Fleet, recorder: Recorder) -> None:
    provider = Provider()
    provider.add_span_processor(FleetSpanProcessor(fleet))
    tracer = provider.get_tracer("test")
    for _ in range(2):
        given = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "x", "gen_ai.conversation.id": "thread-1"}
        with tracer.start_as_current_span("execute_tool x", attributes=given):
            pass
    started = [event for event in recorder.events if event.kind == "session.started"]
    assert [event.data[events.CONVERSATION] for event in started] == ["thread-1"] * 2
    assert len({event.session for event in started}) == 2


def test_a_span_says_what_was_told_in_it(fleet: Fleet, provider: Provider, exporter: InMemorySpanExporter) -> None:
    fleet.replica.index.put_pattern(
        Pattern(id=call_id("sql", "SELECT 1"), level="call", tenant="default", tool="sql", failures=1, calls=4)
    )
    show_advice(fleet, provider)
    tracer = provider.get_tracer("test")
    with fleet.session(GOAL, task="look") as session:
        session.brief(unseen=False)  # outside all spans: nowhere to say it
        with tracer.start_as_current_span("agent"):
            session.brief(unseen=False)
            with tracer.start_as_current_span("call"):
                risk = session.advise("sql", "SELECT 1").risk
            session.brief(unseen=False)
        with tracer.start_as_current_span("unasked"):
            pass
    spans = exporter.get_finished_spans()
    memory = [span for span in spans if span.name == "search_memory fleetlore"]
    inner, agent, unasked = (dict(span.attributes or {}) for span in spans if span not in memory)
    about = {"gen_ai.operation.name": "search_memory", "gen_ai.memory.store.id": "fleetlore"}
    assert [dict(span.attributes or {}) for span in memory] == [{**about, "fleetlore.advice": (WAY,)}] * 2
    assert {span.parent.span_id for span in memory if span.parent} == {spans[-2].context.span_id}
    assert session_of(list(map(_span, spans))) is None, "what it was told is no call"
    assert agent == {"fleetlore.session": session.id, "fleetlore.advice": (WAY,)}
    assert risk and inner == {"fleetlore.session": session.id, "fleetlore.risk": risk}
    assert unasked == {}


def test_a_span_says_what_was_withheld_in_it(fleet: Fleet, provider: Provider, exporter: InMemorySpanExporter) -> None:
    fleet.settings = fleet.settings.with_(holdout_share=1.0)
    show_advice(fleet)
    with provider.get_tracer("test").start_as_current_span("agent"), fleet.session(GOAL, task="look") as session:
        session.brief()
    [span] = exporter.get_finished_spans()
    assert span.attributes == {"fleetlore.session": session.id, "fleetlore.withheld": (WAY,)}


def test_a_framework_s_own_span_says_it(fleet: Fleet, provider: Provider, exporter: InMemorySpanExporter) -> None:
    show_advice(fleet)
    traced = Instrumentation(InstrumentationSettings(tracer_provider=provider))
    model = FunctionModel(lambda messages, info: ModelResponse([TextPart("done")]))
    agent = Agent(model, capabilities=[traced, FleetLore()])
    with fleet.session(GOAL, task="look"):
        asyncio.run(agent.run("look"))
    told = [span.name for span in exporter.get_finished_spans() if (span.attributes or {}).get(events.ADVICE) == (WAY,)]
    assert told and told[0].startswith("invoke_agent"), [span.name for span in exporter.get_finished_spans()]


def test_a_meter_gets_the_figures_of_the_process(fleet: Fleet) -> None:
    reader = InMemoryMetricReader()
    show_metrics(MeterProvider([reader]))
    with fleet.session(GOAL) as session:
        session.advise("sql", "SELECT 1")
    [resource] = reader.get_metrics_data().resource_metrics
    found = {each.name: each.data for each in resource.scope_metrics[0].metrics}
    assert {name: data.data_points[0].value for name, data in found.items() if "seconds" not in name} == {
        f"fleetlore.{name}": value for name, value in metrics().items() if "seconds" not in name
    }
    assert found["fleetlore.advice_total"].data_points[0].value >= 1
    assert {name for name, data in found.items() if isinstance(data, Sum)} == {
        f"fleetlore.{name}" for name in metrics() if name.endswith("_total")
    }


async def post(fleet: Fleet, *bodies: tuple[bytes, dict[str, str]], **options: Any) -> list[httpx2.Response]:
    app = receiving_app(Traces(fleet, **options))
    async with app.router.lifespan_context(app):
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://x") as client:
            return [await client.post("/v1/traces", content=body, headers=headers) for body, headers in bodies]


PROTOBUF = {"content-type": "application/x-protobuf"}


async def test_a_trace_in_pieces_is_one_session(
    fleet: Fleet, recorder: Recorder, provider: Provider, exporter: InMemorySpanExporter
) -> None:
    semantic_conventions(provider)
    spans = exporter.get_finished_spans()
    first = encode_spans(spans[:1]).SerializeToString(), PROTOBUF
    second = gzip.compress(as_json(spans[1:])), {"content-type": "application/json", "content-encoding": "gzip"}
    answers = await post(fleet, first, second)
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[1].json() == {}
    check(recorder.outcomes)
    assert len({event.session for event in recorder.events}) == 1


JSON = {"content-type": "application/json"}
DEEP = 50_000  # Python 3.14 reads 20,000 levels
NESTED = (
    b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"a","spanId":"b","startTimeUnixNano":"$","attributes":'
    b'[{"key":"k","value":' + b'{"arrayValue":{"values":[' * DEEP + b"{}" + b"]}}" * DEEP + b"}]}]}]}]}"
)


def made_export(spans: list[dict[str, Any]], shared: int = 0) -> tuple[bytes, dict[str, str]]:
    resource = {"attributes": [{"key": f"k{n}", "value": {"stringValue": "v"}} for n in range(shared)]}
    return orjson.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]}), JSON


async def test_spans_are_held_up_to_a_number_of_bytes_and_not_of_spans_alone(fleet: Fleet) -> None:
    large = [{"traceId": "a", "spanId": "b", "name": "x" * 400_000}]
    answers = await post(fleet, *[made_export(large)] * 20, max_spans=2_500)
    assert [each.status_code for each in answers] == [200] * 13 + [429] * 7, "5 MB"


async def test_exports_of_all_agents_are_read_one_at_a_time(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes up to .45 GB."""
    running, most = [0], [0]

    def read(*_: object, **__: object) -> Iterator[Span]:
        running[0] += 1
        most[0] = max(most[0], running[0])
        threading.Event().wait(0.01)  # long enough for another to begin
        running[0] -= 1
        return iter(())

    monkeypatch.setattr("fleetlore.join.otlp.spans_of", read)
    await asyncio.gather(*(Traces(fleet).take(b"", "application/json", logs=False) for _ in range(4)))
    assert most == [1]


@pytest.mark.parametrize(
    "part",
    [
        b"\x5a\x00",
        b"\x4a\x06\x0a\x02%s\x12\x00",
        b"\x4a\x08\x0a\x02%s\x12\x02\x2a\x00",
        b"\x4a\x0a\x0a\x02%s\x12\x04\x2a\x02\x0a\x00",
    ],
)
async def test_what_is_held_of_tiny_parts_takes_no_more_than_its_places(fleet: Fleet, part: bytes) -> None:
    """Empty events and attributes of 2 to 12 bytes take a hundred times as many once they are read."""
    names = [bytes((65 + first, 65 + second)) for first in range(50) for second in range(50)]
    parts = b"".join(part % name if b"%s" in part else part for name in names)
    span = b"\x0a\x10" + b"a" * 16 + b"\x12\x08" + b"b" * 8 + parts
    scopes = ExportTraceServiceRequest()
    scopes.resource_spans.add().scope_spans.add().spans.add().ParseFromString(span)
    body = scopes.SerializeToString()
    traces = Traces(fleet, max_spans=1_000)
    tracemalloc.start()
    while not traces.refuses():
        assert not await traces.take(body, "application/x-protobuf", logs=False)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 3 * 1_000 * 2_000


def test_the_attributes_of_a_resource_are_not_copied_for_each_span() -> None:
    body, _ = made_export([{"traceId": "a", "spanId": "b"}] * 10_000, shared=10_000)
    tracemalloc.start()
    spans = list(spans_of(body, "application/json"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(spans) == 10_000 and peak < 30 * len(body)


def test_values_within_values_are_not_copied_at_each_level() -> None:
    value = AnyValue(string_value="v" * 100_000)
    for _ in range(45):
        value = AnyValue(array_value=ArrayValue(values=[value]))
    export = ExportTraceServiceRequest()
    span = export.resource_spans.add().scope_spans.add().spans.add(trace_id=b"a" * 16, span_id=b"b" * 8)
    span.attributes.add(key="k", value=value)
    body = export.SerializeToString()
    tracemalloc.start()
    [read] = spans_of(body, "application/x-protobuf")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(read, Span) and peak < 10 * len(body)


@pytest.mark.parametrize("name", ["traceId", "spanId", "parentSpanId"])
async def test_an_id_of_any_length_is_not_kept(fleet: Fleet, name: str) -> None:
    span = {"traceId": "a", "spanId": "b"} | {name: "f" * 100_000}
    [answer] = await post(fleet, made_export([span, {"traceId": "c", "spanId": "d"}]))
    assert answer.json()["partialSuccess"]["rejectedSpans"] == "1" and len(answer.content) < 1_000


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"{", {"content-type": "application/json"}),
        (b"[]", {"content-type": "application/json"}),
        (b"\xff\xff", PROTOBUF),
        (b"x", {**PROTOBUF, "content-encoding": "gzip"}),
        (gzip.compress(b"{}", mtime=0)[:-9], {**JSON, "content-encoding": "gzip"}),
        (gzip.compress(b"{}" * 9, mtime=0)[:12] + b"x" * 9, {**JSON, "content-encoding": "gzip"}),
        (gzip.compress(b"\x0a\x80\x80\x80\x04" + b"\x12\x00" * 2**22), {**PROTOBUF, "content-encoding": "gzip"}),
        (gzip.compress(b'{"resourceSpans":[' + b"[]," * 2**20 + b"{}]}"), {**JSON, "content-encoding": "gzip"}),
        (made_export([{}] * (MAX_SPANS + 1))[0], JSON),
        (NESTED, JSON),
        (NESTED.replace(b"$", b"1" * 400), JSON),
    ],
)
async def test_other_bytes_are_refused(fleet: Fleet, recorder: Recorder, body: bytes, headers: dict[str, str]) -> None:
    [answer] = await post(fleet, (body, headers))
    assert answer.status_code == 400
    assert not recorder.events


@for_each("form", "application/json", "application/x-protobuf")
def test_a_full_batch_of_a_collector_is_read_and_a_larger_export_is_told_to_be_smaller(form: str) -> None:
    named = [{"key": f"key {number:02}", "value": {"stringValue": "v" * 30}} for number in range(31)]
    ids = {"traceId": "YWFhYWFhYWFhYWFhYWFhYQ==", "spanId": "YWFhYWFhYWE="}
    span = {**ids, "attributes": named}
    body, _ = made_export([span] * 4_096)
    large = b'{"resourceSpans":[' + b"{}," * 1_000_000 + b"{}]}"
    if form == "application/x-protobuf":
        request = ParseDict(orjson.loads(made_export([span])[0]), ExportTraceServiceRequest())
        [scope] = request.resource_spans[0].scope_spans
        scope.spans.extend([scope.spans[0]] * 8_191)
        body, large = request.SerializeToString(), b"\x10\x00" * 2_000_001
    assert len(list(spans_of(body, form))) in (4_096, 8_192) and len(body) < 1 << 24
    with pytest.raises(ValueError, match="smaller batches"):
        list(spans_of(large, form))


@for_each("form", "application/json", "application/x-protobuf")
@for_each("export", {"resourceSpans": [{}] * 40_001}, {"resourceSpans": [{"scopeSpans": [{}] * 40_000}]})
def test_an_export_of_very_many_empty_resources_or_scopes_is_refused_early(form: str, export: dict[str, Any]) -> None:
    """Each takes two bytes and as much time as a small span."""
    body = orjson.dumps(export)
    if form == "application/x-protobuf":
        body = ParseDict(export, ExportTraceServiceRequest()).SerializeToString()
    with pytest.raises(ValueError, match="40000 resources and scopes"):
        list(spans_of(body, form))


SPAN = {
    "traceId": "b" * 32, "spanId": "1" * 16, "name": "execute_tool sql",
    "attributes": [{"key": "gen_ai.operation.name", "value": {"stringValue": "execute_tool"}}],
}  # fmt: skip


@pytest.mark.parametrize(
    "odd",
    [{"spanId": ""}, {"traceId": 7}, {"startTimeUnixNano": "yesterday"}, {"status": "ERROR"}, {"name": None},
     {"attributes": {"a": 1}}, {"attributes": [{"key": "n", "value": {"intValue": "many"}}]}, {"attributes": [None]},
     {"events": "none"}, {"attributes": [{"key": "n", "value": {"arrayValue": 3}}]}],
)  # fmt: skip
async def test_a_malformed_span_costs_only_itself(fleet: Fleet, recorder: Recorder, odd: dict[str, Any]) -> None:
    """An exporter sends nothing again that is refused, so the neighbours are recorded and the rest is counted."""
    around = [{**SPAN, "traceId": trace * 32} for trace in "ac"]
    [answer] = await post(fleet, made_export([around[0], {**SPAN, **odd}, around[1]]))
    assert answer.status_code == 200 and recorder.kinds.count("outcome") >= 2
    told = answer.json().get("partialSuccess")
    if recorder.kinds.count("outcome") == 2:
        assert told["rejectedSpans"] == "1" and told["errorMessage"]


async def test_a_malformed_span_of_protobuf_costs_only_itself(fleet: Fleet, recorder: Recorder) -> None:
    request = ParseDict(orjson.loads(made_export([SPAN])[0]), ExportTraceServiceRequest())
    [scope] = request.resource_spans[0].scope_spans
    scope.spans.add().CopyFrom(scope.spans[0])
    scope.spans[1].name = "no text"
    scope.spans.add(trace_id=bytes(16), name="no id")
    request.resource_spans.add(scope_spans=[scope])
    request.resource_spans[1].scope_spans[0].spans[0].trace_id = b"c" * 16
    body = request.SerializeToString().replace(b"no text", b"no te\xff\xff")
    [answer, shorter] = await post(fleet, (body, PROTOBUF), (body[:-1], PROTOBUF))
    told = ExportTraceServiceResponse.FromString(answer.content).partial_success
    assert (answer.status_code, told.rejected_spans) == (200, 4) and "utf-8" in told.error_message
    assert (shorter.status_code, recorder.kinds.count("outcome")) == (400, 2)


def deflated(body: bytes) -> bytes:
    packing = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packing.compress(body) + packing.flush()


PACKED: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("GZIP", gzip.compress), ("x-gzip", gzip.compress), ("deflate", zlib.compress), ("Deflate", deflated),
    ("zstd", zstandard.compress), ("identity", bytes),
]  # fmt: skip


@pytest.mark.parametrize(("encoding", "pack"), PACKED)
async def test_an_export_is_unpacked_as_it_says(
    fleet: Fleet, recorder: Recorder, encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    packed = pack(made_export([SPAN])[0])
    headers = {**JSON, "content-encoding": encoding}
    answers = await post(fleet, (packed, headers), (packed[:-3], headers))
    assert [each.status_code for each in answers] == [200, 400] and recorder.kinds.count("outcome") == 1


async def test_an_unknown_encoding_or_form_is_named(fleet: Fleet) -> None:
    unpacked, text = await post(
        fleet, (b"x", {**JSON, "content-encoding": "snappy"}), (b"x", {"content-type": "text/plain"})
    )
    assert unpacked.status_code == 415 and "snappy" in unpacked.text
    assert text.status_code == 415 and "application/x-protobuf" in text.text


async def test_nothing_is_as_good_as_a_field_that_is_left_out(fleet: Fleet, recorder: Recorder) -> None:
    odd = {
        "parentSpanId": None,
        "attributes": [*SPAN["attributes"], {"key": "a", "value": {"arrayValue": {"values": None}}}],
    }
    body = orjson.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [SPAN | odd]}]}]})
    [answer] = await post(fleet, (body, {"content-type": "Application/JSON; charset=utf-8"}))
    assert answer.status_code == 200 and recorder.kinds.count("outcome") == 1


@pytest.mark.parametrize(
    ("result", "status", "failed"),
    [
        ('{"error": "no rule"}', 0, True),
        ('{"error": "no rule"}', 1, False),  # its emitter says that the call worked
        ('{"isError": true, "content": "no rule"}', 1, True),
        ('{"rows": 3, "error": null}', 0, False),
    ],
)
async def test_a_result_that_says_it_failed_needs_no_status(
    fleet: Fleet, recorder: Recorder, result: str, status: int, failed: bool
) -> None:
    given = {"key": "gen_ai.tool.call.result", "value": {"stringValue": result}}
    span = {**SPAN, "attributes": [*SPAN["attributes"], given], "status": {"code": status}}
    await post(fleet, made_export([span]))
    assert [events.ERROR_MESSAGE in each for each in recorder.outcomes] == [failed]


@pytest.mark.parametrize("time", [-1, 10**20, 2**63])
async def test_a_time_that_no_clock_shows_is_none(fleet: Fleet, recorder: Recorder, time: int) -> None:
    times = {"startTimeUnixNano": str(time), "endTimeUnixNano": str(time)}
    [answer] = await post(fleet, made_export([SPAN | times | {"status": {"code": 2}}]))
    assert answer.status_code == 200 and "outcome" in recorder.kinds
    assert all(encode(each) for each in recorder.events)


async def test_a_body_is_unpacked_no_further_than_it_may_be_large(fleet: Fleet, recorder: Recorder) -> None:
    bomb = gzip.compress(bytes(1 << 27), 1)  # 128 MiB in half a megabyte
    tracemalloc.start()
    [answer] = await post(fleet, (bomb, {**JSON, "content-encoding": "gzip"}))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert answer.status_code == 413 and most < 100_000_000
    [answer] = await post(fleet, (bytes((16 << 20) + 1), JSON))
    assert answer.status_code == 413
    assert not recorder.events
