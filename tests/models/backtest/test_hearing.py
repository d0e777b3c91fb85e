from __future__ import annotations

from fleetlore.advice.advice import Advice
from fleetlore.advice.gate import Tip
from fleetlore.fingerprint.names import FailureKind
from models.backtest.heard import told

WARNING = Tip(
    "w", "foreseen", (), kind="no such table: <name>", rejected=("cars",), chance=0.7, text="sql fails with `cars`."
)
WAY_OUT = Tip("i", "renamed", (), brings=("makers",), text="Use `makers` instead of `maker`.")


def test_silence() -> None:
    assert told(Advice(risk=0.1)) == (0.1, False, None, "", "", ())


def test_a_warning_names_the_failure_that_it_is_of() -> None:
    said = told(Advice((WARNING,), risk=0.7))
    assert said.warned and said.risk == 0.7 and WARNING.text in said.text
    assert said.named == FailureKind("no such table: <name>", ("cars",))


def test_a_way_out_is_no_warning() -> None:
    said = told(Advice((WAY_OUT,)))
    assert said.way_out == WAY_OUT.text and not said.warned and said.way_out in said.text


def test_each_thing_shown_has_its_source() -> None:
    shown = told(Advice((WARNING, WAY_OUT))).shown
    assert shown == (("foreseen", WARNING.text, (), True), ("renamed", WAY_OUT.text, ("makers",), False))
