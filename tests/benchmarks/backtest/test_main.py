from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from benchmarks.backtest.__main__ import measure
from benchmarks.command import command_app
from tests.streams.commands.test_backtest import fleet, write

SMOKE = Path(__file__).parents[4] / "shared" / "data" / "smoke"
KEYS = {
    "judge",
    "recurrence",
    "junk_rate",
    "harmless_warnings",
    "advice",
    "advice_by_tool",
    "advice_beside",
}
ADVICE = {
    "calls",
    "failed",
    "warned",
    "fail_warned",
    "fail_unwarned",
    "auroc",
    "auroc_first",
    "auroc_after_success",
    "named_kind",
    "named_exact",
    "way_out",
    "way_out_shuffled",
    "way_out_said",
    "foreign_literals",
    "start_solution",
    "chars_call",
    "chars_session",
    "rivals",
}
RIVALS = {"last_failed", "same_call", "tool_first_word", "tool_word", "words", "features"}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command_app(measure), arguments)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[str, str]:
    write(tmp_path / "train", "shop", fleet("abcd", "pqrs"))
    write(tmp_path / "test", "shop", [*fleet("xy", "pqrs"), *fleet("ab", "tu"), *fleet("xy", "tu"), ("z", "p", None)])
    write(tmp_path / "test", "bank", fleet("ab", "vw"))
    return str(tmp_path / "train"), str(tmp_path / "test")


def numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for each in value.values():
            yield from numbers(each)
    elif value is not None:
        yield value


def test_every_key_by_source_and_slice(folders: tuple[str, str]) -> None:
    result = run("--train", folders[0], "--test", folders[1], "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert set(report) == KEYS
    judged = {source: set(slices) for source, slices in report["judge"].items()}
    assert judged == {"shop": {"A", "T", "AT"}, "bank": {"S"}}
    assert set(report["judge"]["shop"]["A"]) == {
        "kappa",
        "kappa_all",
        "balanced_accuracy",
        "false_success_rate",
        "abstained",
    }
    assert set(report["recurrence"]["shop"]) == {"family", "class", "exact"}
    assert all(math.isfinite(each) for each in numbers(report))
    advice = report["advice"]["shop"]["AT"]
    assert set(advice) == ADVICE and set(advice["rivals"]) == RIVALS
    assert all(set(row) == {"auroc", "auroc_first", "fail_at_share"} for row in advice["rivals"].values())
    # A session that guesses fails in its first two calls; `submit` is no call.
    assert (advice["calls"], advice["failed"]) == (8, 0.5)
    assert report["advice_beside"]["shop"]["AT"]["pseudo_calls"]["submit"]["calls"] == 4
    assert advice["rivals"]["words"]["auroc_first"] == advice["rivals"]["features"]["auroc_first"] == 1.0


def test_progress_goes_to_stderr_and_the_table_names_what_it_shows(folders: tuple[str, str]) -> None:
    result = run("--train", folders[0], "--test", folders[1])
    assert result.exit_code == 0, result.output
    assert "looking for junk" in result.stderr and "looking" not in result.stdout
    for word in ("kappa", "junk", "harmless", "fail_warned", "way_out", "tool_first_word", "submit"):
        assert word in result.stdout
    assert "nan" not in result.stdout


@pytest.mark.real_data
@pytest.mark.skipif(not SMOKE.is_dir(), reason=f"the folder of real trajectories is missing: {SMOKE}")
def test_real_logs() -> None:
    result = run("--data", str(SMOKE / "mint"), "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert all(math.isfinite(each) for each in numbers(report))
    assert report["advice"]["mint"]["A"]["rivals"]["features"]["auroc"] > report["advice"]["mint"]["A"]["failed"]


@pytest.mark.real_data
@pytest.mark.skipif(not SMOKE.is_dir(), reason=f"the folder of real trajectories is missing: {SMOKE}")
def test_databases_are_held_out_too() -> None:
    result = run("--data", str(SMOKE / "intercode"), "--json")
    assert result.exit_code == 0, result.output
    advice = json.loads(result.stdout)["advice"]["intercode"]
    assert {"A", "T", "AT", "P"} <= set(advice)
    # There nobody has made the very same call before.
    assert advice["P"]["calls"] > 50
    assert advice["P"]["rivals"]["same_call"]["auroc_first"] < advice["A"]["rivals"]["same_call"]["auroc_first"]
