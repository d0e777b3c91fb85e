"""Read logs of Inspect (`.eval`): an archive of a JSON document a sample, whose scores are rewards."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from fleetlore.errors import ModelUnavailable
from fleetlore.transcripts.session import (
    MALFORMED,
    Conversation,
    LoggedSession,
    seconds_of,
    text_of_content,
)
from fleetlore.wire import events as ev

_ZSTANDARD = 93  # a method that this Python's zipfile does not know
# A run that came to its end has the first; one that was stopped has the second alone.
_HEADERS = ("header.json", "_journal/start.json")
_GRADES = {"C": 1.0, "I": 0.0, "P": 0.5}
_ATTACHED = "attachment://"
# What a damaged archive raises: cut, changed, of a kind that this Python cannot read, or encrypted.
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError)


def read(path: Path) -> Iterator[LoggedSession | None]:
    """The samples of a log; None for one that cannot be read.

    Raises:
        ModelUnavailable: it is compressed with Zstandard and the package `zstandard` is not installed.
    """
    try:
        archive = zipfile.ZipFile(path)
    except _DAMAGED:
        yield None
        return
    with archive:
        about = _header(archive)
        for name in archive.namelist():
            if name.startswith("samples/") and name.endswith(".json"):
                try:
                    yield _session(orjson.loads(_member(archive, name)), about)
                except (*MALFORMED, *_DAMAGED):
                    yield None


def _header(archive: zipfile.ZipFile) -> dict[str, Any]:
    for name in _HEADERS:
        with suppress(*MALFORMED, *_DAMAGED):
            return dict(orjson.loads(_member(archive, name))["eval"])
    return {}


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    about = archive.getinfo(name)
    if about.compress_type != _ZSTANDARD:
        return archive.read(name)
    try:
        import zstandard
    except ImportError:
        raise ModelUnavailable("this .eval needs zstandard: pip install zstandard") from None
    about.compress_type, about.CRC = zipfile.ZIP_STORED, None  # type: ignore[assignment]  # as it lies there
    about.file_size = about.compress_size
    try:
        return bytes(zstandard.ZstdDecompressor().decompressobj().decompress(archive.read(about)))
    except zstandard.ZstdError as error:
        raise zipfile.BadZipFile(f"{name}: {error}") from None


def _session(sample: dict[str, Any], about: dict[str, Any]) -> LoggedSession:
    attached = sample.get("attachments") or {}
    given: Any = sample.get("input") or ""
    goal = given if isinstance(given, str) else text_of_content(given[0].get("content"))
    parts = str(about.get("eval_id", "")), str(sample["id"]), str(sample.get("epoch", 1))
    agent, task = (str(about.get(name) or "")[: ev.MAX_ID_LENGTH] for name in ("model", "task"))
    talk = Conversation("inspect", *parts, agent=agent, task=task, goal=goal)
    for number, event in enumerate(sample.get("events") or ()):
        time = seconds_of(event.get("timestamp"))
        if event.get("event") == "tool":
            error = event.get("error")
            talk.call(str(number), str(event["function"]), _whole(event.get("arguments"), attached))
            text = f"{error.get('type', '')}: {error.get('message', '')}" if isinstance(error, dict) else None
            result = text if text is not None else _whole(event.get("result"), attached)
            talk.result(str(number), result, text is not None, time)
        elif event.get("event") == "model":
            choices = (event.get("output") or {}).get("choices") or [{}]
            talk.say("assistant", text_of_content((choices[0].get("message") or {}).get("content")), time)
    talk.session.end(_reward(sample.get("scores") or {}))
    return talk.done()


def _reward(scores: dict[str, Any]) -> float | None:
    value = next(iter(scores.values())).get("value") if scores else None
    return float(value) if isinstance(value, int | float) else _GRADES.get(value) if isinstance(value, str) else None


def _whole(value: Any, attached: dict[str, Any]) -> Any:
    """A value with the texts that the log keeps apart."""
    if isinstance(value, str) and value.startswith(_ATTACHED):
        return attached.get(value.removeprefix(_ATTACHED), value)
    if isinstance(value, dict):
        return {name: _whole(each, attached) for name, each in value.items()}
    return [_whole(each, attached) for each in value] if isinstance(value, list) else value
