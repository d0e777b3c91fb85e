"""The settings say which judges a worker has, and nothing unused is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fleetlore.config import Settings
from fleetlore.errors import ConfigError
from fleetlore.testing.sessions import call, trajectory
from fleetlore.wire.trajectory import Trajectory
from models.judge.critic_fit import fit
from sinks.metrics import Metrics
from streams.stages.pipeline import judge_chain, language_model


def session(number: int) -> Trajectory:
    failed = number % 2
    result = ("wrong " if failed else "right ") * 3
    return trajectory(
        *(call("sql", f"SELECT {n}", result) for n in range(3)),
        session=f"s{number}",
        agent=f"a{number % 5}",
        task=f"t{number % 7}",
        goal="count",
    )


def test_without_settings_there_are_the_environment_and_the_rules() -> None:
    assert judge_chain(Settings()).version == "guard-1+feedback-2+reward-1+rules-1"
    assert language_model(Settings(), Metrics("worker")) is None


def test_a_critic_judges_what_the_others_do_not(tmp_path: Path) -> None:
    sessions = [session(n) for n in range(200)]
    critic, _ = fit(sessions, [bool(n % 2) for n in range(200)])
    (tmp_path / "critic").write_bytes(critic.to_bytes())
    chain = judge_chain(Settings(critic=str(tmp_path / "critic")))
    assert critic.version in chain.version
    verdict = chain.judge(session(201))
    assert (verdict.label, verdict.source) == ("failure", "critic")


@pytest.mark.parametrize("content", [None, b"", b"no critic at all"])
def test_a_critic_that_is_none_is_refused_by_name(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "critic"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match="FLEETLORE_CRITIC"):
        judge_chain(Settings(critic=str(path)))


def test_nothing_of_a_model_is_loaded_where_none_is_set() -> None:
    code = (
        "import sys, streams.runtime.app\n"
        "loaded = {'openai', 'models.llm.client', 'models.judge.critic', 'sklearn'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_nothing_offline_imports_faust() -> None:
    code = (
        "import importlib, pkgutil, sys, streams.offline\n"
        "for module in pkgutil.iter_modules(streams.offline.__path__, 'streams.offline.'):\n"
        "    importlib.import_module(module.name)\n"
        "assert 'faust' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
