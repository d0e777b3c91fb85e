"""Settings: from the environment, from a stack's folder, and refused with a reason."""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from fleetlore.agent.fleet import Fleet
from fleetlore.cluster import LOCK_FILE, STACK_FILE, Cluster
from fleetlore.config import Settings, describe, variables
from fleetlore.errors import ConfigError
from tests.rows import for_each


def test_settings_survive_the_way_through_an_environment() -> None:
    given = {"broker": "a:1,b:2", "tenants": ("x", "y"), "partitions": 7, "session_timeout_seconds": 6.5}
    settings = Settings(adapters_dir="/a b/c", **given)
    assert Settings.from_env(settings.to_env()) == settings and Settings.from_env({}) == Settings()
    assert Settings.from_env({"FLEETLORE_TENANTS": "a, b,,c"}).tenants == ("a", "b", "c")


@for_each(
    "environ, named",
    ({"FLEETLORE_PARTITIONS": "many"}, "FLEETLORE_PARTITIONS"),
    ({"FLEETLORE_PARTITIONS": "0"}, "FLEETLORE_PARTITIONS"),
    ({"FLEETLORE_REPLICATION": "-1"}, "FLEETLORE_REPLICATION"),
    *(({"FLEETLORE_SILENT_SECONDS": each}, "FLEETLORE_SILENT_SECONDS") for each in ("0", "nan", "inf")),
    ({"FLEETLORE_SESSION_TIMEOUT_SECONDS": "x"}, "FLEETLORE_SESSION_TIMEOUT_SECONDS"),
    ({"FLEETLORE_FETCH_WAIT_MS": "1.5"}, "FLEETLORE_FETCH_WAIT_MS"),
    ({"FLEETLORE_HOLDOUT_SHARE": "50"}, "FLEETLORE_HOLDOUT_SHARE"),
    ({"FLEETLORE_REVIEW": "some"}, "FLEETLORE_REVIEW"),
    ({"FLEETLORE_REVIEW": "off,shop=some"}, "FLEETLORE_REVIEW"),
    ({"FLEETLORE_HOLDOUT_SHARE": "nan"}, "FLEETLORE_HOLDOUT_SHARE"),
    ({"FLEETLORE_BREAKER_RUN_RECORDS": "0"}, "FLEETLORE_BREAKER_RUN_RECORDS"),
    ({"FLEETLORE_BROKER": ""}, "FLEETLORE_BROKER"),
    ({"FLEETLORE_TENANTS": " , "}, "FLEETLORE_TENANTS"),
    ({"FLEETLORE_TENANTS": "good,a.b"}, "'a.b'"),
    ({"FLEETLORE_TENANTS": "a/b"}, "'a/b'"),
    ({"FLEETLORE_BROCKER": "a:1"}, "FLEETLORE_BROCKER"),
)
def test_a_bad_setting_is_refused_by_name(environ: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Settings.from_env(environ)


def test_a_folder_with_a_stack_gives_its_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in variables():
        monkeypatch.delenv(variable, raising=False)
    stack = {"broker": "127.0.0.1:1", "milvus": "http://127.0.0.1:2", "public_key": "k", "partitions": 1, "metrics": {}}
    (tmp_path / STACK_FILE).write_bytes(orjson.dumps(stack))
    assert Settings.from_data_dir(tmp_path).partitions == 1, "its own topics would be said to differ"
    settings = Settings.from_data_dir(tmp_path, partitions=2, broker=None)
    assert (settings.broker, settings.milvus, settings.public_key) == ("127.0.0.1:1", "http://127.0.0.1:2", "k")
    assert settings.partitions == 2
    monkeypatch.setenv("FLEETLORE_PUBLIC_KEY", "lost, k,older")
    assert Settings.from_data_dir(tmp_path).public_key == "k,lost,older", "the stack's key outranks the variable's"
    assert Path(settings.state_dir) == tmp_path / "agents", "the epochs of another stack would be written over"
    monkeypatch.setenv("FLEETLORE_STATE_DIR", "/elsewhere")
    assert Settings.from_data_dir(tmp_path).state_dir == "/elsewhere"


@pytest.mark.parametrize("content", [b"{", b"{}", b"[]", b"7", b'{"broker": "a:1"}'])
def test_a_folder_with_a_broken_stack_file_says_which(tmp_path: Path, content: bytes) -> None:
    (tmp_path / STACK_FILE).write_bytes(content)
    with pytest.raises(ConfigError, match=r"stack\.json"):
        Settings.from_data_dir(tmp_path)


def test_every_variable_is_described() -> None:
    rows = describe()
    given = [name for name in Settings().to_env() if not name.endswith("_FILE")]
    assert [row[0] for row in rows] == variables() == given
    assert all(meaning for _, _, meaning in rows)
    assert dict((name, default) for name, default, _ in rows)["FLEETLORE_TENANTS"] == "default"


def test_every_secret_may_lie_in_a_file(tmp_path: Path) -> None:
    secrets = {"milvus_token": "m-1", "llm_key": "l-1", "kafka_sasl_password": "k-1", "kafka_ssl_key_password": "s-1"}
    sasl = {"SECURITY_PROTOCOL": "SASL_SSL", "SASL_MECHANISM": "PLAIN", "SASL_USERNAME": "u"}
    environ = {f"FLEETLORE_KAFKA_{name}": value for name, value in sasl.items()}
    for name, value in secrets.items():
        (tmp_path / name).write_text(value + "\n")
        environ[f"FLEETLORE_{name.upper()}_FILE"] = str(tmp_path / name)
    settings = Settings.from_env(environ)
    assert {name: getattr(settings, name) for name in secrets} == secrets
    assert settings.cluster.sasl_password == "k-1"
    assert not [value for value in secrets.values() if value in repr(settings)]
    # The child of a process that has them in files gets them all the same.
    assert Settings.from_env({**environ, **settings.to_env()}) == settings


def test_a_secret_is_given_once_and_its_file_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="FLEETLORE_LLM_KEY and FLEETLORE_LLM_KEY_FILE are both set"):
        Settings.from_env({"FLEETLORE_LLM_KEY": "a", "FLEETLORE_LLM_KEY_FILE": "/b"})
    with pytest.raises(ConfigError, match=r"FLEETLORE_LLM_KEY_FILE=.*cannot be read"):
        Settings.from_env({"FLEETLORE_LLM_KEY_FILE": str(tmp_path / "missing")})
    with pytest.raises(ConfigError, match="FLEETLORE_BROKER_FILE is not a setting"):
        Settings.from_env({"FLEETLORE_BROKER_FILE": "/b"})


def test_a_worker_starts_with_a_setting_of_the_version_before_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    assert Settings.from_env({"FLEETLORE_BREAKER_RATIO": "0.5", "FLEETLORE_PARTITIONS": "7"}).partitions == 7
    assert "FLEETLORE_BREAKER_RATIO is not a setting of fleetlore and has no effect" in caplog.text
    with pytest.raises(ConfigError, match="FLEETLORE_BREAKER_RATE is not a setting"):
        Settings.from_env({"FLEETLORE_BREAKER_RATE": "0.5"})


def test_an_agent_says_once_what_it_does_not_know_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FLEETLORE_BROCKER", "secret-address:1")
    for _ in range(2):
        assert Fleet("agent", broker="a:1").settings.broker == "a:1"
    (said,) = [record.getMessage() for record in caplog.records if "FLEETLORE_BROCKER" in record.getMessage()]
    assert "no effect" in said and "secret-address" not in said
    with pytest.raises(ConfigError, match="FLEETLORE_BROCKER"):
        Settings.from_env()


def test_the_embedded_broker_has_no_passwords_and_waits_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLEETLORE_FETCH_WAIT_MS", raising=False)
    monkeypatch.setenv("FLEETLORE_KAFKA_SECURITY_PROTOCOL", "SSL")
    (tmp_path / STACK_FILE).write_bytes(orjson.dumps({"broker": "a:1", "milvus": "http://a:2", "public_key": ""}))
    assert Settings.from_env().cluster.security_protocol == "SSL"
    embedded = Settings.from_data_dir(tmp_path)
    assert embedded.cluster == Cluster(address="a:1")
    assert embedded.fetch_wait_ms < Settings().fetch_wait_ms
    stack = {"broker": "a:1", "milvus": "http://a:2", "public_key": "", "fetch_wait_ms": 1_500}
    (tmp_path / STACK_FILE).write_bytes(orjson.dumps(stack))
    assert Settings.from_data_dir(tmp_path).fetch_wait_ms == 1_500, "Kafka itself answers at once"
    monkeypatch.setenv("FLEETLORE_FETCH_WAIT_MS", "70")
    assert Settings.from_data_dir(tmp_path).fetch_wait_ms == 70


def stack_of(folder: Path, process: int) -> Path:
    stack = {"broker": "127.0.0.1:9092", "milvus": "http://127.0.0.1:1", "public_key": "", "pid": process}
    folder.mkdir(exist_ok=True)
    (folder / STACK_FILE).write_bytes(orjson.dumps(stack))
    (folder / LOCK_FILE).touch()
    return folder


def ended_process() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    with (folder / LOCK_FILE).open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_a_stack_that_runs_gives_its_settings(tmp_path: Path) -> None:
    folder = stack_of(tmp_path, os.getpid())
    with locked(folder):
        assert Settings.from_data_dir(folder).broker == "127.0.0.1:9092"
    (folder / LOCK_FILE).unlink()  # no lock can be asked: the process tells
    assert Settings.from_data_dir(folder).broker == "127.0.0.1:9092"


def test_a_copy_of_a_folder_whose_stack_runs_has_no_stack(tmp_path: Path) -> None:
    folder, copy = stack_of(tmp_path / "original", os.getpid()), tmp_path / "copy"
    with locked(folder):
        shutil.copytree(folder, copy)
        with pytest.raises(ConfigError, match=f"fleetlore up --data {copy}"):
            Settings.from_data_dir(copy)
        assert Settings.from_data_dir(copy, must_run=False).broker == Settings().broker


def test_a_folder_that_does_not_exist_is_said_to_be_that(tmp_path: Path) -> None:
    for must_run in (True, False):
        with pytest.raises(ConfigError, match=r"there is no such folder.*fleetlore up"):
            Settings.from_data_dir(tmp_path / "lroe", must_run=must_run)


def test_a_stack_that_was_killed_is_said_to_be_that_and_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="was ended without a stop; start it again with `fleetlore up --data"):
        Settings.from_data_dir(stack_of(tmp_path, ended_process()))


def test_a_stack_whose_process_cannot_be_seen_holds_its_lock(tmp_path: Path) -> None:
    folder = stack_of(tmp_path, ended_process())
    with locked(folder):
        assert Settings.from_data_dir(folder).broker == "127.0.0.1:9092"
