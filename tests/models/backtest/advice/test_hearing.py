from __future__ import annotations

from fleetlore.fingerprint.names import FailureKind
from fleetlore.recall.advice import Advice
from fleetlore.recall.call_warning import CallWarning
from fleetlore.wire.lore import MemoryItem
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
    item = MemoryItem(
        id="i", tenant="default", kind="recovery", title="A title", description="", content="look", when="", support=3
    )
    said = told(Advice(way_out=item))
    assert said.way_out == "A title\nlook" and not said.warned and "look" in said.text
