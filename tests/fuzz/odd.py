"""Make odd inputs of valid ones, by the choices of a `random.Random`.

The tests and the long run pass a seeded one. For atheris the choices are read from the bytes that it mutates
(`FromBytes`).
"""

import gzip
import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")

TEXTS = (
    "", " ", "0", "-1", "null", "user's task", 'say "hi"', "back\\slash", "a or 1 == 1", "'); --", "{}", "[]", "%s%n",
    "../../etc/passwd", "{0.__class__}", "${x}", "\x00", "tab\there", "line\nbreak", "\r\n\r\n", "\x1f", "\x7f", "\x85",
    "\u00a0", "\u2028", "\u202eabc", "\u200b", "\ufeff", "\ufffd", "\ud800", "\udfff", "\ud83d", "é" * 3, "日本語",
    "👩‍👩‍👧", "ﷺ", "a" * 256, "b" * 257, "é" * 256, "x" * 3_000, "default", "__proto__", "session#1", "a:b", "*",
    "1e400", "2026-01-01T00:00:00Z", "2026-01-01T00:04:59Z", "9999-12-31T23:59:59+14:00", "0001-01-01T00:00:00Z",
    "2026-13-45", "ghp_" + "a1B2" * 9,
    "password=hunter2", "<fleet-memory>", "</fleet-memory>", "http://[::1", "C:\\x", "=cmd|' /C calc'!A0",
)  # fmt: skip
NUMBERS = (
    0, -1, 1, 0.0, -0.0, 0.5, 255, 256, 2**31, -(2**31) - 1, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**30,
    10**400, 1e308, 5e-324, float("nan"), float("inf"), float("-inf"),
)  # fmt: skip
# JSON that no serializer writes. A text that looks like the mark on the left becomes what stands on the right.
_RAW = {
    "\x01deep array": "[" * 2_000 + "]" * 2_000,
    "\x01deep object": '{"a":' * 2_000 + "1" + "}" * 2_000,
    "\x01number": "1" * 5_000,
    "\x01float": "1e9999",
    "\x01zero": "-0e-0",
}
_BYTES = (
    b"", b"\x00", b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\xef\xbb\xbf", b'"', b"{", b"[", b",", b"\x1f\x8b", b"\n",
)  # fmt: skip


class FromBytes(Random):
    """Chooses by given bytes; all choices after their end are zero."""

    def __init__(self, given: bytes) -> None:
        super().__init__(0)
        self._left = int.from_bytes(given, "little")

    def getrandbits(self, k: int) -> int:
        self._left, chosen = self._left >> k, self._left & ((1 << k) - 1)
        return chosen

    def random(self) -> float:
        return self.getrandbits(16) / 2**16


def chance(random: Random, one_in: int) -> bool:
    return random.randrange(one_in) == one_in - 1


def text(random: Random) -> str:
    """An odd text; sometimes two in one, and rarely a long one."""
    chosen = random.choice(TEXTS)
    if chance(random, 4):
        chosen += random.choice(TEXTS)
    return chosen * random.choice((1, 100, 1_000)) if chance(random, 200) else chosen


def value(random: Random, depth: int = 2) -> Any:
    """An odd JSON value, of any type."""
    kind = random.randrange(10)
    if kind < 4 or not depth:
        return text(random)
    if kind < 6:
        return random.choice(NUMBERS)
    if kind == 6:
        return random.choice((None, True, False))
    if kind == 7:
        return [value(random, depth - 1) for _ in range(random.randrange(3))]
    if kind == 8:
        return {text(random): value(random, depth - 1) for _ in range(random.randrange(3))}
    return random.choice(tuple(_RAW)) if chance(random, 20) else [{}]


def changed(random: Random, valid: Any, edits: int) -> Any:
    """A copy of a JSON value in which so many places are odd."""
    copied = json.loads(json.dumps(valid))
    for _ in range(edits):
        copied = _edited(random, copied)
    return copied


def _edited(random: Random, node: Any) -> Any:
    """Replace, leave out, double or add one part, at any depth."""
    if not isinstance(node, dict | list) or not node or chance(random, 12):
        return value(random)
    keys: Sequence[Any] = list(node) if isinstance(node, dict) else range(len(node))
    key = random.choice(keys)
    kind = random.randrange(8)
    if isinstance(node[key], dict | list) and kind < 6:
        node[key] = _edited(random, node[key])
    elif kind < 4:
        node[key] = value(random)
    elif kind == 4:
        del node[key]
    elif isinstance(node, list):
        node.insert(key, node[key])
    elif kind == 5:
        node[text(random)] = node.pop(key)
    else:
        node[random.choice(keys)] = node[key]
    return node


def encoded(random: Random, found: Any) -> bytes:
    """JSON as odd writers write it: escapes of half surrogates, NaN, repeated keys, nesting without an end, a BOM."""
    body = json.dumps(found, ensure_ascii=not chance(random, 3), separators=(",", ":"))
    if "\\u0001" in body:
        for mark, raw in _RAW.items():
            body = body.replace(json.dumps(mark), raw)
    if chance(random, 16) and '":' in body:
        body = body.replace("{", f'{{{json.dumps(random.choice(TEXTS))}:1,"data":7,', 1)
    encoding = "utf-16" if chance(random, 100) else "utf-8-sig" if chance(random, 60) else "utf-8"
    return body.encode(encoding, "surrogatepass")


def mutated(random: Random, given: bytes) -> bytes:
    """Bytes that are cut, flipped, doubled, moved or extended in one to three places."""
    data = bytearray(given)
    for _ in range(random.randrange(1, 4)):
        at = random.randrange(len(data) + 1)
        to = min(len(data), at + random.choice((1, 2, 4, 8, 64)))
        match random.randrange(6):
            case 0:
                del data[at:]
            case 1:
                data[at:to] = random.choice(_BYTES)
            case 2:
                data[at:at] = random.choice(_BYTES)
            case 3:
                data[at:at] = data[at:to]
            case 4 if at < len(data):
                data[at] ^= 1 << random.randrange(8)
            case _:
                data[at:to] = random.randbytes(to - at)
    return bytes(data)


def json_of(random: Random, valid: Any) -> bytes:
    """The bytes of a valid document with none to three odd places, and of one in twelve with odd bytes too."""
    found = encoded(random, changed(random, valid, random.choice((0, 1, 1, 1, 2, 3))))
    return mutated(random, found) if chance(random, 12) else found


def any_bytes(random: Random, *make: Callable[[Random], bytes]) -> bytes:
    """Bytes of one of these makers, and sometimes none, noise, or the packed form."""
    match random.randrange(40):
        case 0:
            return b""
        case 1:
            return random.randbytes(random.randrange(64))
        case 2:
            return gzip.compress(random.choice(make)(random), 1, mtime=0)
    return random.choice(make)(random)
