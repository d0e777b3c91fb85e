"""Say what a recovery changed: the working part first, the one that failed last."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson

from fleetlore.advice.gate import PROVEN, Part, Quote, Tip
from fleetlore.calls.call import CALL_CHARACTERS, text_of
from fleetlore.calls.places import PlaceNames
from fleetlore.fingerprint.fingerprint import arguments_text
from fleetlore.wire.lore import MemoryItem
from fleetlore.words import WORD

__all__ = ["change_tip", "holds", "item_tip", "parts_of", "says_where"]

# P(the call fails) from which a call may be held: Jeffreys' estimate of one failure.
SURE_ONCE = 0.75
_WORD = re.compile(r"[\w.-]+")
_MARKS = "'\"-."
# Stands for a literal, which no agent can send.
_KIND = re.compile(r"(?<!\w)<(date|email|id|number|path|text|url|value)>|(?<=[=\"])<([a-z][\w -]{0,23})>")
_ANY = "…"
# Errors about names of a language, a library or a program, which are the same at every place.
_OF_LANGUAGE = re.compile(
    r"no attribute|unexpected keyword|was removed|no such (?:function|module|option|command)|command not found|"
    r"(?:unrecogni[sz]ed|unknown|invalid|illegal) (?:argument|option|flag|command|subcommand|function|choice|frequency|"
    r"value|keyword|parameter)|is not an? [\w-]+ (?:command|option)|has been (?:removed|renamed)|deprecated",
    re.I,
)
_QUALIFIED = re.compile(r"\w[./:]\w")


def change_tip(item: MemoryItem, source: str, arguments: object = None, chance: float | None = None) -> Tip:
    def quote(text: str) -> Quote:
        return Quote(text, item.agents, "call", item.danger, item.now)

    tool = Quote(item.tool, item.agents, "name")
    was, now = (", ".join(f"`{_KIND.sub(_ANY, part)}`" for part in some) for some in (item.was, item.now))
    names = dict.fromkeys(found[1] or found[2] for found in _KIND.finditer(" ".join(item.now)))
    kinds = [f"{'an' if name[0] in 'aeio' else 'a'} {name}" for name in names]
    end: tuple[Part, ...] = (", with ", quote(" and ".join(kinds)), f" for `{_ANY}`.") if kinds else (".",)
    parts: tuple[Part, ...]
    call: object = None
    if item.was and item.now:
        parts = ("Use ", quote(now), " instead of ", quote(was), " in ", tool, *end)
        # Another name may be of another object: `pd.concat` for `df.append`.
        is_ready = not kinds and not (item.names_beside == () and "no attribute" in item.when)
        call = substituted(arguments, dict(zip(item.was, item.now, strict=False))) if is_ready else None
    elif item.now:
        parts = ("Add ", quote(now), " in ", tool, *end)
    else:
        parts = ("Leave out ", quote(was), " in ", tool, ".")
    return Tip(
        item.id, source, parts, key=item.id if chance is None else "", brings=item.now, chance=chance,
        sure=(chance or 0.0) >= SURE_ONCE, agents=item.agents, call=call, item=item, pattern=item.pattern,
    )  # fmt: skip


def item_tip(item: MemoryItem, source: str) -> Tip:
    if item.kind == "recovery":
        return change_tip(item, source)
    way = Quote(item.content, item.agents, "call", danger=True)
    head = "What solved this very goal:\n" if source == "way" else f"What worked elsewhere ({source}):\n"
    return Tip(item.id, source, (head, way), key=item.id, agents=item.agents, item=item)


def parts_of(arguments: object) -> Iterator[tuple[str, bool]]:
    """Yield what a recovery may change, and whether it is an argument (`name`, `name=value`) or a text's word."""
    values = _fields(arguments) if isinstance(arguments, Mapping) else [("", arguments)]
    for name, value in values:
        if name:
            yield name, True
            yield f"{name}={arguments_text(value)}", True
        if isinstance(value, str):
            yield from ((word, False) for word in _WORD.findall(value[:CALL_CHARACTERS]))


def _fields(arguments: object) -> Iterator[tuple[str, Any]]:
    waiting = [arguments]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            yield from value.items()
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def is_rename(item: MemoryItem) -> bool:
    rejected = {part for word in _WORD.findall(item.when.lower()) for part in (word.strip(_MARKS), *word.split("."))}
    words = all(_WORD.fullmatch(part.strip(_MARKS)) for part in item.now)
    return words and bool(item.was and item.now) and all(part.strip(_MARKS).lower() in rejected for part in item.was)


def is_of_tool(item: MemoryItem) -> bool:
    return item.is_of_argument or is_rename(item) or item.agents >= PROVEN


def is_of_place(item: MemoryItem, place: PlaceNames) -> bool:
    """Whether the place has the names, the error was met there or names no place, or several agents needed it."""
    if not is_rename(item) or _OF_LANGUAGE.search(item.when):
        return True
    if place.members:
        return all(name.lower() in place.names for name in item.now)
    return item.agents >= PROVEN or says_where(item.when)


def says_where(error: str) -> bool:
    return _QUALIFIED.search(error) is not None


def holds(arguments: object, was: Sequence[str]) -> bool:
    """Whether a call holds all these parts: `name=value` of an object, or whole words of its text."""
    return bool(was) and all(_holds(arguments, part) for part in was)


@lru_cache(maxsize=8192)
def word_of(part: str) -> str:
    """Return a word in the JSON or the text of each call that `holds` the part, or ""."""
    found = WORD.search(_KIND.split(part)[0])
    return found[0] if found is not None and found[0].isascii() else ""


def is_unmended(item: MemoryItem, arguments: object) -> bool:
    """Whether a call holds the failing part alone: the name of a field may also be a word of a path."""
    if item.was and not holds(arguments, item.was):
        return False
    is_part = all(any(map(_whole(new).search, item.was)) for new in item.now)  # `np.float` → `float`
    return is_part or not holds(arguments, item.now)


def _holds(arguments: object, part: str) -> bool:
    name, is_value, value = part.partition("=")
    if isinstance(arguments, Mapping) and is_value:
        known = [each for field, each in _fields(arguments) if field == name]
        if known:
            return any(_whole(value).fullmatch(arguments_text(each)) for each in known)
    text = arguments_text(arguments)
    return any(_whole(part).search(each) for each in (text, text_of(text)))


def substituted(arguments: object, swaps: Mapping[str, str]) -> Any:
    """The arguments with each part replaced, or None if one is missing, a new name is taken, or a type may change."""
    changed = arguments
    try:
        for old, new in swaps.items():
            is_field = any(name == old for name, _ in _fields(arguments))
            changed = _substituted(changed, old, new, is_field=is_field)
        return changed if changed != arguments else None
    except (_NotReadyError, RecursionError):
        return None


class _NotReadyError(Exception):
    pass


def _substituted(value: Any, old: str, new: str, *, is_field: bool) -> Any:
    if isinstance(value, str):
        # The name of a field may also be a word of its value or of a URL's path.
        within = rf"(?<![\w./-]){re.escape(old)}(?=\\?[\"']?[:=])"
        found, count = re.subn(within, lambda _: new, value)
        return value if is_field else found if count else _whole(old).sub(lambda _: new, value)
    if isinstance(value, Mapping):
        name, is_value, was = old.partition("=")
        if is_value and name in value and arguments_text(value[name]) == was:
            return {**value, name: _typed(new.partition("=")[2], value[name])}
        if old in value and new in value:
            raise _NotReadyError
        return {new if k == old else k: _substituted(each, old, new, is_field=is_field) for k, each in value.items()}
    return [_substituted(each, old, new, is_field=is_field) for each in value] if isinstance(value, list) else value


def _typed(text: str, old: Any) -> Any:
    """A text may look like a number: then the old value decides."""
    new, was = _decoded(text), _decoded(arguments_text(old))
    if isinstance(new, str):
        return text
    if len({float if type(each) is int else type(each) for each in (new, was)}) > 1:
        raise _NotReadyError
    return text if isinstance(old, str) else new


def _decoded(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _whole(part: str) -> re.Pattern[str]:
    words = [re.escape(word) for word in _KIND.split(part)[::3]]
    words[-1] += r"(?!\w)"
    # A group that gives nothing back keeps many literals from taking exponential time.
    return re.compile(r"(?<!\w)" + words[0] + "".join(f"(?>.{{1,80}}?{word})" for word in words[1:]))
