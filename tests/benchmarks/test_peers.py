from pathlib import Path

import pytest

from benchmarks import peers
from fleetlore.errors import StackError


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
