from dataclasses import replace

from fleetlore.wire.lore import MemoryItem
from models.distil.cases import is_verdict
from models.memory.candidate import is_junk
from tests.cpu import costs_less_than
from tests.rows import for_each

ITEM = MemoryItem(
    id="item1",
    tenant="default",
    kind="recovery",
    title="deploy: no such flag '--fast'",
    description="Sessions got past this error.",
    content='Error: no such flag \'--fast\'\nWorked: deploy({"flag":"--now"})',
    when="deploy fails with: no such flag '--fast'",
    tool="deploy",
    was=("flag=--fast",),
    now=("flag=--now",),
    support=2,
)


@for_each("tool, error",
    ("submit", "Your answer is wrong."), ("submit", "Wrong answer."), ("submit_answer", "Your answer is incorrect"),
    ("act", "I don't understand your input."), ("act", "Nothing happens."), ("run_command", "Command failed"),
    ("python", "AssertionError:"), ("python", "Traceback"), ("any", ""), ("bash", "exit code 1"),
    ("bash", "Command failed with exit status 2"), ("deploy", "Could not deploy"),
)  # fmt: skip
def test_what_says_only_that_it_failed(tool: str, error: str) -> None:
    assert is_verdict(tool, error)


@for_each("tool, error",
    ("get_order", "Error: order not found"), ("pay", "gift card balance is not enough"),
    ("cancel_pending_order", "non-pending order cannot be cancelled"), ("http", "404 Not Found"),
    ("search", "Could not find [moon]"), ("import", "cannot import my_module"),
    ("sql", "Table 'x.t' doesn't exist"), ("sql", "no such table: cars"), ("sql", "ambiguous column name: id"),
    ("sql", "database is locked"), ("bash", "ping: nowhere: Name or service not known"),
    ("bash", "/etc/shadow: Permission denied"), ("bash", "Permission denied"), ("bash", "not found"),
    ("bash", "No such file or directory"), ("bash", "pip: command not found"),
    ("python", "IndexError: list index out of range"), ("python", "AssertionError: expected 4 but got 7"),
    ("python", "division by zero"), ("python", "list index out of range"), ("python", "unauthorized"),
)  # fmt: skip
def test_what_names_something(tool: str, error: str) -> None:
    assert not is_verdict(tool, error)


@for_each(
    "reason, changes",
    ("empty", {"content": " "}),
    ("empty", {"was": (), "now": ()}),
    ("transient", {"content": "Error: 503 Service Unavailable"}),
    ("contradicted", {"against": 3}),
    (None, {}),
)
def test_junk_has_a_reason(reason: str | None, changes: dict[str, object]) -> None:
    assert is_junk(replace(ITEM, **changes)) == reason


def test_an_open_bracket_costs_no_more_than_its_length() -> None:
    assert costs_less_than(0.05, lambda: is_verdict("shell", "([" * 32_000))
