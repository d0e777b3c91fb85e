"""Plant personal data in texts: numbers that issuers, registries and regulators give out as examples."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import phonenumbers
from stdnum import luhn

from benchmarks.secrets import Planted

#: Regions whose local numbers are planted, and masked.
REGIONS = ("US", "DE", "GB", "FR", "IN", "BR")
# First digits and length.
_ISSUERS = (
    ("4", 16), ("51", 16), ("2221", 16), ("34", 15), ("37", 15), ("6011", 16), ("3530", 16), ("36", 14), ("62", 16),
)  # fmt: skip
# Lengths from the registry (ISO 13616).
_IBANS = (
    "AT611904300234573201", "BE68539007547034", "CH9300762011623852957", "DE89370400440532013000",
    "DK5000400440116243", "ES9121000418450200051332", "FI2112345600000785", "FR1420041010050500013M02606",
    "GB29NWBK60161331926819", "GR1601101250000000012300695", "IE29AIBK93115212345678", "IT60X0542811101000000123456",
    "LU280019400644750000", "NL91ABNA0417164300", "NO9386011117947", "PL61109010140000071219812874",
    "PT50000201231234567890154", "SE4550000000058398257466", "BR1800360305000010009795493C1",
    "SA0380000000608010167519",
)  # fmt: skip
_NATIONAL = (
    "536-90-4399", "078-05-1121", "390.533.447-05", "111.444.777-35", "12345678Z", "54362315-K", "295109912611193",
    "253072B07300470", "RCCMNL83S18D969H",
)  # fmt: skip
_ADDRESSES = ("8.8.8.8", "93.184.215.14", "151.101.1.69", "2001:4860:4860::8888", "2606:4700:4700::1111")
_MAILS = (
    "jane.doe@example.com", "j+news@mail.example.co.uk", "o_brien-7@sub.example.org", "UPPER.CASE@EXAMPLE.COM",
    "a@b.io", "first.last@firm.museum",
)  # fmt: skip
_PLACES = (
    "{}", "no account for {}", "customer {}, gold", '{{"q": "{}"}}', "SELECT * FROM c WHERE x = '{}'", "({})",
    "reach me at {} please", "error:\n{}\nend", "https://x.example/?c={}&p=1", "it is {}.",
)  # fmt: skip


def personal(rng: Random, each: int) -> Iterator[Planted]:
    """Texts with one identity each, `each` of a form."""
    for kind, value in _identities(rng):
        for place in rng.sample(_PLACES, each):
            yield Planted(kind, place.format(value), value)


def _identities(rng: Random) -> Iterator[tuple[str, str]]:
    for kind, values in (
        ("email", _MAILS),
        ("iban", [*_IBANS, *(_in_fours(each) for each in _IBANS), *(each.lower() for each in _IBANS)]),
        ("national id", _NATIONAL),
        ("ip address", _ADDRESSES),
        ("ip and port", [each + ":443" for each in _ADDRESSES if "." in each]),
    ):
        yield from ((kind, value) for value in values)
    for first, length in _ISSUERS:
        digits = first + "".join(rng.choice("0123456789") for _ in range(length - len(first) - 1))
        card = digits + luhn.calc_check_digit(digits)
        fours = _in_fours(card)
        for written in (card, fours, fours.replace(" ", "-"), fours.replace(" ", "\u00a0"), fours.replace(" ", "  ")):
            yield "card", written
    for region in sorted(phonenumbers.SUPPORTED_REGIONS):
        number = phonenumbers.example_number(region)
        if number is not None:
            for form in (phonenumbers.PhoneNumberFormat.INTERNATIONAL, phonenumbers.PhoneNumberFormat.E164):
                yield "phone", phonenumbers.format_number(number, form)
    for region in REGIONS:
        number = phonenumbers.example_number(region)
        if number is not None:
            yield "local phone", phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.NATIONAL)
            international = phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.INTERNATIONAL)
            yield "phone, 00", international.replace("+", "00")
            yield "phone, in digits", f"phone: {number.national_number}"


#: Harmless numbers: versions, orders.
HARMLESS = (
    "nginx/1.25.3.1", "version 1.2.3.4", "Version: 10.0.19045.2", "v8.8.8.8", "driver 31.0.15.4601", "libfoo==4.1.0.2",
    "chrome/120.0.6099.109", "firmware 5.13.1.2", "pkg@2.0.0.1", "build 12.0.1.9", "release 9.9.9.9", "ver 8.8.4.4",
    "order 4111111111111111", "order no. 5555555555554444", "Order #4012888888881881", "invoice 378282246310005",
    "tracking number 6011111111111117", "ticket: 3530111333300000", "order_id=4222222222222", "ref 30569309025904",
    "SKU 4000000000000002", "serial 5105105105105100", "batch 4242424242424242", "Bestellung 4539578763621486",
    "order 4155552671", "invoice 2125550123", "ticket 3012345678", "order 20240520120001", "ref 0012345678901",
    "id 1700000000000", "took 1234567890 ns", "pid 4155552671", "1700000000", "sha 89370400440532013000",
    "2024-05-20 12:00:01", "10.0.0.1:8080", "127.0.0.1:5432", "192.168.1.17", "0.0.0.0:80", "x[::2]", "12:34:56:78",
    "1.2.3", "3.11.4", "de89 is a colour", "ab12cd34", "00:1b:44:11:3a:b7", "4111 1111 1111 1112", "415-555-267",
)  # fmt: skip


def _in_fours(value: str) -> str:
    return " ".join(value[start : start + 4] for start in range(0, len(value), 4))
