"""Find texts with any of many short strings, in one numpy pass; and secrets in disguise.

This is Teddy (Hyperscan, Wang et al., NSDI 2019) on pairs of bytes: a table gives the buckets of needles whose last
four bytes can have a pair as first or second half. It takes 2 ns a byte, fifty `needle in text` tests 15.
"""

import re
from base64 import b64encode, urlsafe_b64decode
from binascii import Error
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from unicodedata import normalize

import numpy as np
import numpy.typing as npt

__all__ = [
    "BASE64", "BASE64_NEEDLES", "BASE64_SHAPE", "COLOURING", "HIDING", "Needles", "decoded", "masked_again",
    "uncovered", "with_own_letters",
]  # fmt: skip

_GRAM = 4
_ANY = bytes(range(256))
_BUCKETS = 8
_BLOCK_BYTES = 32 * 1024  # intermediate arrays stay in the processor's cache
# Without the case bit, which merges some other characters too.
_WITHOUT_CASE, _THREE = 0xDFDFDFDF, 0xDFDFDF
_SECOND = np.uint16(_BUCKETS)
# More candidates than ordinary blocks have.
_MANY = 256
# Multiplicative hashing (Knuth) to 16 bits.
_FACTOR, _SHIFT = np.uint32(0x9E3779B1), np.uint32(16)


class Needles:
    def __init__(self, exact: Iterable[bytes], folded: Iterable[bytes] = ()) -> None:
        exact_endings = _by_ending(exact)
        folded_endings = _by_ending(needle.lower() for needle in folded)
        places = [[bytes([byte]) for byte in gram] for gram in sorted(exact_endings)]
        places += [[bytes([byte, *bytes([byte]).swapcase()]) for byte in gram] for gram in sorted(folded_endings)]
        # Low byte: buckets with the pair as first half; high byte: as second half.
        halves = np.zeros((256, 256), np.uint16)
        for number, place in enumerate(sorted(places, key=len)):
            if len(place) < 3:
                raise ValueError("a needle has three bytes or more")
            first, second, third, fourth = (*place, _ANY)[:_GRAM]
            bucket = number * _BUCKETS // len(places)
            halves[np.ix_(list(second), list(first))] |= np.uint16(1 << bucket)
            halves[np.ix_(list(fourth), list(third))] |= np.uint16(1 << bucket + _BUCKETS)
        self._halves = halves.reshape(-1)
        # Needles by their last four bytes without case, and whether each ignores case.
        self._ending: dict[int, list[tuple[bytes, bool]]] = {}
        for endings, folds in ((exact_endings, False), (folded_endings, True)):
            for ending, needles in endings.items():
                gram = int.from_bytes(ending, "little") & _WITHOUT_CASE
                self._ending.setdefault(gram, []).extend((needle, folds) for needle in needles)

        self._hashed = np.zeros(1 << 16, np.bool_)
        self._hashed[_hash(np.array(list(self._ending), np.uint32))] = True

    def find(self, texts: Sequence[bytes]) -> dict[int, set[bytes]]:
        """Return the needles of each text that has any by its ascending index, folded ones in lower case."""
        joined = b"\n".join(texts) + b"\n"  # tests a needle of three bytes with the next byte
        found: dict[int, set[bytes]] = {}
        ends = list(accumulate(len(text) + 1 for text in texts))
        seen: set[int] = set()  # tested endings of this text
        index = end = 0
        for position, gram in self._endings(joined, ends):
            if position >= end:
                index = bisect_right(ends, position)
                end, seen = ends[index], set()
            if gram not in seen:
                seen.add(gram)
                for needle, folded in self._ending[gram]:
                    if needle in (texts[index].lower() if folded else texts[index]):
                        found.setdefault(index, set()).add(needle)
        return found

    def _endings(self, joined: bytes, ends: Sequence[int]) -> Iterator[tuple[int, int]]:
        for start in range(0, len(joined) - _GRAM + 1, _BLOCK_BYTES):
            pairs = min(_BLOCK_BYTES + 2, len(joined) - 1 - start)
            overlapping = np.ndarray((pairs,), "<u2", joined, start, (1,))
            # Every pair is a valid index; "clip" skips numpy's check.
            halves = self._halves.take(overlapping, mode="clip")
            both = halves[2:] >> _SECOND
            both &= halves[:-2]
            places = (both != 0).nonzero()[0]
            grams = np.ndarray((pairs - 2,), "<u4", joined, start, (1,))[places] & _WITHOUT_CASE
            # Most candidates mix two needles of a bucket.
            likely = self._hashed[_hash(grams)] | self._hashed[_hash(grams & _THREE)]
            places, grams = places[likely], grams[likely]
            if len(places) > _MANY:
                # Test each ending once in a repetitive text.
                texts = np.searchsorted(ends, places + start, "right")
                new = np.sort(np.unique((texts << 32) | grams, return_index=True)[1])
                places, grams = places[new], grams[new]
            for position, gram in zip(places.tolist(), grams.tolist(), strict=True):
                if gram in self._ending:
                    yield start + position, gram
                if gram & _THREE in self._ending:
                    yield start + position, gram & _THREE


def _hash(grams: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    return (grams * _FACTOR) >> _SHIFT


def _by_ending(needles: Iterable[bytes]) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    for needle in needles:
        found.setdefault(needle[-_GRAM:], []).append(needle)
    return found


_COVER = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]|\x1b\\[[0-9;]{0,16}[A-Za-z]")
# Beginnings of removed sequences, in UTF-8 or JSON.
COLOURING = (re.compile(rb"\x1b\["), re.compile(rb"\\u001b\["))
# Letters that look Latin: full-width, mathematical, and the Cyrillic ones beside Latin letters.
_CYRILLIC = dict(zip("\u0430\u0435\u043e\u0440\u0441\u0443\u0445", "aeopcyx", strict=True))
_WIDE = "\uff21-\uff3a\uff41-\uff5a\U0001d400-\U0001d7ff"
_LETTERS = "".join(_CYRILLIC)
_ALIKE = re.compile(rf"[{_WIDE}{_LETTERS}](?:(?<=[{_WIDE}])|(?=[{_LETTERS}]{{0,3}}[A-Za-z])|(?<=[A-Za-z].))", re.DOTALL)
_BESIDE_LATIN = rb"(?:[A-Za-z]|(?<=[A-Za-z][\xd0\xd1].))"
# Each alternative begins with a literal byte, or the search takes seven times as long.
HIDING = re.compile(
    b"|".join(each.encode() for each in "\u00ad\u200b\u200c\u200d\u2060\ufeff")
    + rb"|\xef\xbc[\xa1-\xba]|\xef\xbd[\x81-\x9a]|\xf0\x9d[\x90-\x9f]|\xd0[\xb0\xb5\xbe]%b|\xd1[\x80\x81\x83\x85]%b"
    % (_BESIDE_LATIN, _BESIDE_LATIN),
    re.DOTALL,
)
_SIGNS = (b"ghp_", b"AKIA", b"sk-ant-", b"password", b"passwd", b"secret", b"token", b"PRIVATE KEY")
# The second is for letters and digits only.
_LEAST, _LEAST_PLAIN = 8, 16
_MOST = 512  # Compiling a longer pattern takes 1 ms.
_TAIL = re.compile(r"(?<=[a-z0-9]\])(?=[\w+/=~?.-]{0,64}\d)[\w+/=~?.-]{8,4096}")
_MASK = re.compile(r"\[redacted:\w{1,40}\]\Z")


def _in_base64(word: bytes) -> set[str]:
    return {
        b64encode(bytes(shift) + word).decode()[-(-shift * 8 // 6) : (shift + len(word)) * 8 // 6] for shift in range(3)
    }


BASE64_NEEDLES = tuple(sorted({form for word in _SIGNS for form in _in_base64(word)}))
BASE64_SHAPE = r"[A-Z][A-Za-z0-9+/_-]{11}"
BASE64 = re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_-]{16,}={0,2}")


def uncovered(text: str) -> str:
    if text.isascii():
        return _COVER.sub("", text) if "\x1b[" in text else text
    return _ALIKE.sub(lambda match: _CYRILLIC.get(match[0]) or normalize("NFKC", match[0]), _COVER.sub("", text))


def with_own_letters(masked: str, plain: str, text: str) -> str:
    """Return `masked`, made of `uncovered(text)`, with the letters of `text` outside its masks."""
    own = _COVER.sub("", text)
    if own == plain:
        return masked
    parts: list[str] = []
    start = 0
    for part in re.split(r"(\[redacted:\w{1,40}\])", masked):
        if _MASK.match(part) is None and (place := plain.find(part, start)) >= 0:
            start = place + len(part)
            part = own[place:start]
        parts.append(part)
    return "".join(parts)


def decoded(text: str) -> str | None:
    text = text.rstrip("=").replace("+", "-").replace("/", "_")
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except (Error, ValueError):
        return None


def masked_again(text: str, known: Mapping[str, str]) -> str:
    """Mask known secrets wherever they are repeated, also in base64 and hex."""
    for secret, mask in known.items():
        if (_LEAST_PLAIN if secret.isalpha() or secret.isdigit() else _LEAST) <= len(secret) <= _MOST:
            data = secret.encode("utf-8", "surrogatepass")
            for form in (secret, b64encode(data).decode().rstrip("="), data.hex()):
                if form in text:
                    text = re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", mask, text)
    return _TAIL.sub(_without, text)


def _without(match: re.Match[str]) -> str:
    return "" if _MASK.search(match.string, max(0, match.start() - 64), match.start()) else match[0]
