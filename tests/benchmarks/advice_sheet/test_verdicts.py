from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.advice_sheet.verdicts import Reading, kappa, shares
from fleetlore.errors import ConfigError


def reading(*verdicts: str, what: str = "calls", seed: int = 0) -> Reading:
    return Reading(what, "shop", seed, {str(number): verdict for number, verdict in enumerate(verdicts)})


def test_shares_are_of_what_was_said() -> None:
    said = shares(reading("right", "right", "wrong", "none"))
    assert "something said: 3 of 4 (30% to 95%)" in said
    assert "right: 2 of 3" in said and "vague: 0 of 3" in said and "none" not in said
    assert "useful: 1 of 2" in shares(reading("useful", "trivial", what="items"))


def test_agreement_beyond_chance() -> None:
    one = reading("right", "right", "wrong", "wrong")
    assert kappa(one, one) == 1.0
    assert kappa(one, reading("right", "wrong", "right", "wrong")) == 0.0
    assert kappa(one, reading("right", "right", "wrong", "right")) == pytest.approx(0.5)
    assert kappa(reading("vague"), reading("vague")) is None


@pytest.mark.parametrize("other", [reading("right"), reading("right", "vague", seed=1)])
def test_readings_of_different_sheets_do_not_agree(other: Reading) -> None:
    with pytest.raises(ConfigError, match="different sheets"):
        kappa(reading("right", "vague"), other)


def test_a_file_and_back(tmp_path: Path) -> None:
    one = reading("right", "none")
    one.write(tmp_path / "v.csv")
    assert Reading.read(tmp_path / "v.csv") == one


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "not of one sheet"),
        ("a,b\n1,2\n", "no file of verdicts"),
        ("what,source,seed,id,verdict\ncalls,shop,0,1,\n", "verdict on 1 is ''"),
        ("what,source,seed,id,verdict\ncalls,shop,0,1,good\n", "not one of right, vague, wrong, none"),
        ("what,source,seed,id,verdict\ncalls,shop,0,1,right\ncalls,shop,1,2,right\n", "not of one sheet"),
        ("what,source,seed,id,verdict\ncalls,shop,0,1,right\ncalls,shop,0,1,vague\n", "not of one sheet"),
    ],
)
def test_what_is_no_verdict_is_refused(tmp_path: Path, text: str, match: str) -> None:
    (tmp_path / "v.csv").write_text(text)
    with pytest.raises(ConfigError, match=match):
        Reading.read(tmp_path / "v.csv")
