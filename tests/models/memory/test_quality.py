from __future__ import annotations

from dataclasses import replace

import pytest

from fleetlore.wire.lore import MemoryItem
from models.memory.quality import is_junk, is_verdict

LESSON = MemoryItem(
    id="item1",
    tenant="default",
    kind="lesson",
    title="deploy: no such flag '--fast'",
    description="Sessions failed on this error.",
    content='Goal: ship it\nError: no such flag \'--fast\'\nTried in vain: deploy({"flag":"--fast"})',
    when='before a call like deploy({"flag":"--fast"})',
    tool="deploy",
    support=2,
)


@pytest.mark.parametrize(
    ("tool", "arguments", "error"),
    [
        ("submit", "42", "Your answer is wrong."),
        ("submit", '{"answer": 42}', "Wrong answer."),
        ("submit_answer", '{"answer": 42}', "Your answer is incorrect"),
        ("act", "open the box", "I don't understand your input."),
        ("act", "open the box", "Nothing happens."),
        ("run_command", '{"command": "make"}', "Command failed"),
        ("python", "assert f(1) == 2", "AssertionError:"),
        ("python", "f()", "Traceback"),
        ("any", "{}", ""),
    ],
)
def test_what_says_only_that_it_failed(tool: str, arguments: str, error: str) -> None:
    assert is_verdict(tool, arguments, error)


@pytest.mark.parametrize(
    ("tool", "arguments", "error"),
    [
        ("get_order", '{"order_id": "W1"}', "Error: order not found"),
        ("pay", '{"method": "gift_card_12"}', "gift card balance is not enough"),
        ("cancel_pending_order", '{"order_id": "W1"}', "non-pending order cannot be cancelled"),
        ("sql", "SELECT 1 FROM t", "Table 'x.t' doesn't exist"),
        ("python", "l[9]", "IndexError: list index out of range"),
        ("python", "assert f(1) == 2", "AssertionError: expected 4 but got 7"),
        ("bash", "ping nowhere", "ping: nowhere: Name or service not known"),
        ("bash", "cat a", "/etc/shadow: Permission denied"),
        ("search", "moon", "Could not find [moon]"),
        ("http", '{"url": "x"}', "404 Not Found"),
        ("import", "x", "cannot import my_module"),
    ],
)
def test_what_names_something(tool: str, arguments: str, error: str) -> None:
    assert not is_verdict(tool, arguments, error)


def test_a_good_item_is_no_junk() -> None:
    assert is_junk(LESSON) is None
    assert is_junk(replace(LESSON, kind="fact", content="Deploys are frozen on Fridays; error 503 means so.")) is None


@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        ("empty", {"content": " "}),
        ("empty", {"kind": "recovery"}),
        ("verdict", {"content": 'Error: Your answer is wrong.\nTried in vain: deploy({"flag":"--fast"})'}),
        ("transient", {"content": "Error: 503 Service Unavailable"}),
        ("transient", {"kind": "strategy", "content": "What worked:\nError met there: timed out after 5 s"}),
        (
            "no_contrast",
            {
                "kind": "strategy",
                "content": "x\nA session that failed made the same calls in another order or number.",
            },
        ),
        ("contradicted", {"against": 3}),
        ("harmful", {"uplift": -0.3, "uplift_low": -0.5, "uplift_high": -0.1}),
    ],
)
def test_junk_has_a_reason(reason: str, changes: dict[str, object]) -> None:
    assert is_junk(replace(LESSON, **changes)) == reason  # type: ignore[arg-type]


def test_what_is_superseded_is_not_recalled_and_so_no_junk() -> None:
    assert is_junk(replace(LESSON, against=3, superseded_by="item2")) is None
