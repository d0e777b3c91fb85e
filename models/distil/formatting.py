"""Format the quotes that items are made of: calls and errors on one line each, cut to a limit, and ids."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import orjson

from fleetlore.wire.trajectory import Step
from models.memory import candidate
from models.memory.quality import named_class

VERSION = "extractive-2"

Calls = tuple[Step, ...]

MAX_GOAL = 160
MAX_CALL = 400
MAX_STEP = 200
MAX_ERROR = 300
MAX_RESULT = 200

# Shortened texts that are cached: goals, errors and calls repeat. At most 2,000 characters each: some ten megabytes.
REMEMBERED = 4096


def item_id(tenant: str, kind: str, *key: str) -> str:
    """Id of an item of this distiller."""
    return candidate.item_id(VERSION, tenant, kind, *key)


def call_text(step: Step, limit: int = MAX_CALL) -> str:
    return f"{step.tool}({line(step.arguments, limit)})"


def said(failed: Step) -> str:
    return failed.error_message or failed.error_type or ""


def error_text(step: Step) -> str:
    """The whole error: its class, where a program named it, and the message."""
    class_, message = named_class(step.error_type), said(step)
    return line(message if class_ in message else f"{class_}: {message}", MAX_ERROR)


@lru_cache(maxsize=REMEMBERED)
def line(text: str, limit: int) -> str:
    """The text on one line, cut at `limit` characters."""
    if len(text) <= limit and "  " not in text and text.isprintable():
        return text.strip()  # the fast path of most texts
    whole = " ".join(text[: 4 * limit].split())
    return whole if len(whole) <= limit else f"{whole[: limit - 1]}…"


def parsed(arguments: str) -> Any:
    """Arguments as a JSON value if they are one; otherwise the text."""
    if arguments[:1] in ("{", "["):
        try:
            return orjson.loads(arguments)
        except orjson.JSONDecodeError:
            pass
    return arguments
