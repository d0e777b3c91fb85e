from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.fingerprint.fingerprint import failure_of
from fleetlore.recall.hints import TRANSIENT_SECONDS, default_hint, hint_text, transient_weight
from fleetlore.recall.index import worth_showing
from fleetlore.wire.lore import MemoryItem, Pattern
from tests.build import memory_item

NOW = 1_760_000_000.0


def pattern(tool: str = "shell", error: str = "", **fields: Any) -> Pattern:
    failure = failure_of(tool, {}, None, error)
    values: dict[str, Any] = {
        "error_class": failure.error_class,
        "template": failure.template,
        "transient": failure.transient,
        "sessions": 4,
        "agents": 3,
        "last_seen": NOW - 150,
    }
    return Pattern(id=failure.class_, level="class", tenant="t", tool=tool, **(values | fields))


def tool(ended: int, failed: int) -> Pattern:
    return Pattern(id="t", level="tool", tenant="t", tool="shell", sessions_ended=ended, sessions_failed=failed)


def item(**fields: Any) -> MemoryItem:
    values: dict[str, Any] = {"support": 6, "agents": 5, "last_seen": NOW - 60}
    values["description"] = "pip got past this error once `-m` was added."
    return memory_item("id", **(values | fields))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("bash: line 1: jq: command not found", "`command -v jq`"),
        ("sh: 1: jq: not found", "`command -v jq`"),
        ("ModuleNotFoundError: No module named 'yaml'", "has `yaml`"),
        ("cat: /etc/shadow: Permission denied", "`ls -ld`"),
        ("cat: x.txt: No such file or directory", "List the folder first"),
        ("CONFLICT (content): Merge conflict in a.py", "`git status`"),
        ("OSError: [Errno 28] No space left on device", "Free space first"),
        ("Unknown column 'nmae' in 'field list'", "List the table's columns"),
        ("something nobody has written about", None),
    ],
)
def test_the_cold_start_is_specific(error: str, said: str | None) -> None:
    hint = default_hint(pattern(error=error))
    assert hint is None if said is None else (hint is not None and said in hint), hint


def test_what_worked_for_others_is_said_with_who_they_were_and_how_sure_that_is() -> None:
    said = hint_text(pattern(error="exit code 1", sessions=8), NOW, [item(), item(description="another")])
    assert said == (
        "pip got past this error once `-m` was added. (Worked for 5 agents in 6 sessions, last 1 minute ago; "
        "of 8 that met it, so 41% to 93%.)"
    )
    # Fewer are known to have met it, or too few to tell a share.
    assert str(hint_text(pattern(error="x", sessions=2), NOW, [item()])).endswith("6 sessions, last 1 minute ago.)")
    assert str(hint_text(pattern(error="x", sessions=7), NOW, [item()])).endswith("; of 7 that met it.)")


def test_what_one_session_did_is_said_as_that_and_only_where_nothing_is_better_backed() -> None:
    once = item(support=1, agents=1)
    seen_once = "pip got past this error once `-m` was added. (Seen once, 1 minute ago.)"
    assert hint_text(pattern(error="bash: jq: command not found", sessions=7), NOW, [once]) == seen_once
    assert hint_text(pattern(error="wholly new", sessions=300), NOW, [once]) == seen_once
    among_many = pattern(error="bash: jq: command not found", sessions=300)
    assert str(hint_text(among_many, NOW, [once])).startswith("Check with `command -v jq`")
    assert str(hint_text(among_many, NOW, [item()])).startswith("pip got past")


def test_a_rule_of_thumb_is_called_one() -> None:
    said = str(hint_text(pattern(error="bash: jq: command not found", sessions_ended=4, sessions_failed=3), NOW))
    assert said == (
        "Check with `command -v jq`; install it, or call it by its full path. "
        "(A rule of thumb. Met by 3 agents in 4 sessions, last 2 minutes ago; 1 of 4 ended well.)"
    )
    assert hint_text(pattern(error="wholly new"), NOW) is None


def test_weather_is_told_while_it_lasts_and_is_never_a_lesson() -> None:
    def met(seconds_ago: float, agents: int = 3) -> Pattern:
        return pattern("http", "HTTP 503 Service Unavailable", agents_lately=agents, last_seen=NOW - seconds_ago)

    assert not worth_showing(met(1))
    assert hint_text(met(20), NOW) == (
        "3 agents met “http 503” within two minutes, the last 20 seconds ago: it passes by itself, wait and try again."
    )
    assert hint_text(met(20), NOW, [item()]) == hint_text(met(20), NOW)
    assert hint_text(met(119, agents=1), NOW) is not None
    assert hint_text(met(121, agents=1), NOW) is None
    assert hint_text(met(TRANSIENT_SECONDS + 1, agents=10_000), NOW) is None
    assert transient_weight(met(60), NOW) == pytest.approx(transient_weight(met(0), NOW) / 2)
    assert transient_weight(pattern(error="exit code 1"), NOW) == 0


@given(st.floats(0, 600), st.floats(0, 600), st.integers(0, 5_000))
def test_weather_only_fades(earlier: float, later: float, agents: int) -> None:
    earlier, later = sorted((earlier, later))
    met = pattern("http", "HTTP 503", agents_lately=agents, last_seen=NOW)
    assert transient_weight(met, NOW + later) <= transient_weight(met, NOW + earlier)


@pytest.mark.parametrize(
    ("ended", "failed", "of_tool", "shown"),
    [
        (0, 0, tool(100, 40), True),  # nothing is known yet
        (7, 0, tool(100, 40), True),  # too little
        (100, 29, tool(300, 140), False),  # its sessions fail less often than the others
        (100, 80, tool(300, 140), True),
        (8, 7, tool(300, 140), True),
        (8, 4, tool(300, 140), False),  # may be chance
        (100, 29, tool(104, 33), True),  # nobody to compare with
        (100, 0, None, False),
        (100, 29, None, True),
    ],
)
def test_a_harmless_pattern_is_not_worth_a_warning(
    ended: int, failed: int, of_tool: Pattern | None, shown: bool
) -> None:
    assert (
        worth_showing(pattern(error="user not found", sessions_ended=ended, sessions_failed=failed), of_tool) is shown
    )


@given(st.text(max_size=200))
def test_any_error_has_a_hint_or_none(error: str) -> None:
    said = hint_text(pattern(error=error), NOW)
    assert said is None or "\n" not in said
