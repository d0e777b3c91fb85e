"""Find the names of a place in a session: which work or are rejected there, and what has what.

Only calls of the closed world tell names: statements that worked, and results that list what there is. `X has Y` is
read from `cars.price` with its alias resolved, from a statement with one owner, and from these results.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple, Self

import orjson

from fleetlore.calls.call import EndedCall, MadeCall, is_closed, shows_names, values_of
from fleetlore.calls.context import RESULT_CHARACTERS
from fleetlore.calls.places import QUERY_WORDS
from fleetlore.fingerprint.literals import masked_arguments
from fleetlore.wire.trajectory import MAX_SCHEMA, MAX_TEXT, Step

__all__ = ["Told", "shows_schema", "told_of_place"]

MAX_NAME, _MAX_PARTS = 40, 4
_MAX_MEMBERS = 64
# Words of a model that talks to a tool.
_SPOKEN = frozenset(
    "apologize are can have how it me please sorry that the this was we what will you your".split()  # noqa: SIM905
)
# A masked literal, with the name that holds it: `shop.<id>`.
_PLACEHOLDER = re.compile(r"(?<![\w.-])[\w.-]*+<[\w ]+>[\w.-]*")
_ID = re.compile(r"\d{3}")
_WORD = re.compile(r"[A-Za-z_]\w*")
_NAME = r"[`\"\[]?([A-Za-z_]\w*)[`\"\]]?"
_PAIR = re.compile(rf"(?<![\w.]){_NAME}\s?\.\s?{_NAME}(?![\w(])")
# `FROM shop.cars AS t, makers m`
_NO_ALIAS = r"(?!(?:join|inner|left|right|full|cross|natural|where|on|using|group|order|limit|set)\b)"
_AS = rf"(?:\s+(?:as\s+)?{_NO_ALIAS}([a-z_]\w*))?"
_THING = rf"(?:{_NAME}\.)?{_NAME}{_AS}"
_OWNERS = re.compile(
    r"(?i)(?:\b(?:from|join|into|update|table|describe|desc)\s+|\btable_info\s*\(\s*)"
    rf"(?:if\s+(?:not\s+)?exists\s+)?({_THING}(?:\s*,\s*{_THING})*)"
)
_OWNER = re.compile(rf"(?i){_THING}")
_IMPORT = re.compile(r"\bimport\b")
_ALIAS = re.compile(r"(?i)(?:\bwith|,)\s+([a-z_]\w*)(?=\s+as\s*\()|\bas\s+[`\"\[]?([a-z_]\w*)")
_CALLED = re.compile(r"([A-Za-z_]\w*)\s*\(")
_TYPE = (
    r"(?:(?:tiny|small|medium|big)?int(?:eger)?\d*|serial|bigserial|(?:var|n|nvar)?char(?:acter)?|string|text|clob|"
    r"real|double|float\d*|decimal|numeric|number|bool(?:ean)?|date|datetime\w*|timestamp\w*|time|blob|bytea|json|"
    r"jsonb|uuid|enum|object|array|category)\b"
)
# `('id', 'int(11)', …)`, `0|id|INTEGER|`, `id: integer`, `{"name": "id", "type": "integer"}`
_TYPED = re.compile(
    rf"(?i)(?<![\w.])([a-z_]\w*)['\"`]?\s*[,|:(]\s*(?:['\"]?(?:data_?)?type['\"]?\s*:\s*)?['\"]?{_TYPE}"
)
# Finds what may be a schema at a tenth of the cost.
_A_TYPE = re.compile(rf"[,|:(]\s*['\"]?{_TYPE}")
_CREATE = re.compile(
    rf"(?i)\bcreate\s+(?:\w+\s+)?(?:table|view)\s+(?:if\s+not\s+exists\s+)?(?:{_NAME}\.)?{_NAME}\s*\("
    rf"((?:[^()]|\([^()]*\))*)"
)
_COLUMN = re.compile(rf"(?:^|,)\s*{_NAME}(?=\s+\w|\s*(?:,|$))")
_NO_COLUMN = frozenset(["primary", "foreign", "unique", "constraint", "key", "check", "index", "fulltext", "exclude"])
_IN_PARENTHESES = re.compile(r"\([^()]*\)")
_STRING = re.compile(r"\"((?:[^\"\\]|\\.)*+)\"\s*(:(?!\s*\{))?|'((?:[^'\\]|\\.)*+)'\s*(:(?!\s*\{))?")
_ALONE = re.compile(
    r"(?m)^[ \t|*-]*([A-Za-z_]\w*)[ \t|]*$|[(\[]\s*['\"]([A-Za-z_]\w*)['\"]\s*,?\s*[)\]]"
    r"|\{\s*\"\w+\":\s*\"([A-Za-z_]\w*)\"\s*\}"
)
_MEANT = re.compile(r"(?i)\bmean\w*\b[^'\"`\n]{0,40}['\"`]([A-Za-z_]\w*)\.([A-Za-z_]\w*)['\"`]")

_Pair = tuple[str, str]


class Told(NamedTuple):
    names: frozenset[str]
    listed: frozenset[str]
    failed: frozenset[str]
    members: tuple[_Pair, ...]


def told_of_place(calls: Iterable[EndedCall], identities: Iterable[str] = (), closed_tools: Iterable[str] = ()) -> Told:
    names, listed, failed = set[str](), set[str](), set[str]()
    members: dict[_Pair, None] = {}
    for made in calls:
        step = made.step
        if step.transient:
            continue
        if made.kind is not None:
            failed.update(made.kind.names)
        if not is_closed(step.tool, step.arguments, closed_tools):
            continue
        if step.failed:
            members.update(dict.fromkeys(_MEANT.findall((step.error_message or "")[:RESULT_CHARACTERS])))
            continue
        call = _Read.of(step)
        says_names = shows_names(step.tool, step.arguments, closed_tools)
        shown = list(_of_result(step, call) if says_names else _of_rows(step, call))
        members.update(dict.fromkeys((*call.members, *(pair for pair in shown if pair[0]))))
        names.update(call.names, *shown)
        if says_names:
            listed.update(filter(None, chain(*_ALONE.findall(step.result[:RESULT_CHARACTERS]))))
    whose = frozenset(word.lower() for text in identities for word in _WORD.findall(text))

    def is_name(word: str) -> bool:
        """Whether a word may name a thing: no word of a query, no id, no sentence."""
        if not 1 < len(word) <= MAX_NAME or word.lower() in QUERY_WORDS or word.lower() in whose or _ID.search(word):
            return False
        return len(word.strip("_").split("_")) <= _MAX_PARTS

    return Told(
        frozenset(filter(is_name, names)),
        frozenset(filter(is_name, listed)),
        frozenset(filter(is_name, failed)),
        tuple(pair for pair in members if is_name(pair[0]) and is_name(pair[1])),
    )


def shows_schema(result: str) -> bool:
    """Whether a result shows a table with its columns, or names with their types."""
    text = _plain(result[:MAX_TEXT])
    small = text.lower()
    if "create" in small and _CREATE.search(text) is not None:
        return True
    return _A_TYPE.search(small) is not None and len(_TYPED.findall(text)) > 1


class _Read(NamedTuple):
    names: list[str]
    members: list[_Pair]
    owner: str
    own: frozenset[str]

    @classmethod
    def of(cls, step: Step) -> Self:
        masked = masked_arguments(step.arguments)
        keys = frozenset(key.lower() for key in values_of(step.arguments))
        values = masked.values() if isinstance(masked, dict) else (masked,)
        text = "\n".join(
            _PLACEHOLDER.sub(" ", each).strip() if isinstance(each, str) else orjson.dumps(each).decode()
            for each in values
        )
        # In `from x import y`, `x` is a module and no owner.
        imports = _IMPORT.search(text) is not None
        owners, aliases = ({}, {}) if imports else _owners(text)
        made = {name.lower() for found in _ALIAS.findall(text) for name in found if name} | aliases.keys()
        own = frozenset(made) | keys | _SPOKEN
        bound = MadeCall("", text).bound
        pairs, qualifiers = list[_Pair](), set[str]()
        for qualifier, member in _PAIR.findall(text):
            qualifiers.add(qualifier.lower())
            owner = aliases.get(qualifier.lower(), "") or owners.get(qualifier.lower(), "")
            if not owners and not imports and qualifier.lower() not in bound:
                owner = qualifier
            if owner and member.lower() not in owners:
                pairs.append((owner, member))
        qualifiers -= owners.keys()
        tokens = [token for token in dict.fromkeys(_WORD.findall(text)) if len(token) > 1]
        # Beside an owner, a called name is the language's function.
        called = {name.lower() for name in _CALLED.findall(text)} - owners.keys() if owners else set()
        no_names = own | qualifiers | called
        names = [each for each in tokens if each.lower() not in no_names] if len(tokens) > 1 else []
        owner = next(iter(owners.values())) if len(owners) == 1 else ""
        pairs += [(owner, each) for each in names if owner and each.lower() not in owners]
        return cls(names, pairs[:_MAX_MEMBERS], owner, own)


def _owners(text: str) -> tuple[dict[str, str], dict[str, str]]:
    owners: dict[str, str] = {}
    aliases: dict[str, str] = {}
    for listed in _OWNERS.finditer(text):
        for part in listed[1].split(","):
            found = _OWNER.search(part)
            if found is None:
                continue
            _, owner, alias = found.groups()
            if owner.lower() not in QUERY_WORDS:
                owners[owner.lower()] = owner
                if alias and alias.lower() not in QUERY_WORDS:
                    aliases[alias.lower()] = owner
    return {name: owner for name, owner in owners.items() if name not in aliases}, aliases


def _of_result(step: Step, call: _Read) -> Iterator[_Pair]:
    text = _plain(step.result)
    created = False
    for _, owner, body in _CREATE.findall(text):
        created = True
        for column in _COLUMN.findall(_IN_PARENTHESES.sub("", body))[:_MAX_MEMBERS]:
            if column.lower() not in _NO_COLUMN:
                yield owner, column
    if created:
        return
    typed = _TYPED.findall(text)
    if len(typed) > 1:
        yield from ((call.owner, each) for each in typed[:_MAX_MEMBERS])
    else:
        yield from _of_rows(step, call)


def _of_rows(step: Step, call: _Read) -> Iterator[_Pair]:
    if step.result[:1] in ("{", "["):
        found = _STRING.findall(step.result[:MAX_SCHEMA])
        keys = dict.fromkeys(
            [first or second for first, is_key, second, is_other_key in found if is_key or is_other_key]
        )
        yield from ((call.owner, key) for key in keys if _WORD.fullmatch(key) and key.lower() not in call.own)


def _plain(result: str) -> str:
    return result[:MAX_SCHEMA].replace("\\n", " ").replace("\\t", " ").replace('\\"', '"').replace("\\'", "'")
