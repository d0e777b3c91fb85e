"""Make the AsyncAPI document of the topics that agents write and read, and JSON Schemas of their values."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from fleetlore.relay.types import CloudEvent
from fleetlore.wire.events import BATCH_TYPE, EVENT_TYPE, Definitions
from fleetlore.wire.lore import Decision, MemoryItem, Pattern
from fleetlore.wire.topics import PREFIX, TOPICS

__all__ = ["SCHEMAS", "asyncapi", "json_schema"]

_ABOUT = (
    "Topics of one tenant that agents write and read. Workers and trainers have others among themselves; "
    "docs/reference/adapters.md describes the signed adapters."
)
# What the relay would fill in, and a Kafka client does itself.
_OF_EVENTS = {
    "agent": "Of the session; 1 to 256 characters, no control characters.",
    "sequence": "From 0, one more for each event of the session.",
    "time": "RFC 3339 with an offset from UTC.",
}


class _Topic(NamedTuple):
    """What a topic holds; `sends` where an agent writes it."""

    value: Any
    sends: bool = False
    content: str = "application/json"


_EVENTS = _Topic(CloudEvent, True, EVENT_TYPE.decode())
_AGENTS: dict[str, _Topic] = {
    "events": _EVENTS,
    "feedback": _EVENTS,
    "definitions": _Topic(Definitions, True),
    "patterns": _Topic(Pattern),
    "items": _Topic(MemoryItem),
    "decisions": _Topic(Decision),
}
#: Topics whose values have a schema.
SCHEMAS = tuple(_AGENTS)


def json_schema(topic: str) -> dict[str, Any]:
    """Of a value of the topic, JSON Schema 2020-12; of `events` and `feedback` one event, or an array of them."""
    (value,), parts = _components([topic], "#/$defs/{name}")
    about = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": topic}
    return about | value | {"$defs": parts}


def asyncapi() -> dict[str, Any]:
    """The document, AsyncAPI 3.0."""
    values, schemas = _components(list(SCHEMAS), "#/components/schemas/{name}")
    kept = {spec.name: f"{spec.holds}; key: {spec.key}; kept: {spec.kept}" for spec in TOPICS}
    tenants = {"tenant": {"description": "1 to 63 of a-z 0-9 _ -, beginning with a letter or a digit."}}
    channels, operations, messages = {}, {}, {}
    for (name, topic), value in zip(_AGENTS.items(), values, strict=True):
        message = {"name": name, "contentType": topic.content, "payload": value}
        if topic is _EVENTS:
            message["summary"] = f"One event, or up to 64 as an array with the content type {BATCH_TYPE.decode()}"
        messages[name] = message
        channels[name] = {
            "address": f"{PREFIX}.{{tenant}}.{name}",
            "description": kept[name],
            "parameters": tenants,
            "messages": {name: {"$ref": f"#/components/messages/{name}"}},
        }
        action = "send" if topic.sends else "receive"
        operations[f"{action}-{name}"] = {"action": action, "channel": {"$ref": f"#/channels/{name}"}}
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "fleetlore topics", "version": "1", "description": _ABOUT},
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {"messages": messages, "schemas": schemas},
    }


def _components(topics: list[str], ref: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Schemas of the values of the topics, and of their parts by name."""
    values, parts = msgspec.json.schema_components([_AGENTS[each].value for each in topics], ref_template=ref)
    for part in parts.values():
        if "specversion" in part.get("properties", {}):
            part["required"] += _OF_EVENTS
            for name, said in _OF_EVENTS.items():
                part["properties"][name]["description"] = said
    for value in values:
        value.pop("discriminator", None)  # of OpenAPI; elsewhere it means another thing, and each part states its type
    return [
        {"anyOf": [value, {"type": "array", "items": value}]} if _AGENTS[name] is _EVENTS else value
        for name, value in zip(topics, values, strict=True)
    ], parts
