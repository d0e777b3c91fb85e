"""The contract of the topics for other languages: what the reference shows conforms, and what is wrong does not."""

import json
import re
from functools import reduce
from operator import getitem
from typing import Any, get_args

import jsonschema_rs
from typer.testing import CliRunner

from benchmarks.cloudevents import to_cloudevent
from fleetlore.cli.app import build_app
from fleetlore.relay.schemas import asyncapi, json_schema
from fleetlore.wire.events import TYPES, Event, Kind
from fleetlore.wire.topics import NAMES
from tests.docs.test_topics import example
from tests.rows import for_each

EVENT = to_cloudevent(Event("session.started", "default", "a", "s", 0, 1.0, {"fleetlore.goal": "find"}))


def fits(topic: str, value: Any) -> bool:
    return jsonschema_rs.is_valid(json_schema(topic), value)


@for_each("topic, name", ("events", "event"), ("patterns", "pattern"), ("items", "item"))
def test_what_the_reference_shows_conforms(topic: str, name: str) -> None:
    jsonschema_rs.validate(json_schema(topic), example(name))


def test_events_are_what_the_emitter_sends() -> None:
    assert fits("events", EVENT) and fits("events", [EVENT, example("event")])
    for name in ("sequence", "time", "agent", "session", "type", "data", "specversion"):
        assert not fits("events", {key: value for key, value in EVENT.items() if key != name}), name
    for change in (
        {"type": "ai.fleetlore.outcome.v1"},
        {"sequence": -1},
        {"session": ""},
        {"data": {"fleetlore.goal": 1}},
    ):
        assert not fits("events", EVENT | change), change
    messages = {each["properties"]["type"]["enum"][0] for each in events().values()}
    assert messages == set(TYPES.values()) == {TYPES[kind] for kind in get_args(Kind)}


def events() -> dict[str, Any]:
    parts = asyncapi()["components"]["schemas"]
    return {name: part for name, part in parts.items() if "specversion" in part.get("properties", {})}


def test_each_reference_in_the_document_leads_somewhere() -> None:
    document = asyncapi()
    assert set(document["channels"]) < NAMES

    found = re.findall(r'"\$ref": "#/([^"]+)"', json.dumps(document))
    assert len(found) > 20
    for each in found:
        assert reduce(getitem, each.split("/"), document)


def test_the_command_prints_them() -> None:
    run = CliRunner().invoke
    assert json.loads(run(build_app(), ["topics", "schema"]).output) == json.loads(json.dumps(asyncapi()))
    assert json.loads(run(build_app(), ["topics", "schema", "items"]).output)["title"] == "items"
    unknown = run(build_app(), ["topics", "schema", "judgments"], env={"COLUMNS": "200"})
    assert unknown.exit_code == 2 and "decisions" in unknown.output
