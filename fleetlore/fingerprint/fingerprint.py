"""Identify failure patterns: decide whether two failed calls are the same failure.

Three levels are hashed: family (tool, error class), class (tool, the error's identity), and exact (class and the
arguments' shape). Agent and stream run the same code.
"""

import json
import re
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import orjson

from fleetlore.fingerprint.frames import excerpt
from fleetlore.fingerprint.normal_form import normal_form
from fleetlore.redact.redact import redact
from fleetlore.redact.values import plain_value, redact_value, weight

VERSION = "12"
# The store bounds a shape; arguments may have a thousand keys.
_MAX_SHAPE = 512
# A shape is cut before lists are nested as deep as this.
_MAX_DEPTH = _MAX_SHAPE // len("list[")
_CACHED_CHARACTERS = 2048
# A value is classed by its beginning: the stream may lack its end.
_CLASSED_CHARACTERS = 1024

_COMMAND = re.compile(r"word|path(?:\(\..{0,8}\))?")
# Larger than any event. Shared lists can unfold without bound.
_MAX_WEIGHT = 256 * 1024
_LONGEST = 8192


class Failure(NamedTuple):
    """One failed call, recognised. `transient`: a guess by the words of the error."""

    tool: str
    error_class: str
    template: str
    shape: str
    family: str
    class_: str
    exact: str
    transient: bool


def failure_of(tool: str, arguments: object, error_type: str | None, error_message: str | None) -> Failure:
    """Recognise a failed call. `error_type`: OpenTelemetry's `error.type`."""
    return shaped_failure(tool, argument_shape(arguments), error_type or "", excerpt(error_message or ""))


@lru_cache(maxsize=32_768)
def shaped_failure(tool: str, shape: str, error_type: str, message: str) -> Failure:
    """Do `failure_of` for a known shape, and the `excerpt` of a message."""
    error_class, text, transient, identity = normal_form(error_type, message)
    family = pattern_id("family", tool, error_class)
    class_ = pattern_id("class", tool, identity)
    exact = pattern_id("exact", tool, identity, shape)
    return Failure(tool, error_class, text, shape, family, class_, exact, transient)


def pattern_id(level: str, *parts: str) -> str:
    """Return 32 hex digits. A new `VERSION` gives new ids, so old and new never mix."""
    return blake2b("\x1f".join((VERSION, level, *parts)).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def strategy_id(task: str, goal: str) -> str:
    """Return the id of the item with the solution of a task's goal."""
    return "item" + pattern_id("strategy", task, " ".join(goal.casefold().split()))[:28]


@lru_cache(maxsize=32_768)
def shaped_call_id(tool: str, shape: str) -> str:
    return pattern_id("call", tool, shape)


def call_id(tool: str, arguments: object) -> str:
    """Return the id of a kind of call: the tool and the shape of its arguments."""
    return shaped_call_id(tool, argument_shape(arguments))


@lru_cache(maxsize=4096)
def tool_id(tool: str) -> str:
    return pattern_id("tool", tool)


def arguments_text(arguments: object) -> str:
    """Return arguments as text: all but text becomes JSON with sorted keys."""
    if isinstance(arguments, str):
        return arguments
    if arguments is None:
        return ""
    try:
        if isinstance(arguments, dict | list) and weight(arguments, _MAX_WEIGHT) > _MAX_WEIGHT:
            return json.dumps(plain_value(arguments, _LONGEST), sort_keys=True)
        return orjson.dumps(arguments, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS, default=str).decode()
    except Exception:  # integers of more than 64 bits, lone surrogates, keys without an order, an object that fails
        # This is the JSON that the event will hold, so the stream finds the same id.
        return json.dumps(redact_value(arguments, _LONGEST), sort_keys=True)


def parsed(arguments: str) -> Any:
    """Return arguments as the JSON object or list that they are, or the text."""
    if arguments[:1] in ("{", "["):
        try:
            return orjson.loads(arguments)
        except orjson.JSONDecodeError:
            pass
    return arguments


def object_of(arguments: str) -> dict[str, Any] | None:
    value = parsed(arguments)
    return value if isinstance(value, dict) else None


def argument_shape(arguments: object) -> str:
    """Return sorted keys with a coarse class of each value, never the value itself."""
    text = arguments_text(arguments)
    if len(text) <= _CACHED_CHARACTERS:
        return _shape(text)[:_MAX_SHAPE]
    # The shape also has keys behind what was masked.
    return redact(_shape.__wrapped__(text)[:_MAX_SHAPE])


def is_free_text(shape: str) -> bool:
    """Whether arguments are only text (`print(total)`, `./run.sh`), whose kind says little."""
    return _COMMAND.fullmatch(shape) is not None or all("text" in part for part in shape.split(","))


@lru_cache(maxsize=65_536)
def _shape(text: str) -> str:
    value = parsed(text)
    if isinstance(value, dict):
        return ",".join(f"{key}:{_class_of(value[key])}" for key in sorted(value))
    return _class_of(value) if text else ""


def _class_of(value: object, depth: int = 0) -> str:
    if isinstance(value, str):
        return _class_of_text(value)
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, list):
        inner = _class_of(value[0], depth + 1) if value and depth < _MAX_DEPTH else ""
        return f"list[{inner}]"
    if isinstance(value, dict):
        return "{" + ",".join(sorted(value)) + "}"
    return type(value).__name__


_FIRST_WORD = re.compile(r"[A-Za-z_][\w.-]*")


def _class_of_text(value: str) -> str:
    text = value[:_CLASSED_CHARACTERS].strip()
    if not text:
        return "empty"
    if text.startswith("-") and " " not in text and len(text) <= 32:
        return text.partition("=")[0]  # each flag works or not
    if "://" in text[:16] and " " not in text:
        try:
            return f"url({urlsplit(text).hostname or ''})"
        except ValueError:  # brackets that hold no address, as those of a masked password: https://u:[redacted:…]@host
            return "url()"
    if " " in text or "\n" in text:
        first = _FIRST_WORD.match(text)
        return f"text({first.group(0).lower()[:32]})" if first else "text"
    if "/" in text or "\\" in text:
        name = re.split(r"[/\\]", text)[-1]
        return f"path(.{name.rpartition('.')[2][:8]})" if "." in name.strip(".") else "path"
    return "number" if text.replace(".", "", 1).lstrip("+-").isdigit() else "word"
