"""Settings: from the environment, from a stack's folder, and refused with a reason."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import orjson
import pytest

from fleetlore.config import STACK_FILE, Settings, describe, variables
from fleetlore.errors import ConfigError


def test_an_empty_environment_gives_the_defaults() -> None:
    assert Settings.from_env({}) == Settings()


def test_settings_survive_the_way_through_an_environment() -> None:
    settings = Settings(
        broker="a:1,b:2", tenants=("x", "y"), partitions=7, session_timeout_seconds=6.5, adapters_dir="/a b/c"
    )
    assert Settings.from_env(settings.to_env()) == settings


def test_overrides_win_unless_they_are_none() -> None:
    environ = {"FLEETLORE_BROKER": "env:1", "FLEETLORE_PARTITIONS": "3", "HOME": "/x"}
    settings = Settings.from_env(environ, broker="mine:2", partitions=None)
    assert (settings.broker, settings.partitions) == ("mine:2", 3)


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"FLEETLORE_PARTITIONS": "many"}, "FLEETLORE_PARTITIONS"),
        ({"FLEETLORE_PARTITIONS": "0"}, "FLEETLORE_PARTITIONS"),
        ({"FLEETLORE_REPLICATION": "-1"}, "FLEETLORE_REPLICATION"),
        ({"FLEETLORE_SILENT_SECONDS": "0"}, "FLEETLORE_SILENT_SECONDS"),
        ({"FLEETLORE_SESSION_TIMEOUT_SECONDS": "x"}, "FLEETLORE_SESSION_TIMEOUT_SECONDS"),
        ({"FLEETLORE_FETCH_WAIT_MS": "1.5"}, "FLEETLORE_FETCH_WAIT_MS"),
        ({"FLEETLORE_BREAKER_RATIO": "50"}, "FLEETLORE_BREAKER_RATIO"),
        ({"FLEETLORE_BREAKER_RATIO": "nan"}, "FLEETLORE_BREAKER_RATIO"),
        ({"FLEETLORE_BREAKER_RUN_RECORDS": "0"}, "FLEETLORE_BREAKER_RUN_RECORDS"),
        ({"FLEETLORE_BROKER": ""}, "FLEETLORE_BROKER"),
        ({"FLEETLORE_TENANTS": " , "}, "FLEETLORE_TENANTS"),
        ({"FLEETLORE_TENANTS": "good,a.b"}, "'a.b'"),
        ({"FLEETLORE_TENANTS": "a/b"}, "'a/b'"),
        ({"FLEETLORE_BROCKER": "a:1"}, "FLEETLORE_BROCKER"),
    ],
)
def test_a_bad_setting_is_refused_by_name(environ: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Settings.from_env(environ)


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_time_that_is_no_time_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match="FLEETLORE_SILENT_SECONDS"):
        Settings.from_env({"FLEETLORE_SILENT_SECONDS": value})


def test_several_tenants_are_separated_by_commas() -> None:
    assert Settings.from_env({"FLEETLORE_TENANTS": "a, b,,c"}).tenants == ("a", "b", "c")


def test_a_folder_with_a_stack_gives_its_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in variables():
        monkeypatch.delenv(variable, raising=False)
    stack: dict[str, Any] = {"broker": "127.0.0.1:1", "milvus": "http://127.0.0.1:2", "public_key": "k", "metrics": {}}
    (tmp_path / STACK_FILE).write_bytes(orjson.dumps(stack))
    settings = Settings.from_data_dir(tmp_path, partitions=2, broker=None)
    assert (settings.broker, settings.milvus, settings.public_key) == ("127.0.0.1:1", "http://127.0.0.1:2", "k")
    assert settings.partitions == 2


@pytest.mark.parametrize("content", [b"{", b"{}", b"[]", b"7", b'{"broker": "a:1"}'])
def test_a_folder_with_a_broken_stack_file_says_which(tmp_path: Path, content: bytes) -> None:
    (tmp_path / STACK_FILE).write_bytes(content)
    with pytest.raises(ConfigError, match=r"stack\.json"):
        Settings.from_data_dir(tmp_path)


def test_a_folder_without_a_stack_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="fleetlore up --data"):
        Settings.from_data_dir(tmp_path / "nothing")


def test_settings_do_not_change() -> None:
    settings = Settings()
    with pytest.raises(FrozenInstanceError):
        settings.broker = "x"  # type: ignore[misc]
    assert settings.with_(broker="x").broker == "x"
    assert settings.broker != "x"


def test_a_change_is_checked_like_a_setting() -> None:
    with pytest.raises(ConfigError):
        Settings().with_(tenants=("a.b",))


def test_every_variable_is_described() -> None:
    rows = describe()
    assert [row[0] for row in rows] == variables() == list(Settings().to_env())
    assert all(meaning for _, _, meaning in rows)
    assert dict((name, default) for name, default, _ in rows)["FLEETLORE_TENANTS"] == "default"
