from __future__ import annotations

from fleetlore.fingerprint.names import FailureKind
from fleetlore.recall.advice import Advice
from fleetlore.recall.call_warning import CallWarning
from fleetlore.recall.ways_out import WayOut
from models.backtest.advice.hearing import told


def test_silence() -> None:
    said = told(Advice(call="c", risk=0.1))
    assert said == (0.1, False, None, "", "")


def test_a_warning_names_the_failure_that_it_is_of() -> None:
    warning = CallWarning("w", "sql will likely fail: `cars`: no such table", "no such table: <name>", ("cars",), 0.7)
    said = told(Advice(warning, risk=0.7, call="c"))
    assert said.warned and said.risk == 0.7 and warning.text in said.text
    assert said.named == FailureKind("no such table: <name>", ("cars",))


def test_a_way_out_is_no_warning() -> None:
    said = told(Advice(way_out=WayOut("Others looked first", "i", ("look",))))
    assert said.way_out == "Others looked first" and not said.warned and said.way_out in said.text
