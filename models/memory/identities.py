"""Take end users out of what becomes lore: no item quotes an identity of one.

An identity is found in three ways, in the texts of the session that teaches:

by form     e-mail, phone (international form), card (Luhn), IBAN, national id, public IP address; what has digits to
            check is checked (`phonenumbers`, `python-stdnum`)
by name     the value of an argument or field that is called `email`, `last_name`, `user_id`, `zip`, …
by company  in a record that holds such a field, whatever is written like an identifier: it is that person's

Each is replaced wherever the session's contributions quote it, by what it is called. A name that stands in free text
alone, and in no field, is not recognised; a version of four numbers is taken for an address.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import Any

import phonenumbers
from msgspec.structs import replace
from stdnum import iban, luhn
from stdnum.br import cpf
from stdnum.es import dni
from stdnum.fr import nir
from stdnum.it import codicefiscale
from stdnum.us import ssn

from fleetlore.wire.trajectory import Trajectory
from models.memory.candidate import Candidate

_PERSONAL = (
    r"e_?mail(?:_?address)?|(?:tele)?phone(?:_?number)?|mobile|fax"
    r"|(?:first|last|full|given|family|middle|sur|maiden)_?name"
    r"|(?:user|customer|client|member|patient|guest|passenger|person|account|acct|login)_?(?:name|id|no|number|code)"
    r"|address(?:_?(?:line)?_?\d)?|street|zip(?:_?code)?|post(?:al)?_?code|dob|date_?of_?birth|birth_?(?:date|day)|ssn"
    r"|passport(?:_?(?:no|number|id))?|iban|card_?(?:no|number|id)|ip(?:_?address)?"
    r"|(?:order|reservation|booking|payment(?:_?method)?|invoice|ticket)s?_?(?:id|no|number|code)?"
)
# A field and its value in JSON, or in what is left of JSON that was cut.
_FIELD = re.compile(
    rf'"({_PERSONAL})"\s*:\s*(?:"((?:[^"\\]|\\.){{1,160}})"|(\d{{3,20}})\b|\[([^\[\]{{}}]{{1,400}})\])', re.IGNORECASE
)
_NAMES = re.compile(r'"first_?name"\s*:\s*"([^"\\]{1,60})"\s*,\s*"last_?name"\s*:\s*"([^"\\]{1,60})"', re.I)
_QUOTED = re.compile(r'"([^"\\]{3,160})"')
# Letters or marks with at least four digits, or a code of capitals and digits.
_IDENTIFIER = re.compile(
    r"(?<![\w#])(?=[\w#-]*[A-Za-z#_])[#\w-]*\d{4,}\b|(?<![\w#])(?=[A-Z]*\d)(?=\d*[A-Z])[A-Z0-9]{6}(?!\w)"
)
# A shorter one is a word of many texts, and is replaced in its field only.
_LEAST = 4
_MOST_TEXT = 8_192

_EMAIL = re.compile(r"(?<![\w@.+-])(?!git@)[\w.+-]{1,64}@(?:[\w-]{1,63}\.){1,8}[A-Za-z]{2,24}(?!\w)")
_CARD = re.compile(r"(?<![\w.-])\d(?:[ -]?\d){12,18}(?![\w-])")
_IBAN = re.compile(r"(?<!\w)[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?!\w)")
_IP = re.compile(r"(?<![\w.:-])(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,7})(?![\w.:])", re.I)
_UNICAST = ip_network("2000::/3")
_PHONE = re.compile(r"\+\d")
# National ids that are written so that they are not mistaken for any number.
_NATIONAL: tuple[tuple[re.Pattern[str], Callable[[str], bool]], ...] = (
    (re.compile(r"(?<![\w-])\d{3}-\d{2}-\d{4}(?![\w-])"), ssn.is_valid),
    (re.compile(r"(?<![\w.-])\d{3}\.\d{3}\.\d{3}-\d{2}(?![\w-])"), cpf.is_valid),
    (re.compile(r"(?<!\w)[12]\d{2}(?:0[1-9]|1[0-2])\d[0-9AB]\d{8}(?!\w)"), nir.is_valid),
    (re.compile(r"(?<!\w)\d{8}-?[A-Z](?!\w)"), dni.is_valid),
)
_FISCAL = re.compile(r"(?<!\w)[A-Z]{6}\d\d[A-Z]\d\d[A-Z]\d{3}[A-Z](?!\w)")
# What must stand in a text before the patterns above are worth a try, for each of them looks behind at every character:
# eight digits for a card or a number, two capitals and two digits for an IBAN or a code, and the middle of an IP
# address. A text takes 19 µs then, and 56 without.
_DIGIT = re.compile(r"[0-9]")
_DIGITS = re.compile(r"\d(?:[ .-]?\d){7}")
_CODED = re.compile(r"[A-Z]{2}\d{2}")
_MIDDLE = re.compile(r"\.\d{1,3}\.\d|:[0-9A-Fa-f]{0,4}:")

Found = Mapping[str, str]  # what stands there → what is said instead


def without_identities(candidates: Iterable[Candidate], trajectory: Trajectory) -> list[Candidate]:
    """The contributions of a session with its end users' identities replaced."""
    taught = list(candidates)
    if not taught:
        return taught
    texts = [trajectory.goal]
    for step in trajectory.steps:
        texts += (step.arguments, step.result, step.error_message or "")
    found = identities(texts)
    return [_without(each, found) for each in taught] if found else taught


def identities(texts: Iterable[str]) -> dict[str, str]:
    """What in the texts names an end user, and what is said instead."""
    found: dict[str, str] = {}
    for text in texts:
        for value, instead in _found_in(text[:_MOST_TEXT]):
            found.setdefault(value, instead)
    return found


@lru_cache(maxsize=4_096)  # a session is judged again with the same texts
def _found_in(text: str) -> tuple[tuple[str, str], ...]:
    return (*_by_form(text), *_by_name(text))


def _by_form(text: str) -> Iterator[tuple[str, str]]:
    if "@" in text:
        yield from ((each, "<email>") for each in _EMAIL.findall(text))
    if not _DIGIT.search(text):
        return
    if _DIGITS.search(text):
        for pattern, valid in _NATIONAL:
            yield from ((each, "<national id>") for each in pattern.findall(text) if valid(each))
        yield from ((each, "<card>") for each in _CARD.findall(text) if _is_card(each))
    if _CODED.search(text):
        yield from ((each, "<national id>") for each in _FISCAL.findall(text) if codicefiscale.is_valid(each))
        yield from ((each, "<iban>") for each in _IBAN.findall(text) if iban.is_valid(each))
    if _MIDDLE.search(text):
        yield from ((each, "<ip address>") for each in _IP.findall(text) if _is_public(each))
    if _PHONE.search(text):
        yield from ((each.raw_string, "<phone>") for each in phonenumbers.PhoneNumberMatcher(text, None))


def _by_name(text: str) -> Iterator[tuple[str, str]]:
    named = False
    for match in _FIELD.finditer(text):
        named = True
        name, value, number, listed = match.groups()
        instead = f"<{name.lower().replace('_', ' ')}>"
        for each in _QUOTED.findall(listed) if listed else (value or number,):
            if each.startswith("<"):
                continue
            if len(each) >= _LEAST:
                yield each, instead
            elif value:
                yield f'"{name}":"{each}"', f'"{name}":"{instead}"'
    if named:
        for first, last in _NAMES.findall(text):
            yield f"{first} {last}", "<name>"
        yield from ((each, "<id>") for each in _IDENTIFIER.findall(text))


def _is_card(text: str) -> bool:
    digits = re.sub(r"[ -]", "", text)
    return digits[0] in "23456" and len(set(digits)) > 1 and luhn.is_valid(digits)


def _is_public(text: str) -> bool:
    try:
        address = ip_address(text)
    except ValueError:
        return False
    # `[::2]` is a slice and a valid address, but of no host.
    return address.is_global and (address.version == 4 or address in _UNICAST)


def replacing(found: Found) -> Callable[[Any], Any]:
    """A function that replaces what was found (`identities`) in a JSON value, in the names of its fields too."""
    whole = "|".join(re.escape(each) for each in sorted(found, key=lambda each: (-len(each), each)))
    quoted = re.compile(rf"(?<!\w)(?:{whole})(?!\w)", re.IGNORECASE)
    instead = {value.lower(): name for value, name in found.items()}

    def replaced(value: Any) -> Any:
        if isinstance(value, str):
            return quoted.sub(lambda match: instead[match.group().lower()], value)
        if isinstance(value, dict):
            return {replaced(name): replaced(each) for name, each in value.items()}
        return [replaced(each) for each in value] if isinstance(value, list | tuple) else value

    return replaced


def _without(candidate: Candidate, found: Found) -> Candidate:
    replaced = replacing(found)
    return replace(
        candidate,
        title=replaced(candidate.title),
        description=replaced(candidate.description),
        content=replaced(candidate.content),
        when=replaced(candidate.when),
        remedy=replaced(candidate.remedy),
        calls=tuple(replaced(candidate.calls)),
    )
