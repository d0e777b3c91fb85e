"""Find secrets that are written otherwise: with invisible characters inside, in base64, or a second time."""

from __future__ import annotations

import re
from base64 import b64encode, urlsafe_b64decode
from binascii import Error
from collections.abc import Mapping

__all__ = [
    "BASE64", "BASE64_NEEDLES", "BASE64_SHAPE", "COLOURING", "HIDING", "decoded", "masked_again", "uncovered",
]  # fmt: skip

# Zero-width and soft characters, and what colours a terminal.
_COVER = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]|\x1b\\[[0-9;]{0,16}[A-Za-z]")
#: What `uncovered` takes away begins with one of these, in UTF-8 and in JSON.
COLOURING = (re.compile(rb"\x1b\["), re.compile(rb"\\u001b\["))
HIDING = re.compile(b"|".join(each.encode() for each in "\u00ad\u200b\u200c\u200d\u2060\ufeff"))
# How secrets begin, and what stands beside them.
_SIGNS = (b"ghp_", b"AKIA", b"sk-ant-", b"password", b"passwd", b"secret", b"token", b"PRIVATE KEY")
# Characters of a secret that is known again; and where it is nothing but letters or digits.
_LEAST, _LEAST_PLAIN = 8, 16
_MOST = 512  # what is longer is no word that is said twice, and a pattern of it takes a millisecond to make
#: What hangs on a mask belongs to it: a form ended too early, or one was cut.
_TAIL = re.compile(r"(?<=[a-z0-9]\])(?=[\w+/=~?.-]{0,64}\d)[\w+/=~?.-]{8,4096}")
_MASK = re.compile(r"\[redacted:\w{1,40}\]\Z")


def _in_base64(word: bytes) -> set[str]:
    """What is the same in the base64 of every text that holds the word: it may begin at three places."""
    return {
        b64encode(bytes(shift) + word).decode()[-(-shift * 8 // 6) : (shift + len(word)) * 8 // 6] for shift in range(3)
    }


#: One of these is in every text in base64 that is looked into.
BASE64_NEEDLES = tuple(sorted({form for word in _SIGNS for form in _in_base64(word)}))
BASE64_SHAPE = r"[A-Z][A-Za-z0-9+/_-]{11}"
BASE64 = re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_-]{16,}={0,2}")


def uncovered(text: str) -> str:
    """The text without characters that nobody sees."""
    return _COVER.sub("", text) if "\x1b[" in text or not text.isascii() else text


def decoded(text: str) -> str | None:
    """What a text in base64 says; None where it says no text."""
    text = text.rstrip("=").replace("+", "-").replace("/", "_")
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except (Error, ValueError):
        return None


def masked_again(text: str, known: Mapping[str, str]) -> str:
    """The text with secrets that were masked in it masked wherever they stand, in base64 and hex too.

    Args:
        known: the mask of each secret.
    """
    for secret, mask in known.items():
        if (_LEAST_PLAIN if secret.isalpha() or secret.isdigit() else _LEAST) <= len(secret) <= _MOST:
            data = secret.encode("utf-8", "surrogatepass")
            for form in (secret, b64encode(data).decode().rstrip("="), data.hex()):
                if form in text:
                    text = re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", mask, text)
    return _TAIL.sub(_without, text)


def _without(match: re.Match[str]) -> str:
    return "" if _MASK.search(match.string, max(0, match.start() - 64), match.start()) else match[0]
