"""Find disguised secrets: with invisible characters inside, in base64, or repeated."""

from __future__ import annotations

import re
from base64 import b64encode, urlsafe_b64decode
from binascii import Error
from collections.abc import Mapping

__all__ = [
    "BASE64", "BASE64_NEEDLES", "BASE64_SHAPE", "COLOURING", "HIDING", "decoded", "masked_again", "uncovered",
]  # fmt: skip

# Zero-width and soft characters, and terminal colours.
_COVER = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]|\x1b\\[[0-9;]{0,16}[A-Za-z]")
# Removed sequences start with one of these, in UTF-8 or JSON.
COLOURING = (re.compile(rb"\x1b\["), re.compile(rb"\\u001b\["))
HIDING = re.compile(b"|".join(each.encode() for each in "\u00ad\u200b\u200c\u200d\u2060\ufeff"))
# Prefixes and names of secrets.
_SIGNS = (b"ghp_", b"AKIA", b"sk-ant-", b"password", b"passwd", b"secret", b"token", b"PRIVATE KEY")
# Minimum characters of a secret that is masked when repeated; the second if it has letters or digits only.
_LEAST, _LEAST_PLAIN = 8, 16
_MOST = 512  # Longer values are hardly repeated, and compiling their pattern takes 1 ms.
# Mask the rest after a mask: the form ended too early, or it was truncated.
_TAIL = re.compile(r"(?<=[a-z0-9]\])(?=[\w+/=~?.-]{0,64}\d)[\w+/=~?.-]{8,4096}")
_MASK = re.compile(r"\[redacted:\w{1,40}\]\Z")


def _in_base64(word: bytes) -> set[str]:
    """Return the common base64 parts of all texts with the word, for its three alignments."""
    return {
        b64encode(bytes(shift) + word).decode()[-(-shift * 8 // 6) : (shift + len(word)) * 8 // 6] for shift in range(3)
    }


# Only base64 texts with one of these are decoded.
BASE64_NEEDLES = tuple(sorted({form for word in _SIGNS for form in _in_base64(word)}))
BASE64_SHAPE = r"[A-Z][A-Za-z0-9+/_-]{11}"
BASE64 = re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_-]{16,}={0,2}")


def uncovered(text: str) -> str:
    return _COVER.sub("", text) if "\x1b[" in text or not text.isascii() else text


def decoded(text: str) -> str | None:
    text = text.rstrip("=").replace("+", "-").replace("/", "_")
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except (Error, ValueError):
        return None


def masked_again(text: str, known: Mapping[str, str]) -> str:
    """Mask known secrets wherever they are repeated, also in base64 and hex. `known`: the mask of each secret."""
    for secret, mask in known.items():
        if (_LEAST_PLAIN if secret.isalpha() or secret.isdigit() else _LEAST) <= len(secret) <= _MOST:
            data = secret.encode("utf-8", "surrogatepass")
            for form in (secret, b64encode(data).decode().rstrip("="), data.hex()):
                if form in text:
                    text = re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", mask, text)
    return _TAIL.sub(_without, text)


def _without(match: re.Match[str]) -> str:
    return "" if _MASK.search(match.string, max(0, match.start() - 64), match.start()) else match[0]
