"""Agents that run again and again, as README's own, read what works, and no line against it."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle

from fleetlore.wire.events import Event
from streams.offline.memory_pipeline import MemoryPipeline
from tests.rows import for_each

MESSAGE = "index products does not exist, it was split into products-eu and products-us"
WRONG, RIGHT = {"index": "products"}, {"index": "products-eu"}
RUNS = 25


async def told(
    agents: Sequence[str], wrong: object, right: object, message: str, runs: int = RUNS
) -> list[tuple[str, str, set[str]]]:
    """Return, for each run, the texts before the wrong call and before the right one, and the ids that are withheld."""
    memory, found = MemoryPipeline(), []
    for number, agent in zip(range(runs), cycle(agents), strict=False):
        made: list[Event] = []
        kept_back: set[str] = set()
        shown = []
        with memory.session(agent, "find a red bicycle", "shop", f"s{number}", made) as session:
            session.fleet.settings = replace(session.fleet.settings, quorum=1)  # they have one owner, as README's
            for call in (wrong, right):
                advice = session.advise("search", call)
                shown.append(advice.text)
                kept_back |= set(advice.withheld)
                said = {"error_text": f"LookupError: {message}"} if call is wrong else {"result": "3 hits"}
                session.record("search", call, **said)
            session.succeed()
        await memory.take(made)
        found.append((shown[0], shown[1], kept_back))
    return found


@for_each("agents", ("me",), ("me", "you"), ("a", "b", "c", "d"))
@for_each(
    "wrong, right, use",
    (WRONG, RIGHT, "Use `index=products-eu` instead of `index=products`"),
    ("find in products", "find in products-eu", "Use `products-eu` instead of `products`"),
)
async def test_no_run_reads_two_lines_that_contradict(
    agents: tuple[str, ...], wrong: object, right: object, use: str
) -> None:
    runs = await told(agents, wrong, right, MESSAGE)
    assert [before_right for _, before_right, _ in runs if before_right] == []
    told_to_use = [use in before_wrong for before_wrong, _, _ in runs[1:]]
    assert all(shown or kept_back for shown, (_, _, kept_back) in zip(told_to_use, runs[1:], strict=True))
    assert sum(told_to_use) >= 0.8 * len(told_to_use), "a twentieth is held out"


@for_each("agents", ("me",), ("a", "b", "c", "d"))
@for_each(
    "wrong, right, message",
    ({"name": "data"}, {"name": "data-3f2a9c"}, "NoSuchBucket: data"),
    ({"name": "data"}, {"name": "data-3f2a9c"}, "no bucket 'data'"),
    ({"topic": "orders"}, {"topic": "prod.orders.v12345"}, "unknown topic 'orders'"),
    ({"spec": '{"image": "a"}'}, {"spec": '{"image": "a", "replicas": 3}'}, "missing field replicas"),
    ({"n": 5000}, {"n": 1000}, "batch too large"),
    ({"path": "/a/conf.yaml"}, {"path": "/a/config/app.yaml"}, "no such file"),
)
async def test_the_call_that_works_is_never_warned_of(
    agents: tuple[str, ...], wrong: dict[str, object], right: dict[str, object], message: str
) -> None:
    """Its value begins with the one that failed, holds it, or replaces it."""
    assert [text for _, text, _ in await told(agents, wrong, right, message, runs=10) if text] == []


@for_each("value, longer", ("data", "data-3f2a9c"), ("shop.data", "shop.data.v12345"), ("a/data.csv", "a/data-2.csv"))
async def test_the_value_that_failed_is_warned_of_until_it_works(value: str, longer: str) -> None:
    wrong: dict[str, object] = {"name": value}
    memory, error = MemoryPipeline(), "unknown name 'data'"
    for agent in "abcd":
        await work(memory, agent, "read", (wrong, error), ({**wrong, "n": 1}, None))
    with memory.session("new", "another job", "shop api", "new", []) as session:
        assert "Add `n=1` in read" in session.advise("read", wrong).text
        assert session.advise("read", {"name": longer}).text == ""
    with memory.session("new", "another job", "shop api", "other", []) as session:
        assert session.advise("read", {"name": longer}).text == "", "and not because it was shown once"
    with memory.session("new", "another job", "shop api", "newer", []) as session:
        session.record("read", wrong, error_text=error)
        assert "Add `n=1` in read" in session.advise("read", wrong).text
    with memory.session("new", "another job", "shop api", "newest", []) as session:
        session.record("read", wrong, error_text=error)
        session.record("read", wrong, result="ok")
        assert session.advise("read", wrong).text == ""


@for_each("wrong, error, right, told",
    ("docker-compose up", "bash: docker-compose: command not found", "docker compose up",
     "Use `docker compose` instead of `docker-compose`"),
    ("pip install x", "bash: pip: command not found", "python3 -m pip install x", "Add `python3 -m`"),
    ("readlink -f x", "readlink: illegal option -- f", "realpath x", "Use `realpath` instead of `readlink -f`"),
    ("lint . --ext ts", "Invalid option '--ext' - perhaps you meant '-c'?", "lint .", "Leave out `--ext ts`"),
)  # fmt: skip
async def test_the_way_that_others_found_is_told_before_the_call(wrong: str, error: str, right: str, told: str) -> None:
    memory = MemoryPipeline()
    for agent in "abc":
        await work(memory, agent, "bash", ({"command": wrong}, error), ({"command": right}, None))
    with memory.session("new", "another job", "shop api", "new", []) as session:
        session.fleet.settings = replace(session.fleet.settings, holdout_share=0.0)  # the share goes by ids of patterns
        assert f"- {told} in bash." in session.advise("bash", {"command": wrong}).text
        assert session.advise("bash", {"command": right}).text == ""


ENDPOINTS = "/v2/accounts", "/v2/orders", "/v2/report", "/v2/stock", "/v2/prices"


async def work(memory: MemoryPipeline, agent: str, tool: str, *calls: tuple[dict[str, object], str | None]) -> None:
    """Run a session of calls, each with its fault."""
    made: list[Event] = []
    with memory.session(agent, f"job of {agent}", "shop api", f"s{memory.clock.tick()}", made) as session:
        for arguments, fault in calls:
            session.record(tool, arguments, result="ok", error_text=fault)
        session.succeed()
    await memory.take(made)


async def read_after(faults: dict[str, str], endpoints: Sequence[str] = ENDPOINTS) -> tuple[str, list[str]]:
    """Return the texts that a new agent reads about `http` and before each call, once others met these faults."""
    memory = MemoryPipeline()
    for agent in "abcd":
        await work(memory, agent, "http", *(({"method": "GET", "path": path}, faults.get(path)) for path in endpoints))
    with memory.session("new", "another job", "shop api", "new", []) as session:
        brief = session.brief(["http"]).text
    before_calls = []
    for path in endpoints:
        with memory.session("new", "another job", "shop api", f"new {path}", []) as session:
            before_calls.append(session.advise("http", {"method": "GET", "path": path}).text)
    return brief, before_calls


async def test_a_tool_is_not_called_faulty_for_one_of_its_endpoints() -> None:
    faults = {"/v2/stock": "HTTP 503 Service Unavailable", "/v2/prices": "HTTP 429 Too Many Requests"}
    brief, before_calls = await read_after(faults)
    assert not any("passing fault" in text for text in (brief, *before_calls))
    everywhere = dict.fromkeys(ENDPOINTS[:3], "HTTP 503 Service Unavailable") | {"/v2/prices": faults["/v2/prices"]}
    brief, _ = await read_after(everywhere)
    assert brief.count("passing fault") == 1


@for_each("place", *range(len(ENDPOINTS)))
async def test_one_endpoint_with_a_fault_does_not_delay_calls_of_the_others(place: int) -> None:
    """Whichever was called last."""
    endpoints = [*ENDPOINTS[place:], *ENDPOINTS[:place]]
    _, before_calls = await read_after({"/v2/stock": "HTTP 503 Service Unavailable"}, endpoints)
    assert not any("passing fault" in text for text in before_calls)


async def test_a_fault_of_all_endpoints_delays_each_call() -> None:
    _, before_calls = await read_after(dict.fromkeys(ENDPOINTS, "HTTP 503 Service Unavailable"))
    assert all("passing fault" in text for text in before_calls)


@for_each("others", 0, 5)
async def test_the_faults_of_one_agent_stop_no_tool_that_works_for_others(others: int) -> None:
    memory, call = MemoryPipeline(), {"method": "GET", "path": "/v2/stock"}
    for agent in [f"honest {n}" for n in range(others)]:
        await work(memory, agent, "http", (call, None))
    for _ in range(9):
        await work(memory, "one", "http", *[(call, "HTTP 503 Service Unavailable")] * 4)
    with memory.session("new", "another job", "shop api", "new", []) as session:
        brief, before_call = session.brief(["http"]).text, session.advise("http", call).text
    assert ("passing fault" in brief) == (not others)
    assert not others or not before_call


HOSTS = "stock.example.com", "prices.example.com", "orders.example.com"


async def test_a_passing_fault_of_one_host_is_said_of_its_calls_alone() -> None:
    memory = MemoryPipeline()
    for agent in "abcd":
        faults = ("HTTP 503 Service Unavailable", None, None)
        calls = [({"url": f"https://{host}/v1/{agent}"}, fault) for host, fault in zip(HOSTS, faults, strict=True)]
        await work(memory, agent, "fetch", *calls)
    with memory.session("new", "another job", "shop api", "new", []) as session:
        assert session.brief(["fetch"]).text == ""
        asked = [session.advise("fetch", {"url": f"https://{host}/v1/new"}).text for host in HOSTS]
    assert f"wait and call `{HOSTS[0]}` again" in asked[0] and not any(asked[1:])
