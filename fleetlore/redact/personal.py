"""Find and mask personal data by its form: e-mail, phone, card, IBAN, national id, IP address.

Check digits are verified. A word before a number can mark it as an order or version, or as a phone number. Names of
persons have no form and are not found.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from ipaddress import ip_address, ip_network
from typing import Any, NamedTuple

import orjson

from fleetlore.errors import ConfigError, extra
from fleetlore.redact.named_values import mask_of

with extra("personal", "to find personal data needs"):
    import phonenumbers
    from stdnum import iban, luhn
    from stdnum.br import cpf
    from stdnum.es import dni
    from stdnum.fr import nir
    from stdnum.it import codicefiscale
    from stdnum.us import ssn

__all__ = ["PersonalData", "personal_data"]

# International phone numbers only.
ANYWHERE = "anywhere"

_EMAIL = re.compile(r"(?<![A-Za-z0-9_@.+-])(?!git@)[\w.+-]{1,64}@(?:[\w-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![A-Za-z0-9_])")
_BLANKS = "[ \u00a0\u2007\u2009\u202f\t-]"
_CARD = re.compile(rf"(?<![A-Za-z0-9_.-])\d(?:{_BLANKS}{{0,3}}\d){{12,18}}(?![A-Za-z0-9_-])")
_NO_CARD = re.compile(
    r"(?:order|invoice|ticket|tracking|shipment|parcel|reference|ref|case|sku|item|article|product|serial|batch|build|"
    r"bestellung|auftrag|rechnung)(?:[\s_-]{0,2}(?:no|nr|num|number|id|code|nummer))?[\s\"'#:=.]{0,4}\Z",
    re.I,
)
# Issuers' first digits and lengths (ISO/IEC 7812): Luhn's test alone accepts one number in ten.
_ISSUED = re.compile(
    r"4\d{12}(?:\d{3})?|(?:5[1-5]\d\d|222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720)\d{12}|3[47]\d{13}"
    r"|3(?:0[0-5]|[68]\d)\d{11}|(?:6011|65\d\d|64[4-9]\d|62\d\d|35\d\d|50\d\d|5[6-8]\d\d)\d{12}(?:\d{3})?"
)
# In lower case, a trailing group of letters is a following word.
_IBAN = re.compile(
    r"(?<![A-Za-z0-9_])(?:[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?"
    r"|[a-z]{2}\d{2}(?:[a-z0-9]{11,30}|(?: [a-z0-9]{4})?(?: (?=[a-z]{0,3}\d)[a-z0-9]{4}){2,7}"
    r"(?: \d[a-z0-9]{0,2})?))(?![A-Za-z0-9_])"
)
_IP = re.compile(
    r"(?<![A-Za-z0-9_.:-])(?:\d{1,3}(?:\.\d{1,3}){3}(?=:\d{1,5}(?![A-Za-z0-9_:]|\.\w))"
    r"|(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,7})(?![A-Za-z0-9_:]|\.\w))",
    re.I,
)
_NO_IP = re.compile(
    r"(?:\b(?:version|ver|release|build|firmware|driver|upgraded? to|update to|v)[\s\"':=]{0,3}"
    r"|[A-Za-z]/|[<>=~!^]=|[\^~])\Z",
    re.I,
)
_UNICAST = ip_network("2000::/3")
# E.164 has 7 to 15 digits. A local number must have separators.
_PHONE = re.compile(r"(?<![A-Za-z0-9_+])\+\d(?:[ ()./-]{0,3}\d){6,14}(?![A-Za-z0-9_])")
_LOCAL = re.compile(
    r"(?<![A-Za-z0-9_.+/-])(?=\(?\d{2,6}[) ./-])(?!\d{4}-\d\d-\d\d|\d\d[./-]\d\d[./-]\d{4})"
    r"\(?\d(?:[ ()./-]{0,3}\d){6,12}(?![A-Za-z0-9_-]|[./]\d)"
)
# `0049 30 901820`, and digits after a word for phone.
_ZEROS = re.compile(r"(?<![A-Za-z0-9_+.-])00[1-9](?=\d{0,12}[ ()/-])(?:[ ()./-]{0,3}\d){6,14}(?![A-Za-z0-9_])")
_PHONE_KEY = re.compile(
    r"(?:phone|telephone|telefon|tel|mobile|cell|handy|fax|whatsapp|sms|msisdn)(?:[_ ]?(?:no|nr|number|nummer))?"
)
_BARE_PHONE = re.compile(r"\+?\d{7,15}")
_CALLED_PHONE = re.compile(
    rf"(?<![A-Za-z])(?:{_PHONE_KEY.pattern}|call|dial|ring)\W{{1,4}}(?P<number>\d{{7,15}})(?![A-Za-z0-9_-]|\.\w)", re.I
)
# Checks are slow: beyond so many numbers of a text the form is enough.
_CHECKED = 20
_PARTS_TRIED = 2
_DIGITS_IN_A_ROW = re.compile(r"\d+")
_NATIONAL: tuple[tuple[re.Pattern[str], Callable[[str], bool]], ...] = (
    (re.compile(r"(?<![A-Za-z0-9_-])\d{3}-\d{2}-\d{4}(?![A-Za-z0-9_-])"), ssn.is_valid),
    (re.compile(r"(?<![A-Za-z0-9_.-])\d{3}\.\d{3}\.\d{3}-\d{2}(?![A-Za-z0-9_-])"), cpf.is_valid),
    (re.compile(r"(?<![A-Za-z0-9_])[12]\d{2}(?:0[1-9]|1[0-2])\d[0-9AB]\d{8}(?![A-Za-z0-9_])"), nir.is_valid),
    (re.compile(r"(?<![A-Za-z0-9_])\d{8}-?[A-Z](?![A-Za-z0-9_])"), dni.is_valid),
)
_FISCAL = re.compile(r"(?<![A-Za-z0-9_])[A-Z]{6}\d\d[A-Z]\d\d[A-Z]\d{3}[A-Z](?![A-Za-z0-9_])")
# A fast first test of texts or JSON: seven digits, two capitals and two digits, or the middle of an IP address. All
# begin with a digit, so a search can skip.
_NUMBER = r"[0-9](?:(?:BLANK{0,3}+[0-9]){6}|(?<=[A-Z]{2}[0-9])[0-9]|(?<=\.[0-9])[0-9]{0,2}\.[0-9])"
_COLONS = r":[0-9A-Fa-f]{0,4}:"
_IN_TEXT, _IN_JSON = (
    (re.compile(_NUMBER.replace("BLANK", "[ ()./\t\u00a0\u2007\u2009\u202f-]")), re.compile(_COLONS)),
    (
        re.compile(_NUMBER.encode().replace(b"BLANK", rb"(?:[ ()./-]|\\t|\xc2\xa0|\xe2\x80[\x87\x89\xaf])")),
        re.compile(_COLONS.encode()),
    ),
)
_DIGITS = re.compile(r"\d(?:[ .\t\u00a0\u2007\u2009\u202f-]{0,3}\d){7}")
_CODED = re.compile(r"[A-Za-z]{2}\d{2}")
_MIDDLE = re.compile(r"\.\d{1,3}\.\d|:[0-9A-Fa-f]{0,4}:")


class _Found(NamedTuple):
    start: int
    end: int
    kind: str


def personal_data(text: str, regions: Sequence[str] = ()) -> Iterator[_Found]:
    if "@" in text:
        yield from _each(text, _EMAIL, "email")
    if not any(each.search(text) for each in _IN_TEXT):
        return
    if _DIGITS.search(text):
        for pattern, valid in _NATIONAL:
            yield from _each(text, pattern, "national id", valid)
        yield from _each(text, _CARD, "card", _is_card, _NO_CARD)
    if _CODED.search(text):
        yield from _each(text, _FISCAL, "national id", codicefiscale.is_valid)
        # Some banks' check digits differ from the library's rules.
        yield from _each(text, _IBAN, "iban", lambda each: iban.is_valid(each, check_country=False))
    if _MIDDLE.search(text):
        yield from _each(text, _IP, "ip address", _is_public, _NO_IP)
    if "+" in text:
        yield from _phones(text, _PHONE, (None,))
    if "00" in text:
        yield from _phones(text, _ZEROS, (None,))
    if regions:
        yield from _phones(text, _LOCAL, regions)
        for match in _CALLED_PHONE.finditer(text):
            yield _Found(*match.span("number"), "phone")


# Characters before a number.
_BEFORE = 24


def _each(
    text: str,
    pattern: re.Pattern[str],
    kind: str,
    valid: Callable[[str], bool] = lambda _: True,
    unless: re.Pattern[str] | None = None,
) -> Iterator[_Found]:
    for match in pattern.finditer(text):
        start = match.start()
        if valid(match[0]) and (unless is None or not unless.search(text[max(0, start - _BEFORE) : start])):
            yield _Found(match.start(), match.end(), kind)


def _phones(text: str, pattern: re.Pattern[str], regions: Sequence[str | None]) -> Iterator[_Found]:
    for count, match in enumerate(pattern.finditer(text)):
        length = len(match[0]) if count >= _CHECKED else _length_of_phone(match[0], regions)
        if length:
            yield _Found(match.start(), match.start() + length, "phone")


def _length_of_phone(text: str, regions: Sequence[str | None]) -> int:
    ends = [match.end() for match in _DIGITS_IN_A_ROW.finditer(text)]
    for end in reversed(ends[-_PARTS_TRIED:]):
        if any(_is_phone(text[:end], region) for region in regions):
            return end
    return 0


def _is_phone(text: str, region: str | None) -> bool:
    try:
        number = phonenumbers.parse("+" + text[2:] if text.startswith("00") else text, region)
    except phonenumbers.NumberParseException:
        return False
    if not phonenumbers.is_valid_number(number):
        return False
    # Most dates would be numbers of Washington.
    usual = phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.NATIONAL)
    return region is None or _parts(text) == _parts(usual)


def _parts(text: str) -> list[str]:
    parts = _DIGITS_IN_A_ROW.findall(text)
    return parts[1:] if parts[0] in ("0", "1") else parts


def _is_card(text: str) -> bool:
    digits = re.sub(r"\D", "", text)
    return _ISSUED.fullmatch(digits) is not None and len(set(digits)) > 1 and luhn.is_valid(digits)


def _is_public(text: str) -> bool:
    try:
        address = ip_address(text)
    except ValueError:
        return False
    # `[::2]` is a slice and a valid address
    return address.is_global and (address.version == 4 or address in _UNICAST)


class PersonalData:
    """Masks personal data in events: `[redacted:email]`."""

    def __init__(self, regions: Sequence[str]) -> None:
        unknown = set(regions) - {ANYWHERE} - phonenumbers.SUPPORTED_REGIONS
        if unknown:
            raise ConfigError(f"mask_personal takes regions as US or DE, or {ANYWHERE!r}, not {sorted(unknown)}")
        self._regions = tuple(region for region in regions if region != ANYWHERE)

    def masked_json(self, data: bytes) -> bytes:
        """Return the same object if there is nothing to mask."""
        if b"@" not in data and not any(each.search(data) for each in _IN_JSON):
            return data
        value = orjson.loads(data)
        masked = self.masked(value)
        return data if masked == value else orjson.dumps(masked)

    def masked(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.masked_text(value)
        if isinstance(value, dict):
            return {self.masked_text(name): self._member(name, member) for name, member in value.items()}
        if isinstance(value, list):
            return [self.masked(member) for member in value]
        if type(value) is int:
            text = str(value)
            masked = self.masked_text(text)
            return value if masked == text else masked
        return value

    def _member(self, name: str, value: Any) -> Any:
        if self._regions and type(value) in (str, int) and _PHONE_KEY.search(name.lower()):
            return mask_of("phone") if _BARE_PHONE.fullmatch(str(value)) else self.masked(value)
        return self.masked(value)

    def masked_text(self, text: str) -> str:
        parts: list[str] = []
        copied = 0
        for start, end, kind in sorted(personal_data(text, self._regions), key=lambda each: (each.start, -each.end)):
            if start >= copied:
                parts += text[copied:start], mask_of(kind.replace(" ", "_"))
                copied = end
        return "".join(parts) + text[copied:] if parts else text
