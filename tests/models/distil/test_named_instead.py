"""A session that got past a rejected name tells others which name worked, for code, queries and commands alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streams.offline.memory_pipeline import MemoryPipeline

ARGUMENT = {"python": "code", "sql": "query", "shell": "command"}
Pair = tuple[str, str]


async def shown(tool: str, error: str, past: list[Pair], asked: str) -> str:
    """What a new agent reads after this call failed, if each pair (it failed, it worked) is of another agent."""
    memory = MemoryPipeline()
    for number, pair in enumerate(past):
        made: list[Any] = []
        with memory.session(f"agent {number}", f"job {number}", "t", f"s{number}", made) as session:
            session.record(tool, {ARGUMENT[tool]: pair[0]}, error_text=error)
            session.record(tool, {ARGUMENT[tool]: pair[1]}, result="1 2 3")
            session.succeed()
        await memory.take(made)
    with memory.session("new", "another job", "t", "asker", []) as session:
        session.fleet.settings = replace(session.fleet.settings, holdout_share=0.0)
        session.record(tool, {ARGUMENT[tool]: asked}, error_text=error)
        return session.advise().text


APPEND = "AttributeError: 'DataFrame' object has no attribute 'append'"
APPENDED = [
    (
        "df = pd.read_csv('a.csv')\ndf = df.append({'x': 1}, ignore_index=True)\nprint(df)",
        "df = pd.read_csv('a.csv')\ndf = pd.concat([df, pd.DataFrame([{'x': 1}])], ignore_index=True)\nprint(df)",
    ),
    ("r = sales.append(more)\nprint(r.shape)", "r = pd.concat([sales, more])\nprint(r.shape)"),
]
FREQUENCY = "ValueError: Invalid frequency: H, failed to parse"
FREQUENCIES = [
    ("s.resample('H').sum()", "s.resample('h').sum()"),
    ("g = pd.Grouper(freq='H')", "g = pd.Grouper(freq='h')"),
]


@pytest.mark.parametrize(
    ("tool", "error", "past", "asked", "line"),
    [
        ("python", APPEND, APPENDED, "t = users.append(guests)", "Use `concat` instead of `append`"),
        (
            "python",
            "AttributeError: 'Series' object has no attribute 'iteritems'",
            [
                ("for k, v in s.iteritems(): print(k, v)", "for k, v in s.items(): print(k, v)"),
                ("d = dict(x.iteritems())\nprint(d)", "d = dict(x.items())\nprint(d)"),
            ],
            "out = [b for a, b in prices.iteritems()]",
            "Use `items` instead of `iteritems`",
        ),
        (
            "python",
            "AttributeError: module 'numpy' has no attribute 'trapz'",
            [("print(np.trapz(y, x))", "print(np.trapezoid(y, x))"), ("v = np.trapz(w)", "v = np.trapezoid(w)")],
            "area = np.trapz(h, dx=0.1)",
            "Use `trapezoid` instead of `trapz`",
        ),
        (
            "python",
            "AttributeError: `np.float_` was removed in the NumPy 2.0 release.",
            [
                ("x = np.array(a, dtype=np.float_)", "x = np.array(a, dtype=np.float64)"),
                ("y = np.float_(3)\nprint(y)", "y = np.float64(3)\nprint(y)"),
            ],
            "z = np.zeros(3, np.float_)",
            "Use `float64` instead of `float_`",
        ),
        (
            "python",
            "TypeError: sort_values() got an unexpected keyword argument 'columns'",
            [
                ("d.sort_values(columns='a')", "d.sort_values(by='a')"),
                ("r = s.sort_values(columns='t', ascending=False)", "r = s.sort_values(by='t', ascending=False)"),
            ],
            "best = t.sort_values(columns='score')",
            "Use `by` instead of `columns`",
        ),
        (
            "python",
            "TypeError: fillna() got an unexpected keyword argument 'method'",
            [
                ("df = df.fillna(method='ffill')", "df = df.ffill()"),
                ("s.fillna(method='ffill').sum()", "s.ffill().sum()"),
            ],
            "clean = raw.fillna(method='ffill')",
            "Use `ffill` instead of `method`",
        ),
        ("python", FREQUENCY, FREQUENCIES, "m = sales.resample('H').mean()", "Use `'h'` instead of `'H'`"),
        (
            "sql",
            "no such function: DATE_TRUNC",
            [
                ("SELECT DATE_TRUNC('month', day) FROM a", "SELECT strftime('%Y-%m', day) FROM a"),
                ("SELECT DATE_TRUNC('year', t), x FROM b", "SELECT strftime('%Y', t), x FROM b"),
            ],
            "SELECT DATE_TRUNC('month', paid) FROM c",
            "Use `strftime` instead of `DATE_TRUNC`",
        ),
        (
            "shell",
            "bash: python: command not found",
            [("python run.py --fast", "python3 run.py --fast"), ("python -m this now", "python3 -m this now")],
            "python setup.py build",
            "Use `python3` instead of `python`",
        ),
        (
            "shell",
            "ls: unrecognized option '--colour'",
            [("ls --colour never /etc", "ls --color never /etc"), ("ls --colour auto", "ls --color auto")],
            "ls --colour always /opt",
            "Use `--color` instead of `--colour`",
        ),
    ],
)
async def test_the_name_that_worked_is_told_once_two_agents_used_it(
    tool: str, error: str, past: list[Pair], asked: str, line: str
) -> None:
    assert line in await shown(tool, error, past, asked)
    assert line not in await shown(tool, error, past[:1], asked), "one agent alone"


async def test_a_name_that_each_agent_used_for_itself_is_not_told() -> None:
    past = [APPENDED[0], (APPENDED[1][0], "r = merged_of(sales, more)\nprint(r.shape)")]
    text = await shown("python", APPEND, past, "t = users.append(guests)")
    assert "merged_of" not in text and "concat" not in text


@pytest.mark.parametrize(
    "error", ["KeyError: unknown user 'alice'", "ValueError: no account named 'alice'", "LookupError: 'alice'"]
)
async def test_a_value_that_is_no_option_of_a_tool_stays_masked(error: str) -> None:
    past = [("find_user('alice')", "find_user('bob')"), ("print(find_user('alice'))", "print(find_user('bob'))")]
    assert "bob" not in await shown("python", error, past, "x = find_user('alice')")
