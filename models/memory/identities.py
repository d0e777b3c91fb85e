"""Remove end users' identities from what becomes lore.

An identity is found by form (e-mail, phone, …: `fleetlore.redact.personal`), by name (the value of a field called
`email`, `last_name`, …), or by company (an identifier in a record that holds such a field). A name in free text alone
is not recognised.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from fleetlore.fingerprint.fingerprint import arguments_text
from fleetlore.redact.personal import personal_data
from fleetlore.wire.trajectory import Step, Trajectory
from models.memory.candidate import Candidate

_PERSON = (
    "applicant|assignee|attendee|attorney|beneficiary|borrower|buyer|cardholder|citizen|claimant|debtor|defendant|donor"
    "|doctor|employee|guardian|guest|(?:account|card|iban|policy)_?holder|husband|insured|invitee|kin|lawyer|nurse"
    "|passenger|patient|payee|payer|physician|plaintiff|policyholder|resident|seller|sibling|spouse|student|suspect"
    "|teacher|travell?er|victim|wife|witness|recipient|addressee|nickname"
)
_NUMBERED = "name|id|no|number|code|ref|reference"
# Before it stands another word or nothing.
_PART = r"(?:\w{1,24}(?:_|(?-i:(?<=[a-z])(?=[A-Z]))))?"
_PERSONAL = re.compile(
    r"e_?mail(?:_?address)?|(?:tele)?phone(?:_?number)?|mobile|fax|imei|imsi|msisdn|device_?id|mac_?address"
    r"|(?:first|last|full|given|family|middle|sur|maiden)_?name"
    r"|(?:contact|emergency_?contact)(?:_?(?:name|person))?"
    r"|(?:shipping|billing|delivery|mailing|home|postal|contact|recipient)_?"
    r"(?:name|address(?:_?\d)?|street|city|state|zip|phone|email)|city|town"
    rf"|{_PART}(?:{_PERSON})s?(?:_?(?:{_NUMBERED}))?"
    rf"|{_PART}(?:user|customer|client|member|person|account|acct|login|case|claim|licen[cs]e|membership|policy|tax"
    rf"|tracking|transaction)_?(?:{_NUMBERED})"
    r"|address(?:_?(?:line)?_?\d)?|street|zip(?:_?code)?|post(?:al)?_?code|dob|date_?of_?birth|birth_?(?:date|day)|ssn"
    r"|passport(?:_?(?:no|number|id))?|iban|card_?(?:no|number|id)|cv[cv]|sort_?code|routing_?number|ip(?:_?address)?"
    r"|mrn|diagnos[ie]s|allerg(?:y|ies)|medications?|prescriptions?|salary|wages?|income"
    r"|(?:medical|health)_?conditions?|symptoms?|disabilit(?:y|ies)|blood_?(?:type|group)|religion|faith|ethnicity"
    rf"|{_PART}(?:asylum|cancer|citizenship|criminal|credit|disability|employment|family|health|hiv|housing"
    r"|immigration|marital|pregnancy|refugee|relationship|residence|tumou?r|vaccination|visa)"
    r"_?(?:status|type|class|kind|stage|level)"
    r"|nationality|gender|pronouns|sexual_?orientation"
    r"|(?:discord|facebook|instagram|linkedin|skype|slack|snapchat|telegram|tiktok|twitter|whatsapp)"
    r"(?:_?(?:handle|id|name|user|user_?name))?|github_?(?:handle|user|user_?name)"
    r"|vin|(?:licen[cs]e|number|registration)_?plate|plate(?:_?(?:no|number))?"
    r"|(?:order|reservation|booking|payment(?:_?method)?|invoice|ticket)s?_?(?:id|no|number|code)?",
    re.IGNORECASE,
)
# Such a field holds what somebody wrote of somebody, in a record that may name nobody.
_WRITTEN = re.compile(r"notes?|comments?|remarks?|subject_?line|guest_?list", re.IGNORECASE)
# Such a field may hold a person, or a table, a server and the like.
_OPEN = re.compile(
    r"to|from|b?cc|who|(?:account|author|callee|caller|candidate|case|child|client|customer|device|driver|handle|host"
    r"|lead|login|manager|member|owner|parent|person|reporter|sender|subject|user)s?|people|(?:user|display)_?name",
    re.IGNORECASE,
)
_NAME = r"[A-Z][\w'’-]+(?: [A-Z][\w.'’-]*){1,3}"
_NAMED, _ANY, _TEXT = re.compile(_NAME), re.compile(r".+", re.DOTALL), re.compile(r"[^<].*", re.DOTALL)
_SOMEBODY = re.compile(rf"{_NAME}|[A-Za-z#_][\w#.-]*\d{{4}}")
# The value is not consumed: in text that is quoted twice, its closing mark may open the next name.
_FIELD = re.compile(r'"(\w{2,48})"\s*:\s*(?=(?:"((?:[^"\\]|\\.){1,160})"|(\d{3,20})\b|\[([^\[\]{}]{1,400})\]))')
_NAMES = re.compile(r'"first_?name"\s*:\s*"([^"\\]{1,60})"\s*,\s*"last_?name"\s*:\s*"([^"\\]{1,60})"', re.I)
_QUOTED = re.compile(r'"([^"\\]{3,160})"')
# Letters or marks with at least four digits, or a code of capitals and digits.
_IDENTIFIER = re.compile(
    r"(?<![\w#-])(?=[\w#-]*[A-Za-z#_])[#\w-]*\d{4}\b|(?<![\w#])(?=[A-Z]*\d)(?=\d*[A-Z])[A-Z0-9]{6}(?!\w)"
)
# Without one of these, nothing is found by form.
_FORMED = re.compile(r"@|\d(?:\D{0,4}\d){6}|\.\d{1,3}\.\d|:[0-9a-f]{0,4}:", re.IGNORECASE)
_GROUPED = frozenset({"phone", "card", "iban", "national id"})
# A shorter one is a common word, so it is replaced in its field only.
_LEAST = 4
_MOST_TEXT = 8_192
_QUOTING = ("title", "description", "content", "when", "calls", "was", "now")

_Found = Mapping[str, str]  # an identity → its replacement


def without_identities(candidates: Iterable[Candidate], trajectory: Trajectory) -> list[Candidate]:
    taught = list(candidates)
    if not any(each.title for each in taught):
        return taught  # contradictions quote nothing
    quoted = "\n".join([arguments_text(getattr(each, name)) for each in taught for name in _QUOTING])
    found = identities(texts_of(trajectory.goal, trajectory.steps), by_form=_FORMED.search(quoted) is not None)
    if not found:
        return taught
    replaced = replacing(found)
    return [replace(each, **{name: replaced(getattr(each, name)) for name in _QUOTING}) for each in taught]


def texts_of(goal: str, steps: Iterable[Step]) -> list[str]:
    texts = [goal]
    for step in steps:
        texts += (step.arguments, step.result, step.error_message or "")
    return texts


def identities(texts: Iterable[str], *, by_form: bool = True) -> dict[str, str]:
    """Return the parts that name an end user, each with its placeholder. `by_form` is half of the work."""
    found: dict[str, str] = {}
    for text in [text[:_MOST_TEXT] for text in texts]:
        if by_form:
            for each in personal_data(text):
                value, instead = text[each.start : each.end], f"<{each.kind}>"
                found.setdefault(value, instead)
                if each.kind in _GROUPED:
                    found.setdefault(re.sub(r"[\W_]", "", value), instead)
        if '"' in text:
            for value, instead in _by_name(text):
                found.setdefault(value, instead)
    return found


def _by_name(text: str) -> Iterator[tuple[str, str]]:
    named = False
    for match in _FIELD.finditer(text):
        name, value, number, listed = match.groups()
        form = _form_of(name)
        if form is None:
            continue
        named |= form is _ANY
        instead = f"<{name.lower().replace('_', ' ')}>"
        for each in _QUOTED.findall(listed) if listed else (value or number,):
            if each.startswith("<") or not form.fullmatch(each):
                continue
            if len(each) >= _LEAST:
                yield each, instead
            elif value:
                yield f'"{name}":"{each}"', f'"{name}":"{instead}"'
    if named:
        for first, last in _NAMES.findall(text):
            yield f"{first} {last}", "<name>"
        yield from ((each, "<id>") for each in _IDENTIFIER.findall(text))


@lru_cache(maxsize=4096)
def _form_of(field: str) -> re.Pattern[str] | None:
    if _PERSONAL.fullmatch(field):
        return _ANY
    if _WRITTEN.fullmatch(field):
        return _TEXT
    return _NAMED if field.lower() == "name" else _SOMEBODY if _OPEN.fullmatch(field) else None


def replacing(found: _Found) -> Callable[[Any], Any]:
    """Return a function that replaces `identities` in a JSON value, in names of fields too."""
    instead = {value.lower(): name for value, name in found.items()}
    longest_first = sorted(instead, key=lambda each: (-len(each), each))

    def replaced(value: Any) -> Any:
        if isinstance(value, str):
            text = value.lower()
            # A pattern of all would compile slowly, and most texts quote none.
            quoted = [each for each in longest_first if each in text]
            return _pattern(tuple(quoted)).sub(lambda match: instead[match.group().lower()], value) if quoted else value
        if isinstance(value, dict):
            return {replaced(name): replaced(each) for name, each in value.items()}
        if type(value) is int:
            return instead.get(str(value), value)
        return type(value)(map(replaced, value)) if isinstance(value, list | tuple) else value

    return replaced


@lru_cache(maxsize=256)
def _pattern(quoted: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, quoted))})(?!\w)", re.IGNORECASE)
