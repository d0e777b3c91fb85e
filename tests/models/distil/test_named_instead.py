"""A session that got past a rejected name tells others which name worked, for code, queries and commands alike."""

import json
from dataclasses import replace
from typing import Any

from streams.offline.memory_pipeline import MemoryPipeline
from tests.rows import for_each

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


@for_each("tool, error, past, asked, line",
    ("python", APPEND, APPENDED, "t = users.append(guests)", "Use `concat` instead of `append`"),
    ("python", "AttributeError: 'Series' object has no attribute 'iteritems'",
     [("for k, v in s.iteritems(): print(k, v)", "for k, v in s.items(): print(k, v)"),
      ("d = dict(x.iteritems())\nprint(d)", "d = dict(x.items())\nprint(d)")],
     "out = [b for a, b in prices.iteritems()]", "Use `items` instead of `iteritems`"),
    ("python", "AttributeError: module 'numpy' has no attribute 'trapz'",
     [("print(np.trapz(y, x))", "print(np.trapezoid(y, x))"), ("v = np.trapz(w)", "v = np.trapezoid(w)")],
     "area = np.trapz(h, dx=0.1)", "Use `trapezoid` instead of `trapz`"),
    ("python", "AttributeError: `np.float_` was removed in the NumPy 2.0 release.",
     [("x = np.array(a, dtype=np.float_)", "x = np.array(a, dtype=np.float64)"),
      ("y = np.float_(3)\nprint(y)", "y = np.float64(3)\nprint(y)")],
     "z = np.zeros(3, np.float_)", "Use `float64` instead of `float_`"),
    ("python", "TypeError: sort_values() got an unexpected keyword argument 'columns'",
     [("d.sort_values(columns='a')", "d.sort_values(by='a')"),
      ("r = s.sort_values(columns='t', ascending=False)", "r = s.sort_values(by='t', ascending=False)")],
     "best = t.sort_values(columns='score')", "Use `by` instead of `columns`"),
    ("python", "TypeError: fillna() got an unexpected keyword argument 'method'",
     [("df = df.fillna(method='ffill')", "df = df.ffill()"),
      ("s.fillna(method='ffill').sum()", "s.ffill().sum()")],
     "clean = raw.fillna(method='ffill')", "Use `ffill` instead of `method`"),
    ("python", "ValueError: Invalid frequency: H, failed to parse",
     [("s.resample('H').sum()", "s.resample('h').sum()"), ("g = pd.Grouper(freq='H')", "g = pd.Grouper(freq='h')")],
     "m = sales.resample('H').mean()", "Use `'h'` instead of `'H'`"),
    ("sql", "no such function: DATE_TRUNC",
     [("SELECT DATE_TRUNC('month', day) FROM a", "SELECT strftime('%Y-%m', day) FROM a"),
      ("SELECT DATE_TRUNC('year', t), x FROM b", "SELECT strftime('%Y', t), x FROM b")],
     "SELECT DATE_TRUNC('month', paid) FROM c", "Use `strftime` instead of `DATE_TRUNC`"),
    ("shell", "bash: python: command not found",
     [("python run.py --fast", "python3 run.py --fast"), ("python -m this now", "python3 -m this now")],
     "python setup.py build", "Use `python3` instead of `python`"),
    ("shell", "ls: unrecognized option '--colour'",
     [("ls --colour never /etc", "ls --color never /etc"), ("ls --colour auto", "ls --color auto")],
     "ls --colour always /opt", "Use `--color` instead of `--colour`"),
)  # fmt: skip
async def test_the_name_that_worked_is_told_once_two_agents_used_it(
    tool: str, error: str, past: list[Pair], asked: str, line: str
) -> None:
    assert line in await shown(tool, error, past, asked)
    assert line not in await shown(tool, error, past[:1], asked), "one agent alone"


async def test_a_name_that_each_agent_used_for_itself_is_not_told() -> None:
    past = [APPENDED[0], (APPENDED[1][0], "r = merged_of(sales, more)\nprint(r.shape)")]
    text = await shown("python", APPEND, past, "t = users.append(guests)")
    assert "merged_of" not in text and "concat" not in text


@for_each("error", "KeyError: unknown user 'alice'", "ValueError: no account named 'alice'", "LookupError: 'alice'")
async def test_a_value_that_is_no_option_of_a_tool_stays_masked(error: str) -> None:
    past = [("find_user('alice')", "find_user('bob')"), ("print(find_user('alice'))", "print(find_user('bob'))")]
    assert "bob" not in await shown("python", error, past, "x = find_user('alice')")


GET = {"method": "GET"}


async def after(
    error: str, wrong: dict[str, Any], right: dict[str, Any], agents: int = 3, goals: int = 2
) -> list[tuple[str, object]]:
    """What agents with other goals are shown before the wrong call and after it failed, and the call they may send."""
    memory = MemoryPipeline()
    for number in range(agents):
        made: list[Any] = []
        with memory.session(f"agent {number}", f"job {number % goals}", "api", f"s{number}", made) as session:
            session.record("call_api", wrong, error_text=error)
            session.record("call_api", right, result="ok")
            session.succeed()
        await memory.take(made)
    with memory.session("new", "another job", "api", "asker", []) as session:
        session.fleet.settings = replace(session.fleet.settings, holdout_share=0.0)
        before = session.advise("call_api", wrong)
        working = session.advise("call_api", right)
        session.record("call_api", wrong, error_text=error)
        later = session.advise()
    assert not working, "the call that works is not warned of"
    # Without the fence, whose nonce may hold any digits.
    return [("\n".join(tip.text for tip in each.tips), each.call) for each in (before, later)]


@for_each(
    "error, wrong, right",
    ("410 Gone: deprecated; Link: </v2/accounts>", GET | {"path": "/v1/users"}, GET | {"path": "/v2/accounts"}),
    ("HTTP Error 410: Gone", GET | {"path": "/v1/users"}, GET | {"path": "/v2/users"}),
    ("404: no such route", GET | {"path": "/facturas"}, GET | {"path": "/invoices"}),
    ("301 Moved", {"url": "https://api.example.com/users"}, {"url": "https://api.example.com/people"}),
    ("404 Not Found", {"endpoint": "/api/stock"}, {"endpoint": "/api/inventory/stock"}),
)
async def test_a_route_that_works_is_told_in_place_of_one_that_is_gone(
    error: str, wrong: dict[str, str], right: dict[str, str]
) -> None:
    (was, now) = next((wrong[key], right[key]) for key in wrong if wrong[key] != right[key])
    told = await after(error, wrong, right)
    assert any(f"={now}`" in text and f"={was}`" in text for text, _ in told), told
    assert right in [call for _, call in told]


_UNNAMED = "422 Unprocessable Entity"
# Calls whose keys are fields. Keys in lists and texts may be data.
_FIELDS = (
    '{"method": "POST", "path": "/v2/orders", "FIELD": 4711, "sku": "A"}',
    '{"method": "POST", "path": "/v2/SAME", "body": {"FIELD": 4711, "note": "the SAME"}}',
    '{"FIELD": "ann"}',
    '{"body": {"FIELD": 4711}}',
    """{"code": "client.orders.list(FIELD='4711', limit=5)"}""",
)


@for_each(
    "error, was, now",
    ("422: missing field: client_ref", "customer_id", "client_ref"),
    ("400: unbekanntes Feld 'menge'", "menge", "anzahl"),
    (_UNNAMED, "qty", "quantity"),
)
@for_each(
    "call",
    *_FIELDS,
    '{"lines": [{"FIELD": 4711, "sku": "A"}, {"FIELD": 2, "sku": "B"}]}',
    '{"url": "https://api.example.com/v2/SAME/orders?FIELD=4711&limit=5"}',
    '{"path": "/v2/orders?limit=5&FIELD=4711"}',
    '{"url": "https://api.example.com/orders", "data": "{\\"FIELD\\": 4711, \\"sku\\": \\"A\\"}"}',
    '{"body": "FIELD=4711&sku=A"}',
    """{"command": "curl https://api.example.com/orders -d '{\\"FIELD\\": \\"4711\\"}'"}""",
    """{"code": "requests.post('https://api.example.com/orders', json={'FIELD': '4711'})"}""",
)
async def test_a_field_with_another_name_is_told_without_its_value(error: str, was: str, now: str, call: str) -> None:
    wrong, right = (json.loads(call.replace("FIELD", name).replace("SAME", was)) for name in (was, now))
    told = await after(error, wrong, right)
    if error == _UNNAMED and call not in _FIELDS:
        assert not any(now in text for text, _ in told), "it may be data"
        return
    assert any(f"Use `{now}` instead of `{was}`" in text for text, _ in told), told
    assert "4711" not in "".join(text for text, _ in told)
    assert right in [made for _, made in told]


@for_each(
    "error, name, was, now, is_told",
    # A setting that holds digits.
    ("ValueError: batch too large", "batch", "5000", "1000", True),
    ("model not found", "model", "gpt-4-0314", "gpt-4o-2024-08-06", True),
    ("no such image", "image", "node:18-alpine", "node:22-alpine", True),
    # What names one thing.
    ("404 Not Found", "path", "/v1/users/4711", "/v1/users/4712", False),
    ("404 Not Found", "path", "/home/ann/notes", "/home/bob/notes", False),
    ("404 Not Found", "url", "https://example.com/orders?id=7", "https://example.com/orders?id=8", False),
    ("404 Not Found", "order_number", "5000", "1000", False),
    ("404 Not Found", "ticket", "INC-4711", "REQ-9921", False),
)
async def test_a_setting_is_told_and_the_name_of_one_thing_is_not(
    error: str, name: str, was: str, now: str, is_told: bool
) -> None:
    told = await after(error, {name: was, "retries": 2}, {name: now, "retries": 2})
    line = f"Use `{name}={now}` instead of `{name}={was}`"
    assert any((line if is_told else now) in text for text, _ in told) is is_told, told


@for_each("error, failed, worked, told",
    ("error: JAVA_HOME is not set", "mvn test", "JAVA_HOME=/usr/lib/jvm/17 mvn test",
     "Add `JAVA_HOME=…` in shell, with a path for `…`."),
    ("psql: could not connect to server", "psql db", "psql -p 5433 db",
     "Use `psql -p …` instead of `psql` in shell, with a number for `…`."),
)  # fmt: skip
async def test_a_literal_is_told_by_its_kind(error: str, failed: str, worked: str, told: str) -> None:
    assert told in await shown("shell", error, [(failed, worked)] * 4, failed)
