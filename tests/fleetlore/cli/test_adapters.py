import json
from typing import Any

import pytest
from typer.testing import CliRunner

from fleetlore.adapters.listing import AdapterListing
from fleetlore.cli import adapters as cli_adapters
from fleetlore.cli import app as cli_app

MANIFESTS: tuple[dict[str, Any], ...] = (
    {
        "version": "aa11", "ordinal": 1, "parent": None, "created": 10.0, "sessions": 5, "tools": ["sql"],
        "metrics": {"recall": 0.5, "auroc": 0.71234, "calibration_error": 0.1, "balanced_accuracy": 0.6},
    },
    {
        "version": "aa22", "ordinal": 2, "parent": "aa11", "created": 20.0, "sessions": 9, "metrics": {"auroc": 0.8},
        "data": [{"topic": "t", "partition": 0, "start": 0, "stop": 9}],
    },
    {"version": "odd\x1b[2J", "metrics": "none", "created": "never", "data": [3]},
)  # fmt: skip
LISTING = AdapterListing(
    MANIFESTS,
    ({"channel": "stable", "version": "aa22", "epoch": 2},),
    ({"agent": "a", "version": "aa22", "result": "applied"}, {"agent": "b", "version": "aa22", "result": "tampered"}),
)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(cli_app, "entry_points", lambda group: ())
    monkeypatch.setattr(cli_adapters, "_read", lambda *where: LISTING)
    return lambda *arguments: CliRunner().invoke(cli_app.build_app(), ["adapters", *arguments])


def test_list_shows_what_runs_where(run: Any) -> None:
    lines = run("list").stdout.splitlines()
    assert lines[1].split()[:3] == ["1", "aa11", "-"] and "auroc 0.712" in lines[1]
    assert lines[2].split()[:5] == ["2", "aa22", "aa11", "stable", "1"]
    assert "\x1b" not in run("list").stdout
    document = json.loads(run("list", "--json").stdout)
    assert [each["agents_running"] for each in document["versions"]] == [0, 1, 0]


def test_a_row_has_few_figures_and_show_has_all(run: Any) -> None:
    assert "calibration_error 0.1" in run("list").stdout and "recall" not in run("list").stdout
    assert "recall 0.5" in run("show", "aa11").stdout


def test_show_says_who_runs_it_who_refused_it_and_what_it_was_made_of(run: Any) -> None:
    text = run("show", "aa2").stdout
    shown = {line[:15].strip(): line[16:] for line in text.splitlines()}
    assert shown["lineage"] == "aa22 ← aa11"
    assert (shown["run by"], shown["not run by"]) == ("1: a", "1: b (tampered)")
    document = json.loads(run("show", "aa22", "--json").stdout)
    assert (document["lineage"], document["running"]) == (["aa22", "aa11"], ["a"])
    assert document["refused"] == ["b (tampered)"] and document["channels"] == ["stable"] and "t[0] 0–9" in text
    assert run("show", "odd").exit_code == 0


def test_a_pin_is_of_one_channel_and_measures_are_as_published(monkeypatch: pytest.MonkeyPatch, run: Any) -> None:
    manifest = {"version": "aa11", "metrics": {"auroc": 0.8, "judge": "rules"}}
    pointers = ({"channel": "stable", "version": "aa11", "pinned": True}, {"channel": "canary", "version": "aa11"})
    monkeypatch.setattr(cli_adapters, "_read", lambda *where: AdapterListing((manifest,), pointers, ()))
    [version] = json.loads(run("list", "--json").stdout)["versions"]
    assert version["channels"] == ["canary", "stable (pinned)"]
    assert version["metrics"] == manifest["metrics"] and "judge" not in run("list").stdout


def test_a_lineage_that_goes_in_circles_ends() -> None:
    listing = AdapterListing(({"version": "a", "parent": "b"}, {"version": "b", "parent": "a"}), (), ())
    assert listing.versions()[0].lineage == ("a", "b")


@pytest.mark.parametrize(
    ("version", "said"), [("zz", "no version begins"), ("aa", "2 versions begin"), ("", "no version begins")]
)
def test_a_version_that_is_not_one(run: Any, version: str, said: str) -> None:
    result = run("show", version)
    assert result.exit_code == 2 and said in result.stderr
