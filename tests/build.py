"""Make calls, sessions, judgments, dead letters, patterns and memory items for tests, each in one line."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from fleetlore.advice.situation import Asked, Asker, CallHistory, FailedCall, Known, Situation
from fleetlore.calls.call import MadeCall, text_of
from fleetlore.fingerprint.fingerprint import call_id, failure_of
from fleetlore.fingerprint.names import failure_kind
from fleetlore.wire.dead_letter import RawRecord, dead_letter
from fleetlore.wire.decode import Data, Incoming
from fleetlore.wire.lore import MemoryItem, Pattern
from fleetlore.wire.trajectory import Judgment, Label, Source, Step, Trajectory, Verdict

_PROBABILITIES: dict[Label, float] = {"success": 1.0, "failure": 0.0, "abstained": 0.5}


def call(
    tool: str,
    arguments: str = "{}",
    result: str = "ok",
    error: str | None = None,
    *,
    error_type: str | None = None,
    **fields: Any,
) -> Step:
    """A call that ended, with the ids that the pipeline gives it; it returned nothing where there is an `error`.

    fields: other fields of `Step`.
    """
    made = Step(
        sequence=0,
        role="tool",
        tool=tool,
        arguments=arguments,
        result="" if error else result,
        error_message=error,
        call=call_id(tool, arguments),
    )
    if error:
        failure = failure_of(tool, arguments, error_type, error)
        made = replace(
            made,
            error_type=failure.error_class,
            family=failure.family,
            pattern=failure.class_,
            exact=failure.exact,
            template=failure.template,
            about=failure_kind(failure.error_class, failure.template, error, text_of(arguments)).names,
            transient=failure.transient,
        )
    return replace(made, **fields)


def failed_call(tool: str, arguments: object, error_type: str, error: str) -> FailedCall:
    """A call of an agent that failed, as its session keeps it."""
    made, failure = MadeCall(tool, arguments), failure_of(tool, arguments, error_type, error)
    return FailedCall(made, error, failure, failure_kind(failure.error_class, failure.template, error, made.text))


def situation(tool: str | None = None, arguments: object = None, **fields: Any) -> Situation:
    """The moment before this call. `fields` are those of `Asked`, `Asker`, `Known` and `CallHistory`.

    unchanged: this very call, which failed before.
    """
    call, history = None if tool is None else MadeCall(tool, arguments), CallHistory("")
    if call is not None and "unchanged" in fields:
        history.unchanged[call.tool, call.json] = fields.pop("unchanged")
    for each in vars(history).keys() & fields.keys():
        setattr(history, each, fields.pop(each))
    parts = []
    for part in (Asked, Asker, Known):
        parts.append({each: fields.pop(each) for each in part._fields if each in fields})
    assert not fields, fields
    asked, asker, known = parts
    return Situation(Asked(call, **asked), Asker(**asker), Known(**{"now": 0.0} | known), history)


def incoming(kind: Any, sequence: int = 0, time: float = 0.0, **data: Any) -> Incoming:
    """An event of session `s` as the first stage decodes it. `data` are fields of `Data`."""
    stamp = datetime.fromtimestamp(time, UTC)
    named: dict[str, Any] = {"specversion": "1.0", "type": kind, "agent": "a", "session": "s", "time": stamp}
    return Incoming(**named, sequence=sequence, data=Data(**data))


def trajectory(*steps: Step, **fields: Any) -> Trajectory:
    """A session of these steps, numbered in order, without a `session_end`; `fields` are those of `Trajectory`."""
    made = Trajectory(
        tenant="default",
        session="s",
        agent="a",
        task="",
        goal="g",
        started=0.0,
        ended=1.0,
        ending="unknown",
        steps=tuple(replace(step, sequence=number) for number, step in enumerate(steps)),
    )
    return replace(made, **fields)


def judgment(
    *steps: Step, label: Label = "success", probability: float | None = None, source: Source = "reward", **fields: Any
) -> Judgment:
    """A session with its verdict, which is sure unless a `probability` is given; `fields` are those of `Trajectory`."""
    return Judgment(trajectory=trajectory(*steps, **fields), verdict=verdict(label, probability, source))


def verdict(label: Label, probability: float | None = None, source: Source = "reward") -> Verdict:
    """The probability is 1 unless another one is given."""
    sure = _PROBABILITIES[label] if probability is None else probability
    return Verdict(label=label, probability=sure, source=source, version="1")


def letter(**changes: Any) -> RawRecord:
    """Make a dead letter as it is written. `changes` are arguments of `dead_letter`."""
    values: dict[str, Any] = {"to": "fleetlore.acme.dead-letters", "topic": "fleetlore.acme.events", "partition": 3}
    values |= {"offset": 12, "key": b"k", "value": b"{", "headers": {"content-type": b"text/plain"}, "whole": True}
    values |= {"stage": "sessions", "reason": "not_json", "detail": "unexpected end"} | changes
    value, headers, whole = values.pop("value"), values.pop("headers"), values.pop("whole")
    record = {name: values.pop(name) for name in ("topic", "partition", "offset", "key")}
    return dead_letter(SimpleNamespace(**record, value=value if whole else b"more"), value, headers, **values)


def memory_item(id: str, **fields: Any) -> MemoryItem:
    """Make a recovery that one session backs. `fields` are those of `MemoryItem`."""
    values: dict[str, Any] = {"tenant": "default", "kind": "recovery", "title": id, "support": 1}
    texts = {"description": "description", "content": "content", "when": "when"}
    return MemoryItem(id=id, **(values | texts | fields))


def met(tool: str, arguments: object, error_type: str, error: str, **fields: Any) -> Pattern:
    """Make the pattern of the failure of this very call, which three sessions met. `fields` are those of `Pattern`."""
    failure = failure_of(tool, arguments, error_type, error)
    values: dict[str, Any] = {"tenant": "default", "failures": 3, "calls": 3, "sessions": 3}
    values |= {"error_class": failure.error_class, "template": failure.template, "parent": failure.class_}
    values |= {"id": failure.exact, "call": call_id(tool, arguments)}
    return Pattern(level="exact", tool=tool, **(values | fields))
