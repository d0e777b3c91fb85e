"""Turn a step of a session into texts for the encoder: one for its action, one for its outcome."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

from fleetlore.redact.values import redact_value, weight

MAX_TEXT = 400
_MAX_READ = 16 * 1024
# The standard library's, because orjson raises on integers of more than 64 bits: an agent's arguments may hold any.
_ENCODER = json.JSONEncoder(sort_keys=True, ensure_ascii=False, default=str)
_PUNCTUATION = re.compile(r'[\s{}\[\]",:]+')


def action_text(tool: str, arguments: Any) -> str:
    """The call as the encoder sees it: the tool and its arguments as words, JSON's punctuation left out."""
    if isinstance(arguments, str):
        # A past step is read again before every later one; what is long is not worth its room.
        words = _words_of(arguments) if len(arguments) <= 2 * MAX_TEXT else _words(_parsed(arguments[:_MAX_READ]))
    else:
        words = _words(arguments)
    return f"{tool} {words}"[:MAX_TEXT].strip()


def outcome_text(error_type: str | None, error_message: str | None) -> str:
    """The outcome as the encoder sees it: `ok`, or the error's type and first line."""
    if error_type is None and error_message is None:
        return "ok"
    first_line = next(iter((error_message or "")[:_MAX_READ].strip().splitlines()), "")
    return " ".join(part for part in ("error", error_type, first_line) if part)[:MAX_TEXT]


def _words(arguments: Any) -> str:
    return _PUNCTUATION.sub(" ", _json(arguments)[: 2 * MAX_TEXT]).strip()


@lru_cache(maxsize=2048)
def _words_of(text: str) -> str:
    return _words(_parsed(text))


def _parsed(text: str) -> Any:
    try:
        return json.loads(text) if text[:1] in ("{", "[") else text
    except (ValueError, RecursionError):
        return text


def _json(value: Any) -> str:
    if isinstance(value, str):
        return value
    if type(value) in (dict, list) and weight(value, _MAX_READ) > _MAX_READ:
        value = redact_value(value, 2 * MAX_TEXT)  # what is shared in it would be written again and again
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError):
        return str(value)
