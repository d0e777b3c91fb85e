"""Make a person's decisions about what agents are shown."""

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from fleetlore.advice.changes import item_tip
from fleetlore.advice.gate import INVISIBLE, Reader, all_of, mark_in, tell
from fleetlore.errors import ConfigError, WordsChanged
from fleetlore.fingerprint.fingerprint import pattern_id
from fleetlore.fingerprint.names import mentioned_names, names_in
from fleetlore.recall.index import LoreIndex, Written
from fleetlore.redact.redact import redact
from fleetlore.wire.events import CONTROL
from fleetlore.wire.lore import MAX_WHY, Decision, Hint, MemoryItem, Pattern
from fleetlore.words import WORD

__all__ = [
    "HINT_PREFIX", "JUDGMENTS", "MAX_TEXT", "Draft", "Judgment", "Reviews", "draft_of", "judged", "proposed",
    "words_of", "write",
]  # fmt: skip

MAX_TEXT, _MAX_NAME, _MAX_WORDS = 400, 256, 8
Judgment = Literal["approve", "reject", "expire"]
JUDGMENTS: tuple[Judgment, ...] = get_args(Judgment)
HINT_PREFIX, _DIGITS = "hint", 28
# A sender's decoder writes the last one for bytes that are no text.
_UNSEEN = re.compile(rf"{INVISIBLE.pattern}|\ufffd")
_OF_NO_NAME = re.compile(rf"{CONTROL.pattern}|[\ud800-\udfff\ufffd]")
_YEAR_10000 = 253_402_300_800.0  # in Unix seconds, the end of `Moment`

_Name = Annotated[str, Meta(max_length=_MAX_NAME)]


class Draft(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A hint as a person writes it. Without a field whose name is mistyped more agents would be shown it."""

    text: Annotated[str, Meta(description=f"What agents are shown, 1 to {MAX_TEXT} characters.")]
    why: Annotated[str, Meta(description="Reason; it is kept with the hint.")]
    start: Annotated[bool, Meta(description="Show it at the start of a session.")] = False
    before: Annotated[
        tuple[_Name, ...],
        Meta(description="Show it before a call that holds all of these words, or `name=value`, or is of this tool."),
    ] = ()
    after: Annotated[
        _Name, Meta(description="Show it after a failure of this class or pattern, or with these words in its error.")
    ] = ""
    tool: Annotated[_Name, Meta(description="Only for this tool.")] = ""
    place: Annotated[_Name, Meta(description="Only at this place.")] = ""
    task: Annotated[_Name, Meta(description="Only for this task.")] = ""
    until: Annotated[float, Meta(ge=0, lt=_YEAR_10000, description="When it ends, in Unix seconds; 0: never.")] = 0.0
    id: Annotated[_Name, Meta(description="Hint to change, or memory item to correct; empty: a new hint.")] = ""
    wording: Annotated[
        str, Meta(description="That of the words that were read; refused if they have changed. Empty: in any words.")
    ] = ""


def write(index: LoreIndex, draft: Draft, *, by: str, now: float) -> Decision:
    """Return the decision that adds or changes a hint, or corrects a memory item.

    Raises WordsChanged: somebody else changed it. Raises ConfigError: the draft is malformed, or names nothing that is
    known.
    """
    present = draft_of(index, draft.id)
    if draft.id and present is None:
        _item(index, draft.id)
    if draft.wording and present is not None and present.wording != draft.wording:
        raise WordsChanged(f"nothing was changed: somebody has changed {draft.id}. It says now: {present.text}")
    id = replaces = present.id if present is not None else ""
    if known := index.hints.decisions.get(id):
        replaces = known.hint.replaces if known.hint is not None else ""
    text = draft.text.replace("\r\n", "\n").replace("\ufe0f", "")  # an emoji's colours
    if found := _UNSEEN.search(text):
        where = f"U+{ord(found[0]):04X} after {text[: found.start()][-20:]!r}"
        raise ConfigError(f"the text has a character that nobody sees, {where}: leave it out")
    if mark := mark_in(text):
        raise ConfigError(f"models could take {mark!r} in the text for a mark of the chat: write it without")
    text, before = _kept("the text", text, MAX_TEXT), tuple(_name("before", each) for each in draft.before)
    scope = {name: _name(name, getattr(draft, name)) for name in ("after", "tool", "place", "task")}
    shown: dict[str, Any] = {"start": draft.start, "before": before, "until": draft.until, **scope}
    # The last editor of the words answers for them.
    hint = Hint(text=text, author=by, written=now, replaces=replaces, **shown)
    if not (hint.start or hint.before or hint.after):
        raise ConfigError("say when agents are shown it: before a call, after a failure, or at the start")
    if len(hint.before) > _MAX_WORDS or "" in hint.before:
        raise ConfigError(f"give 1 to {_MAX_WORDS} words that a call must hold")
    if 0 < hint.until <= now:
        raise ConfigError("it would have ended already: give a later end (until)")
    if hint.until >= _YEAR_10000:
        raise ConfigError("its end (until) is after the year 9999: leave it out, and it never ends")
    said = hint.text, str(hint.start), "\x1e".join(hint.before), *scope.values()
    id = id if known else _id("corrects", replaces) if replaces else _id(*said)
    if not draft.id:
        decisions = index.hints.decisions
        old = next((each for each in decisions.values() if each.hint is not None and _same(each.hint, hint)), None)
        if old is not None and old.on:
            raise ConfigError(
                f"{old.by} rejected these words: {old.why}. `fleetlore hints approve {old.id}` shows them again"
            )
        if old is not None:
            id = old.id
        while old is None and id in decisions:  # edited since
            id = _id(*said, id)
    return Decision(
        kind="hint", id=id, on=False, by=by, why=_kept("the reason", draft.why, MAX_WHY), time=now, hint=hint
    )


def judged(
    index: LoreIndex, judgment: Judgment, id: str, *, by: str, why: str, now: float, wording: str | None
) -> Decision:
    """Return a person's judgment of a hint or a memory item.

    `approve` shows it (an item in these very words) and answers a request for review. `reject` hides it. `expire` ends
    a hint. A judgment of a corrected item is one of the correction. `wording`: of the words that the person read, or
    None to show the decision's words before it is published. Raises WordsChanged: an approval is of other words.
    Raises ConfigError: the id is unknown, or a memory item is to expire.
    """
    why, id = _kept("the reason", why, MAX_WHY), index.hints.replaced.get(id, id)
    if (known := index.hints.decisions.get(id)) is not None and (hint := known.hint) is not None:
        if judgment == "approve":
            _check_read(id, wording, hint.wording, hint.text)
            hint = replace(hint, until=0.0) if 0 < hint.until <= now else hint
        ended = replace(hint, until=now) if judgment == "expire" else hint
        return Decision(kind="hint", id=id, on=judgment == "reject", by=by, why=why, time=now, hint=ended)
    item = _item(index, id)
    if judgment == "expire":
        raise ConfigError(f"{id} was learned by the fleet and has no end: reject it")
    approved = index.approved.get(id, "")
    if not (on := judgment == "reject"):
        _check_read(id, wording, approved := item.wording, words_of(item))
        if tell(item_tip(item, "way"), Reader(), vouched=True) is None:
            raise ConfigError(f"agents cannot be shown {id}, as brackets in its call could open a mark: write a hint")
    return Decision(kind="item", id=id, on=on, by=by, why=why, time=now, wording=approved)


def draft_of(index: LoreIndex, id: str) -> Draft | None:
    id = index.hints.replaced.get(id, id)
    if (known := index.hints.decisions.get(id)) is not None and known.hint is not None:
        given = {name: getattr(known.hint, name) for name in Draft.__struct_fields__ if hasattr(known.hint, name)}
        return Draft(**given, why=known.why, id=id)
    if (item := index.known_items.get(id)) is None:
        return None
    made = Draft(text=item.content[:MAX_TEXT], why="", id=id, wording=item.wording)
    if item.kind == "strategy":
        return replace(made, start=True, task=item.task)
    before, after = item.was[:_MAX_WORDS], item.pattern or ""
    return replace(made, text=words_of(item), before=before, after=after, tool=item.tool)


def words_of(item: MemoryItem) -> str:
    return all_of(item_tip(item, "got past").parts)


def proposed(index: LoreIndex) -> list[MemoryItem]:
    """Return the items that wait for a person, the best backed first."""
    found = [each for each in index.items.values() if index.vouched(each) is False]
    return sorted(found, key=lambda each: (-each.standing(), each.id))


class Reviews:
    """Tells which hints and items need review. `confirmed`: Unix seconds when a call with a hint worked last."""

    def __init__(self, index: LoreIndex, confirmed: Mapping[str, float] | None = None) -> None:
        self._items = index.known_items
        self._confirmed = confirmed or {}
        # The first failure of each tool that mentions each name.
        self._first = defaultdict[str, dict[str, Pattern]](dict)
        for each in sorted(index.patterns.values(), key=lambda each: each.first_seen):
            if each.level == "class" and not each.transient:
                for name in mentioned_names(each.template):
                    self._first[each.tool].setdefault(name, each)

    def reason(self, about: Written | MemoryItem) -> str:
        """Return why it needs review, or ""."""
        item = about if isinstance(about, MemoryItem) else self._items.get(about.hint.replaces)
        if item is not None and not item.is_sure:
            return f"the same failure came again after this change in {item.against} sessions"
        return "" if isinstance(about, MemoryItem) else self._changed(about.hint, about.decided)

    def _changed(self, hint: Hint, decided: Decision) -> str:
        """After a tool's definition changed, calls fail for names in the hint that never failed before."""
        since = max(decided.time, self._confirmed.get(decided.id, 0.0))
        text = hint.text.casefold()
        tools = [self._first.get(hint.tool, {})] if hint.tool else list(self._first.values())
        met = [(name, each) for of_tool in tools for name, each in of_tool.items() if name in text]
        known = {name for name, each in met if each.first_seen <= since}
        known.update(word.casefold() for words in hint.before for word in WORD.findall(words))
        new = {name: each for name, each in met if name not in known}
        if names := names_in(text, new):
            each = new[min(names)]
            return f"{each.tool} has failed with {', '.join(sorted(names))} since then: {each.error_class}"
        return ""


def _item(index: LoreIndex, id: str) -> MemoryItem:
    if (found := index.known_items.get(id)) is None:
        raise ConfigError(f"no hint or memory item {id!r} is known: `fleetlore hints list` names them")
    return found


def _check_read(id: str, read: str | None, wording: str, words: str) -> None:
    if read not in (None, wording):
        raise WordsChanged(f"nothing was approved: read what {id} says now and approve its wording {wording}: {words}")


def _same(old: Hint, hint: Hint) -> bool:
    return replace(old, author=hint.author, written=hint.written, until=hint.until) == hint


def _id(*parts: str) -> str:
    return HINT_PREFIX + pattern_id("hint", *parts)[:_DIGITS]


def _kept(what: str, text: str, most: int) -> str:
    text = text.strip()
    if not 0 < len(text) <= most:
        raise ConfigError(f"{what} has 1 to {most} characters, this one has {len(text)}")
    if (masked := redact(text)) != text:
        raise ConfigError(f"{what} holds a secret or looks so, and all agents could read it: {masked!r} would be left")
    return text


def _name(what: str, name: str) -> str:
    name = name.strip()
    if len(name) > _MAX_NAME or _OF_NO_NAME.search(name):
        raise ConfigError(f"{what} has at most {_MAX_NAME} characters, no line break or control character, no U+FFFD")
    return name
