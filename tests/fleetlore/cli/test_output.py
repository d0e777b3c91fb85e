import io
import logging
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from fleetlore.cli import shared as cli_options
from fleetlore.cli.shared import ask, connection, moment, print_table, safe, safe_lines
from fleetlore.cluster import check_address
from fleetlore.errors import BrokerUnavailable, ConfigError
from tests.rows import for_each

COLUMNS = ["TOOL", ">CALLS", "~ERROR"]


@given(st.text())
def test_nothing_that_steers_a_terminal_is_left(text: str) -> None:
    assert all(character.isprintable() or ord(character) > 0x9F for character in safe(text))
    assert "\x1b" not in safe_lines(text) and "\u202e" not in safe_lines(text)


def test_escapes_are_readable() -> None:
    assert safe("a\x1b[2Jb\u202ec\n\td\ud800") == r"a\u001b[2Jb\u202ec d\ud800"
    assert safe_lines("a\nb\x00") == "a\nb\\u0000"


@for_each("hidden", *"\u00ad\u200b\u200d\u2060\ufe0f\u180e\u3164\U000e0041\U000e01ef")
def test_who_reviews_an_item_sees_what_a_model_reads(hidden: str) -> None:
    written = rf"\u{ord(hidden):04x}" if hidden < "\U00010000" else rf"\U{ord(hidden):08x}"
    assert safe(f"to{hidden}ken") == f"to{written}ken"


def test_without_a_terminal_nothing_is_cut_and_columns_align() -> None:
    rows = [("数据库", "7", "[red]x[/red] " + "long " * 60), ("sql", "1234", "a\nb")]
    out = io.StringIO()
    print_table(COLUMNS, rows, Console(file=out))
    head, first, second = out.getvalue().splitlines()
    assert "[red]x[/red] " + "long " * 59 + "long" in first
    assert cell_len(first.partition("[red]")[0]) == len(second.partition("a b")[0]) == len(head.partition("ERROR")[0])


def test_on_a_terminal_the_table_keeps_its_width_and_markup_is_text() -> None:
    screen = io.StringIO()
    rows = [("数据库", "7", "[red]x[/red] " + "long " * 60), ("sql", "1234", "\x1b[2J")]
    print_table(COLUMNS, rows, Console(file=screen, force_terminal=True, width=60, color_system=None, highlight=False))
    lines = screen.getvalue().splitlines()
    assert max(cell_len(line) for line in lines) <= 60
    assert "[red]x[/red]" in screen.getvalue() and "\x1b[2J" not in screen.getvalue()


def test_moments_are_utc_and_never_raise() -> None:
    assert moment(1_700_000_000) == "2023-11-14 22:13:20"
    assert [moment(bad) for bad in (0.0, -1.0, 1e20, float("nan"))] == ["-"] * 4


def test_the_connection_is_that_of_the_stack_unless_a_broker_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETLORE_BROKER", "env:1")
    (tmp_path / "stack.json").write_text('{"broker": "stack:2", "milvus": "http://x:3", "public_key": ""}')
    assert connection(None, None).broker == "env:1"
    assert connection(None, tmp_path).broker == "stack:2"
    assert connection("mine:3", None).broker == "mine:3"
    with pytest.raises(typer.BadParameter, match="--data or --broker, not both"):
        connection("mine:3", tmp_path)
    with pytest.raises(ConfigError, match=r"no stack runs"):
        connection(None, tmp_path / "nowhere")


@for_each("bad", "", "host", "host:", ":9092", "host:x", "host:0", "host:70000", "a:1,b")
def test_a_wrong_address_is_wrong_usage_and_a_right_one_stays(bad: str) -> None:
    with pytest.raises(typer.BadParameter):
        cli_options.checked(check_address)(bad)
    for good in ("a:1, b:2", "[::1]:9092"):
        assert cli_options.checked(check_address)(good) == good


def test_a_question_is_asked_without_the_clients_log_and_leaves_their_levels_alone() -> None:
    clients = [logging.getLogger(name) for name in ("aiokafka", "fleetlore")]
    before = [client.level for client in clients]

    async def broken() -> bool:
        assert not any(client.isEnabledFor(logging.CRITICAL) for client in clients)
        raise BrokerUnavailable("away")

    with pytest.raises(BrokerUnavailable):
        ask(broken())
    assert [client.level for client in clients] == before
