from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.advice_sheet import command
from benchmarks.advice_sheet.verdicts import Reading, kappa, shares
from fleetlore.errors import ConfigError

GONE = "Table 'shop.cars' doesn't exist"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs" / "shop"
    folder.mkdir(parents=True)
    with (folder / "trajectories.jsonl").open("w") as ends, (folder / "steps.jsonl").open("w") as steps:
        for agent in "abcdefgh":
            for task in "pqrst":
                names = {
                    "source": "shop",
                    "agent": agent,
                    "session": f"{agent}/{task}",
                    "task": task,
                    "goal": f"count {task}",
                }
                print(json.dumps(names | {"outcome": 1, "label_from": "env_reward"}), file=ends)
                for number, (text, error) in enumerate(
                    [(f"select {task} from cars", GONE), (f"select {task} from car_makers", None)]
                ):
                    step = {
                        "step": number,
                        "tool": "sql",
                        "input": text,
                        "output": "ok",
                        "error": error,
                        "role": "tool",
                    }
                    print(json.dumps(names | step), file=steps)
    return folder.parent


def run(*arguments: str) -> str:
    result = CliRunner().invoke(command.app, [*arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def without_nonces(sheet: str) -> str:
    return re.sub(r"(?<=fleet-memory )\w+", "", sheet)


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def test_a_sheet_of_calls_and_its_verdicts(logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = ("--data", str(logs), "--source", "shop", "--n", "5", "--out", str(tmp_path))
    assert "5 to read" in run(*write)
    sheet, file = (tmp_path / f"calls-shop-0.{end}" for end in ("md", "csv"))
    first = sheet.read_text()
    assert first.count("SAID BEFORE THE CALL") == first.count("THE CALL**: sql, FAILED") == 5
    assert "somebody else's" in first and GONE in first
    ids = [row["id"] for row in rows(file)]
    run(*write)  # the same draw again
    assert [row["id"] for row in rows(file)] == ids and without_nonces(sheet.read_text()) == without_nonces(first)
    assert "count" not in file.read_text() and "select" not in file.read_text()
    one, other = tmp_path / "one.csv", tmp_path / "other.csv"
    lines = file.read_text().replace(",none\n", ",\n").splitlines()
    one.write_text("\n".join([lines[0], *(f"{line}right" for line in lines[1:])]))
    other.write_text("\n".join([lines[0], f"{lines[1]}vague", *(f"{line}right" for line in lines[2:])]))
    monkeypatch.setattr(command, "KEPT", tmp_path / "kept")
    said = run("--verdicts", str(one), "--verdicts", str(other), "--keep", "now")
    assert "right: 5 of 5" in said and "right: 4 of 5" in said and "kappa: 0.00" in said
    kept = sorted((tmp_path / "kept").iterdir())
    assert [each.name for each in kept] == ["now-calls-shop-0-1.csv", "now-calls-shop-0-2.csv"]
    assert [row["verdict"] for row in rows(kept[1])].count("vague") == 1


def test_a_sheet_of_the_best_ranked_items(logs: Path, tmp_path: Path) -> None:
    run("--data", str(logs), "--source", "shop", "--n", "3", "--items", "--out", str(tmp_path))
    text = (tmp_path / "items-shop-0.md").read_text()
    assert "car_makers" in text and "trivial" in text
    assert 1 <= len(rows(tmp_path / "items-shop-0.csv")) <= 3


@pytest.mark.parametrize("arguments", [(), ("--source", "shop", "--verdicts", "x.csv")])
def test_one_thing_at_a_time(arguments: tuple[str, ...]) -> None:
    assert CliRunner().invoke(command.app, [*arguments]).exit_code == 2


def test_an_unknown_source_is_an_error_of_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(command.app, ["--data", str(tmp_path), "--source", "none"])
    assert result.exit_code == 1 and "does not exist" in result.stderr


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
