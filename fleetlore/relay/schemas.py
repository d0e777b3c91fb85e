"""Define the relay's requests and answers, and describe the topics."""

from inspect import cleandoc
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import fields

from fleetlore.advice.decide import Judgment
from fleetlore.wire import events
from fleetlore.wire.decode import Data
from fleetlore.wire.events import BATCH_TYPE, EVENT_TYPE, MAX_ID_LENGTH, MAX_SEQUENCE, TYPES, Outcome
from fleetlore.wire.lore import Decision, ItemKind, Level, MemoryItem, Pattern
from fleetlore.wire.topics import PREFIX, TOPICS

__all__ = ["SCHEMAS", "asyncapi", "components", "json_schema"]

_ABOUT_TOPICS = (
    "Topics of one tenant that agents write and read. Workers and trainers have others among themselves; "
    "docs/reference/adapters.md describes the signed adapters."
)
# The relay fills them in; a Kafka client must send them.
_OF_EVENTS = {
    "agent": "Of the session; 1 to 256 characters, no control characters.",
    "sequence": "From 0, one more for each event of the session.",
    "time": "RFC 3339 with an offset from UTC.",
}
_DATA = {each.name: each.encode_name for each in fields(Data)} | {
    "call_id": events.CALL_ID, "conversation": events.CONVERSATION, "duration_seconds": events.DURATION,
}  # fmt: skip
Name = Annotated[str, Meta(min_length=1, max_length=MAX_ID_LENGTH, description="No control characters.")]
Sequence = Annotated[
    int,
    Meta(
        ge=0,
        le=MAX_SEQUENCE,
        description="From 0, one more for each event of the session. A numbered event may be sent again: it counts "
        "once. Left out, the relay numbers it, after `session.started` was sent to this relay.",
    ),
]
Time = Annotated[str, Meta(description="RFC 3339 with an offset from UTC; left out, it is now.")]


class Started(msgspec.Struct, kw_only=True, omit_defaults=True, rename=_DATA):
    """The description of a session."""

    goal: str = ""
    task: str = ""
    place: str = ""
    user: Annotated[str, Meta(description="13 hex digits: the first 52 bits of the BLAKE2b-64 of the name.")] = ""
    conversation: str = ""


class Called(msgspec.Struct, kw_only=True, omit_defaults=True, rename=_DATA):
    """A tool call."""

    tool: Name
    arguments: Annotated[Any, Meta(description="An object, or text.")] = None
    call_id: str = ""


class Returned(Called, kw_only=True, omit_defaults=True, rename=_DATA):
    """A finished tool call. A failed one has `error.type` or `error.message`."""

    result: Any = None
    error_type: str | UnsetType = UNSET
    error_message: str | UnsetType = UNSET
    guard: Annotated[str, Meta(description="Name of the rule that it broke.")] = ""
    duration_seconds: float | UnsetType = UNSET
    advice: Annotated[tuple[str, ...], Meta(description="Ids of what was shown; the relay fills it in.")] = ()
    withheld: tuple[str, ...] = ()
    adapter: str = ""


class Said(msgspec.Struct, kw_only=True, rename=_DATA):
    """A message of a person or the model between two calls."""

    role: str
    content: str


class Concluded(msgspec.Struct, kw_only=True, omit_defaults=True, rename=_DATA):
    """How a session ended."""

    outcome: Outcome
    reward: float | UnsetType = UNSET
    guard: str = ""


class _Event(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="type"):
    specversion: Literal["1.0"]
    session: Name
    sequence: Sequence | UnsetType = UNSET
    time: Time | UnsetType = UNSET
    agent: Name | UnsetType = UNSET
    tenant: str | UnsetType = UNSET
    id: str | UnsetType = UNSET
    source: str | UnsetType = UNSET


def _event(kind: events.Kind, name: str, meaning: str, data: type) -> type[msgspec.Struct]:
    about = {"__doc__": meaning, "__module__": __name__}
    return msgspec.defstruct(name, [("data", data)], bases=(_Event,), namespace=about, tag=TYPES[kind], kw_only=True)


# An agent's event as a CloudEvent 1.0. `data` uses OpenTelemetry's names for generative AI.
CloudEvent: Any = (
    _event("session.started", "SessionStarted", "A session began.", Started)
    | _event("action", "ActionEvent", "A tool call is about to run; optional.", Called)
    | _event("outcome", "OutcomeEvent", "A tool call ended.", Returned)
    | _event("message", "MessageEvent", "A message between two calls.", Said)
    | _event("session.ended", "SessionEnded", "A session ended.", Concluded)
    | _event("feedback", "FeedbackEvent", "A later correction of how an agent's session ended.", Concluded)
)


class EventsAnswer(msgspec.Struct):
    """The number of processed events, and of duplicates."""

    accepted: int
    repeated: int
    stored: Annotated[
        bool,
        Meta(description="Whether the broker has all that was sent, or refused it as too large. Else send it again."),
    ]
    relay: Annotated[str, Meta(description="This process. Another one does not know what was taken and not stored.")]


class WaitQuery(msgspec.Struct):
    """Query of operations that record events."""

    wait: Annotated[float, Meta(ge=0, le=30, description="Seconds to wait for the broker to have it.")] = 5.0


class EventsQuery(WaitQuery):
    """Query of `/v1/events`."""

    whole: Annotated[
        bool, Meta(description="Send events on as they are: the sender keeps its sessions, as `Fleet(relay=…)` does.")
    ] = False


class _About(msgspec.Struct, kw_only=True):
    session: Name
    goal: str = ""
    task: str = ""
    place: str = ""


class AdviseRequest(_About, kw_only=True):
    """A planned call. Without a tool it asks about the whole session, as after a failure."""

    tool: str | None = None
    arguments: Any = None
    call_id: str = ""
    hold: Annotated[bool, Meta(description="Whether the call may be held: `FLEETLORE_HOLD` decides.")] = False


class BriefRequest(_About, kw_only=True):
    """A request for advice before a model chooses a call of these tools."""

    tools: tuple[str, ...] = ()


class Shown(msgspec.Struct):
    """One tip."""

    id: str
    source: str
    text: str


class AdviceAnswer(msgspec.Struct):
    """The fleet's advice. `text` is empty without advice."""

    text: Annotated[str, Meta(description="For the model's context, between two fences.")]
    introduction: Annotated[str, Meta(description="How to read it: for the system message, once.")]
    tips: tuple[Shown, ...]
    risk: Annotated[float | None, Meta(description="Chance that the call fails, 0..1.")] = None
    sure: Annotated[bool, Meta(description="Whether the call will surely fail.")] = False
    held: Annotated[bool, Meta(description="Do not make the call: give `text` as its answer.")] = False
    call: Annotated[Any, Meta(description="Arguments with the working names, where they are known.")] = None


class EndRequest(msgspec.Struct, kw_only=True):
    """How a session ended."""

    outcome: Outcome = "unknown"
    reward: float | None = None
    sequence: Sequence | None = None


class LoreQuery(msgspec.Struct, kw_only=True):
    """Query of `/v1/lore`."""

    show: Annotated[Literal["patterns", "items"] | None, Meta(description="Only these. Default: all.")] = None
    tool: Annotated[str | None, Meta(description="Only of this tool.")] = None
    level: Annotated[Level, Meta(description="Of patterns.")] = "class"
    kind: Annotated[ItemKind | None, Meta(description="Of items.")] = None
    text: Annotated[str, Meta(description="Only what contains this text, in any case.")] = ""
    limit: Annotated[int, Meta(ge=1, le=1000, description="Of each, the best backed first.")] = 100


class LoreAnswer(msgspec.Struct):
    """The present lore of the tenant."""

    patterns: tuple[Pattern, ...]
    items: tuple[MemoryItem, ...]


class JudgeRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A person's judgment of a hint or a memory item."""

    judgment: Judgment
    why: Annotated[str, Meta(description="Reason; it is kept with the decision.")]
    wording: Annotated[str, Meta(description="That of `HintsAnswer` for the words that were read: to approve.")] = ""


class HintsAnswer(msgspec.Struct):
    """Hints of persons, and the learned lessons that wait for one."""

    hints: Annotated[tuple[Decision, ...], Meta(description="Those that agents are shown, the newest first.")]
    proposed: tuple[MemoryItem, ...]
    review: Annotated[dict[str, str], Meta(description="Why a hint may no longer hold, by its id.")]
    wording: Annotated[dict[str, str], Meta(description="By id, what an approval of these very words must name.")]


class HealthAnswer(msgspec.Struct):
    """The relay's state for the caller's tenant."""

    lore: Annotated[bool, Meta(description="Whether all lore is here.")]
    sent: Annotated[int, Meta(description="Events that the broker has.")]
    waiting: Annotated[int, Meta(description="Events in the buffer.")]
    dropped: Annotated[int, Meta(description="Events that were given up.")]
    sessions: Annotated[int, Meta(description="Sessions whose state is held.")]
    refused: Annotated[dict[str, int], Meta(description="Refused requests and forgotten state, by reason.")]


class Problem(msgspec.Struct, omit_defaults=True):
    """A problem with a request (RFC 9457)."""

    title: str
    status: int
    detail: str
    reason: Annotated[str, Meta(description="Of a bad event: `missing_field`, `bad_field`, ….")] = ""
    accepted: Annotated[int, Meta(description="Of a batch: how many were taken before. Send all of it again.")] = 0


# Agents send events, and receive all else.
_AGENTS: dict[str, Any] = {
    "events": CloudEvent, "feedback": CloudEvent, "patterns": Pattern, "items": MemoryItem, "decisions": Decision,
}  # fmt: skip
SCHEMAS = tuple(_AGENTS)


def json_schema(topic: str) -> dict[str, Any]:
    """Return the JSON Schema 2020-12 of a topic's value. For `events` and `feedback` it is one event or an array."""
    (value,), parts = _components([topic], "#/$defs/{name}")
    about = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": topic}
    return about | value | {"$defs": parts}


def asyncapi() -> dict[str, Any]:
    values, schemas = _components(list(SCHEMAS), "#/components/schemas/{name}")
    kept = {spec.name: f"{spec.holds}; key: {spec.key}; kept: {spec.kept}" for spec in TOPICS}
    tenants = {"tenant": {"description": "1 to 63 of a-z 0-9 _ -, beginning with a letter or a digit."}}
    channels, operations, messages = {}, {}, {}
    for (name, held), value in zip(_AGENTS.items(), values, strict=True):
        content = EVENT_TYPE.decode() if held is CloudEvent else "application/json"
        message = {"name": name, "contentType": content, "payload": value}
        if held is CloudEvent:
            message["summary"] = f"One event, or up to 64 as an array with the content type {BATCH_TYPE.decode()}"
        messages[name] = message
        channels[name] = {
            "address": f"{PREFIX}.{{tenant}}.{name}",
            "description": kept[name],
            "parameters": tenants,
            "messages": {name: {"$ref": f"#/components/messages/{name}"}},
        }
        action = "send" if held is CloudEvent else "receive"
        operations[f"{action}-{name}"] = {"action": action, "channel": {"$ref": f"#/channels/{name}"}}
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "fleetlore topics", "version": "1", "description": _ABOUT_TOPICS},
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {"messages": messages, "schemas": schemas},
    }


def components(types: list[Any], ref: str) -> tuple[tuple[dict[str, Any], ...], dict[str, Any]]:
    """Return the schemas of types and of their parts. Before Python 3.13 docstrings keep their indentation."""
    values, parts = msgspec.json.schema_components(types, ref_template=ref)
    for part in parts.values():
        if "description" in part:
            part["description"] = cleandoc(part["description"])
    return values, parts


def _components(topics: list[str], ref: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    values, parts = components([_AGENTS[each] for each in topics], ref)
    for part in parts.values():
        if "specversion" in part.get("properties", {}):
            part["required"] += _OF_EVENTS
            for name, said in _OF_EVENTS.items():
                part["properties"][name]["description"] = said
    for value in values:
        # OpenAPI only: elsewhere the name means another thing, and each part states its type
        value.pop("discriminator", None)
    return [
        {"anyOf": [value, {"type": "array", "items": value}]} if _AGENTS[name] is CloudEvent else value
        for name, value in zip(topics, values, strict=True)
    ], parts
