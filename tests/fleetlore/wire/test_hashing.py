import subprocess
import sys
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.config import Settings
from fleetlore.errors import ConfigError
from fleetlore.wire.stats import HASHES, drawn, stable_hash, user_hash, withheld
from tests.rows import for_each


@given(st.text())
def test_a_hash_is_a_number_that_json_keeps(text: str) -> None:
    assert 0 <= stable_hash(text) < HASHES
    assert int(float(stable_hash(text))) == stable_hash(text)


@given(st.text(), st.floats(0, 1), st.floats(0, 1))
def test_what_one_share_draws_a_larger_one_draws_as_well(key: str, one: float, other: float) -> None:
    assert not drawn(key, 0.0) and drawn(key, 1.0)
    assert drawn(key, min(one, other)) <= drawn(key, max(one, other))


texts = st.text(max_size=20)


@given(texts, texts)
def test_nothing_and_everything_are_withheld_at_the_bounds(session: str, item: str) -> None:
    assert not withheld(session, item, 0.0)
    assert withheld(session, item, 1.0)


@given(texts, texts, st.floats(0, 1), st.floats(0, 1))
def test_a_larger_share_withholds_what_a_smaller_one_does_and_more(session: str, item: str, a: float, b: float) -> None:
    assert withheld(session, item, min(a, b)) <= withheld(session, item, max(a, b))


@for_each("share", [0.05, 0.5])
def test_the_share_is_kept_by_session_and_by_item(share: float) -> None:
    names = [f"n{number}" for number in range(4000)]
    spread = 4 * (share * (1 - share) / len(names)) ** 0.5
    assert abs(sum(withheld(name, "item", share) for name in names) / len(names) - share) < spread
    assert abs(sum(withheld("session", name, share) for name in names) / len(names) - share) < spread


def test_two_items_are_drawn_independently() -> None:
    sessions = [f"s{number}" for number in range(4000)]
    both = sum(withheld(each, "a", 0.5) and withheld(each, "b", 0.5) for each in sessions) / len(sessions)
    assert abs(both - 0.25) < 0.03


def test_the_draw_is_the_same_in_another_process() -> None:
    code = "from fleetlore.wire.stats import withheld; print([withheld(f's{n}', 'i', .3) for n in range(50)])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == str([withheld(f"s{number}", "i", 0.3) for number in range(50)])


@for_each("share", [-0.1, 1.1, float("nan")])
def test_a_share_that_cannot_be_is_refused(share: float) -> None:
    with pytest.raises(ConfigError, match="HOLDOUT_SHARE"):
        Settings(holdout_share=share)
    assert Settings(holdout_share=0.0).holdout_share == 0.0
    assert Settings.from_env({"FLEETLORE_HOLDOUT_SHARE": "0.2"}).holdout_share == 0.2


@for_each("name", ["José Álvarez", "Zoë", "김민준", "ファイル", "Ａｎｎａ", "plain"])
def test_a_user_is_one_in_every_normal_form(name: str) -> None:
    assert len({user_hash(normalize(form, name)) for form in ("NFC", "NFD")}) == 1
    assert user_hash(name) != user_hash(f"{name}.")
