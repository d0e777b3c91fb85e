import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from fleetlore.cli import app as cli_app
from fleetlore.cli import main as cli
from fleetlore.errors import BrokerUnavailable
from tests.rows import for_each

RUNNER = CliRunner()


def _entries(monkeypatch: pytest.MonkeyPatch, *entries: EntryPoint) -> None:
    monkeypatch.setattr(cli_app, "entry_points", lambda group: entries)


def _entry(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, cli_app.GROUP)


def register(app: typer.Typer) -> None:
    """The failures that a higher floor would bring: commands that fail in every possible way."""

    @app.command()
    def unreachable() -> None:
        raise BrokerUnavailable("no broker answers at \x1b[2Jx:1")

    @app.command()
    def interrupted() -> None:
        raise KeyboardInterrupt

    @app.command()
    def buggy() -> None:
        raise ZeroDivisionError


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    # The test module itself is the higher floor; importlib mode does not put it on the path.
    monkeypatch.setitem(sys.modules, "a_higher_floor", sys.modules[__name__])
    _entries(monkeypatch, _entry("unreachable", "a_higher_floor:register"))
    return cli_app.build_app()


def test_an_expected_error_is_one_line_and_exit_code_1(app: typer.Typer) -> None:
    result = RUNNER.invoke(app, ["unreachable"])
    assert result.exit_code == 1
    assert result.stdout == ""
    [said] = result.stderr.splitlines()
    assert said.startswith("fleetlore: no broker answers at \\u001b[2Jx:1; name one by --broker")


def test_ctrl_c_is_130_and_a_bug_keeps_its_traceback(app: typer.Typer) -> None:
    assert RUNNER.invoke(app, ["interrupted"]).exit_code == 130
    assert isinstance(RUNNER.invoke(app, ["buggy"]).exception, ZeroDivisionError)


def test_ctrl_c_while_the_commands_are_imported_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fleetlore.cli.app.build_app", interrupted)
    with pytest.raises(SystemExit, match="130"):
        cli.main(["items"])


def test_version_and_help(app: typer.Typer, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["--version"])
    assert end.value.code == 0 and capsys.readouterr().out.startswith("fleetlore ")
    help_ = RUNNER.invoke(app, ["--help"])
    assert help_.exit_code == 0
    for command in ("health", "patterns", "items", "adapters", "unreachable"):
        assert command in help_.stdout


def test_a_command_whose_extra_is_missing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = "a_package_that_is_not_installed.commands:register"
    _entries(monkeypatch, _entry("demo", missing), _entry("adapters.rollback", missing))
    app = cli_app.build_app()
    for arguments in (["demo", "--agents", "3"], ["adapters", "rollback", "x", "--yes"]):
        result = RUNNER.invoke(app, arguments)
        assert result.exit_code == 1
        assert "a_package_that_is_not_installed" in result.stderr
        assert "pip install fleetlore-server" in result.stderr
    assert RUNNER.invoke(app, ["adapters", "list", "--help"]).exit_code == 0


@for_each("package", "typer", "rich")
def test_without_the_extra_the_command_says_how_to_get_it(package: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; from fleetlore.cli.main import main; main(['health'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 1
    assert done.stderr == f"fleetlore: the command line needs {package}: pip install 'fleetlore[cli]' from your index\n"


# Imports that take longer than an answer may take. The command line imports pydantic only for a wrong value.
HEAVY = ("torch", "faust", "pymilvus", "cryptography", "peft", "numpy", "aiokafka", "rich", "prometheus_client")


ANSWERS = {
    "--help": 0,
    "itmes": 2,
    "up --data=": 2,
    "items --data=": 2,
    "export --data lore --out=": 2,
    "items --kind nope": 2,
    "worker --partitions 3": 2,
    "patterns --data no-folder": 1,
    "dead-letters list --data no-folder": 1,
    "erase --session a --data no-folder": 1,
    "backfill switch new --data no-folder": 1,
    "console --data no-folder": 1,
    "doctor --data no-folder": 1,
    "revoke item a --why b --data no-folder": 1,
    "distrust a --why b --data no-folder": 1,
    "mcp --data no-folder": 1,
    "mcp --data lore --broker 127.0.0.1:9092": 2,
    "mcp-proxy --data no-folder -- true": 1,
    "mcp-proxy --tenant no/tenant -- true": 2,
    "ingest otel --data no-folder": 1,
    "backtest --data no-folder": 2,
    "export --out dataset --data no-folder": 1,
}
# Each command line runs in a process of its own, which has imported the command line's entry and no more.
FORKS = f"""
import os, sys
from fleetlore.cli.main import main

for number, arguments in enumerate(sys.argv[1:]):
    if child := os.fork():
        os.waitpid(child, 0)
        continue
    os.dup2(os.open(f"{{number}}.txt", os.O_CREAT | os.O_WRONLY), 2)
    sys.argv[1:], code = arguments.split(), 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    heavy = [each for each in {HEAVY!r} if each in sys.modules]
    print("answered:", arguments, code, heavy, file=sys.stderr, flush=True)
    os._exit(0)
"""


@pytest.mark.long
def test_a_wrong_argument_is_answered_before_anything_heavy_is_imported(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKS, *ANSWERS]
    subprocess.run(command, capture_output=True, text=True, timeout=150, cwd=tmp_path, check=True)
    for number, (arguments, code) in enumerate(ANSWERS.items()):
        said = (tmp_path / f"{number}.txt").read_text()
        assert said.endswith(f"answered: {arguments} {code} []\n"), said
        assert "Traceback" not in said


@for_each("arguments", ["--help"], ["topics", "schema"], ["--version"], ["import", "messages", ".", "--dry-run"])
def test_an_output_on_a_full_disk_is_one_line(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"messages": [{"role": "user", "content": "x"}]}\n' * 2)
    command = [sys.executable, "-m", "fleetlore.cli.main", *arguments]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=150, check=False, cwd=tmp_path
        )
    said = "fleetlore: the output cannot be written, what it holds is not whole: No space left on device"
    assert (done.returncode, done.stderr.splitlines()[-1:]) == (1, [said]) and "Traceback" not in done.stderr


def test_a_letter_that_the_terminal_lacks_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "from fleetlore.cli import app, main; app._COMMANDS['health'] = lambda: print('日本')"
    command = [sys.executable, "-c", f"{code}; main.main(['health'])"]
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert (done.stdout, done.stderr) == ("\\u65e5\\u672c\n", "")


def test_help_groups_every_command_by_purpose() -> None:
    text = RUNNER.invoke(cli_app.build_app(), ["--help"], env={"COLUMNS": "120", "NO_COLOR": "1"}).output
    assert "\nCommands:\n" not in text
    places = [text.index(f"\n{panel}:\n") for panel in cli_app.PANELS]
    assert places == sorted(places)


@for_each("typed, place, offered", ("it", 1, "items"), ("items --kind strat", 3, "strategy"))
def test_the_shell_completes_commands_and_values(typed: str, place: int, offered: str) -> None:
    asked = {"_FLEETLORE_COMPLETE": "complete_bash", "COMP_WORDS": f"fleetlore {typed}", "COMP_CWORD": str(place)}
    command = [sys.executable, "-c", "from fleetlore.cli.main import main; main()"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, env={**os.environ, **asked})
    assert done.stdout.split() == [offered], done.stderr
