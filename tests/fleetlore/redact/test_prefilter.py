import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fleetlore.redact import prefilter as needles
from fleetlore.redact.prefilter import Needles

WORDS = [b"key", b"secret", b"pwd", b"token"]
EXACT = [b"eyJ", b"AKIA", b"ghp_"]
FINDER = Needles(EXACT, WORDS)
few_letters = st.lists(st.sampled_from([b"k", b"e", b"y", b"J", b"K", b"\xff", b"\n", *WORDS, *EXACT])).map(b"".join)


def expected(texts: list[bytes]) -> dict[int, set[bytes]]:
    found = [{n for n in EXACT if n in text} | {word for word in WORDS if word in text.lower()} for text in texts]
    return {number: needles for number, needles in enumerate(found) if needles}


@given(st.lists(few_letters | st.binary(max_size=9), max_size=40), st.integers(4, 20) | st.just(needles._BLOCK_BYTES))
@example([b""], 4)
@example([b"key"], 4)
@example([b"ke", b"y"], 4)
@example([b"", b"x" * 100, b"KEY", b""], 4)
def test_exactly_the_needles_of_each_text_are_found(texts: list[bytes], block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(needles, "_BLOCK_BYTES", block)
        found = FINDER.find(texts)
    assert found == expected(texts)
    assert list(found) == sorted(found)


def test_a_needle_has_three_bytes_or_more() -> None:
    with pytest.raises(ValueError, match="three bytes"):
        Needles([b"ab"])
