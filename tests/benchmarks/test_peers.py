import sys
from pathlib import Path

import pytest

from benchmarks import peers
from fleetlore.errors import ModelUnavailable, StackError


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(peers, "__file__", str(tmp_path / "__init__.py"))
    return tmp_path


def test_a_peer_says_its_figures_in_its_last_line(scripts: Path) -> None:
    (scripts / "one.py").write_text("import sys\nprint('a word')\nprint('{\"events\": %s}' % sys.argv[1])\n")
    assert peers.run("one", 7) == {"events": 7}


def test_a_peer_that_fails_is_an_error_with_its_last_words(scripts: Path) -> None:
    (scripts / "one.py").write_text("raise ValueError('no such topic')\n")
    with pytest.raises(StackError, match=r"(?s)one ended with exit code 1.*no such topic"):
        peers.run("one")


@pytest.mark.long
def test_a_peer_that_hangs_is_an_error(scripts: Path) -> None:
    (scripts / "one.py").write_text("import time\ntime.sleep(60)\n")
    with pytest.raises(StackError, match="did not end within"):
        peers.run("one", timeout_seconds=0.3)


def test_a_peer_with_pins_of_its_own_gets_an_environment_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(peers.OWN_ENVIRONMENTS, "nothing", ())
    ran: list[list[str]] = []

    def run(command: list[str], **_: object) -> object:
        ran.append(command)
        return type("Done", (), {"returncode": 0, "stderr": ""})

    monkeypatch.setattr(peers.venv, "create", lambda folder, **_: Path(folder).mkdir(parents=True))
    monkeypatch.setattr(peers.subprocess, "run", run)
    first, second = peers.interpreter("nothing"), peers.interpreter("nothing")
    assert first == second
    assert first.startswith(str(tmp_path))
    assert len(ran) == 1
    assert peers.interpreter() == sys.executable


def test_a_peer_that_cannot_be_installed_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(peers.OWN_ENVIRONMENTS, "nothing", ("no-such==1",))
    monkeypatch.setattr(peers.venv, "create", lambda folder, **_: Path(folder).mkdir(parents=True))
    monkeypatch.setattr(
        peers.subprocess, "run", lambda *_, **__: type("Done", (), {"returncode": 1, "stderr": "no network"})
    )
    with pytest.raises(ModelUnavailable, match=r"nothing could not be installed.*no network"):
        peers.interpreter("nothing")
