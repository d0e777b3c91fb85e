"""Read facts about tools and environments from documents: memory that is given and not learned.

A document is cut into pieces that fit beside other advice: Markdown along headings, text along paragraphs, JSONL one
fact a line. The content decides the id, so loading a document again changes nothing. No outcome touches a fact: its id
is no item's (`models.memory.candidate.is_item`), so nothing merges with it, and it has no age.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import orjson

from fleetlore.errors import ConfigError
from fleetlore.fingerprint.fingerprint import pattern_id
from fleetlore.redact.redact import redact
from fleetlore.wire.lore import MemoryItem

__all__ = ["read_facts"]

_VERSION = "document-1"
_PREFIX = "fact"
MAX_CONTENT = 800  # as much as an agent is shown of an item
_MAX_TITLE = 160
_MAX_DOCUMENT_BYTES = 16 * 1024 * 1024

_HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*#*$")
_FENCE = re.compile(r"\s*(```|~~~)")


class _Piece(NamedTuple):
    """One fact of a document; `tool` and `when` are empty if not given."""

    title: str
    content: str
    tool: str = ""
    when: str = ""


def read_facts(path: Path, tenant: str, tool: str = "", source: str = "") -> list[MemoryItem]:
    """The facts of a document: `.md` and `.markdown`, `.jsonl`, anything else as text; secrets are masked.

    Args:
        tool: default tool of pieces that do not name one.
        source: name of the document; its file name by default.

    Raises:
        ConfigError: it cannot be read, is too large or not UTF-8, or a line of JSONL is no fact.
    """
    try:
        data = path.read_bytes()
        text = data.decode()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is no UTF-8: {error}") from None
    if len(data) > _MAX_DOCUMENT_BYTES:
        raise ConfigError(f"{path} has {len(data)} bytes; a document has at most {_MAX_DOCUMENT_BYTES}")
    name = source or path.name
    match path.suffix.lower():
        case ".md" | ".markdown":
            pieces = _markdown(text, name)
        case ".jsonl":
            pieces = _jsonl(text, path)
        case _:
            pieces = (_Piece(name, content) for content in _packed(_paragraphs(text.splitlines())))
    facts = {fact.id: fact for piece in pieces if (fact := _fact(piece, tenant, tool, name)).content}
    return list(facts.values())


def _fact(piece: _Piece, tenant: str, tool: str, source: str) -> MemoryItem:
    title, content, when = (redact(text).strip() for text in (piece.title, piece.content, piece.when))
    about = piece.tool or tool
    return MemoryItem(
        id=_PREFIX + pattern_id("fact", tenant, about, source, title, content)[:28],
        tenant=tenant,
        kind="fact",
        title=title[:_MAX_TITLE],
        description=f"From {source}.",
        content=content,
        when=when or (f"before a call of {about}" if about else ""),
        tool=about,
        source=source,
        version=_VERSION,
    )


def _markdown(text: str, name: str) -> Iterator[_Piece]:
    """Each section's text under the titles of the sections it lies in."""
    titles: list[str] = []
    lines: list[str] = []
    fence = ""

    def section() -> Iterator[_Piece]:
        title = " › ".join([each for each in titles if each]) or name
        return (_Piece(title, content) for content in _packed(_paragraphs(lines)))

    for line in text.splitlines():
        mark = _FENCE.match(line)
        if mark and (not fence or mark[1] == fence):
            fence = "" if fence else mark[1]
        heading = None if fence else _HEADING.match(line)
        if heading is None:
            lines.append(line)
            continue
        yield from section()
        level = len(heading[1])
        # A level that was left out has no title.
        titles = [*titles[: level - 1], *[""] * (level - 1 - len(titles)), heading[2]]
        lines = []
    yield from section()


def _paragraphs(lines: list[str]) -> Iterator[str]:
    """Paragraphs, each no longer than a fact; code in a fence stays together as far as it fits."""
    paragraph: list[str] = []
    fence = ""
    for line in [*lines, ""]:
        mark = _FENCE.match(line)
        if mark and (not fence or mark[1] == fence):
            fence = "" if fence else mark[1]
        if line.strip() or fence:
            paragraph.append(line.rstrip())
        elif paragraph:
            yield from _cut("\n".join(paragraph))
            paragraph = []
    if paragraph:  # a fence that was never closed
        yield from _cut("\n".join(paragraph))


def _cut(text: str) -> Iterator[str]:
    """Parts of at most `MAX_CONTENT` characters, cut behind a line, a sentence or a word where there is one."""
    while len(text) > MAX_CONTENT:
        place = next(
            (
                at + len(mark)
                for mark in ("\n", ". ", " ")
                if (at := text.rfind(mark, MAX_CONTENT // 2, MAX_CONTENT)) > 0
            ),
            MAX_CONTENT,
        )
        yield text[:place].rstrip()
        text = text[place:].lstrip()
    yield text


def _packed(paragraphs: Iterator[str]) -> Iterator[str]:
    """Short paragraphs joined, as many as fit one fact."""
    packed = ""
    for paragraph in paragraphs:
        both = f"{packed}\n\n{paragraph}" if packed else paragraph
        if len(both) > MAX_CONTENT:
            yield packed
            both = paragraph
        packed = both
    if packed.strip():
        yield packed


def _jsonl(text: str, path: Path) -> Iterator[_Piece]:
    """A JSON object a line: `content`, and where known `title`, `tool`, `when`."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise ConfigError(f"{path}, line {number}: {error}") from None
        if not isinstance(value, dict) or not isinstance(value.get("content"), str) or not value["content"].strip():
            raise ConfigError(f"{path}, line {number}: a fact is an object with a text `content`")
        fields = {name: value.get(name) or "" for name in ("title", "tool", "when")}
        if unfit := [name for name, each in fields.items() if not isinstance(each, str)]:
            raise ConfigError(f"{path}, line {number}: {unfit[0]} must be a text")
        content = value["content"].strip()
        if len(content) > MAX_CONTENT:
            raise ConfigError(f"{path}, line {number}: {len(content)} characters; a fact has at most {MAX_CONTENT}")
        yield _Piece(fields["title"] or content.splitlines()[0], content, fields["tool"], fields["when"])
