"""Recording from wherever a framework runs a tool: other tasks, other threads, other functions."""

import asyncio
import inspect
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest

import fleetlore
from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore import ConfigError, Fleet, current_session
from fleetlore.agent import doors
from fleetlore.wire import events
from tests.doubles.recorder import Recorder


@fleetlore.tool
def read(path: str, limit: int = 10) -> str:
    """Read a file."""
    if path == "/etc/shadow":
        raise PermissionError(13, "Permission denied")
    return f"{path}: {limit}"


@fleetlore.tool
async def read_later(path: str) -> str:
    await asyncio.sleep(0)
    if path == "/etc/shadow":
        raise PermissionError(13, "Permission denied")
    return path


async def test_the_current_session_is_the_innermost_open_one(fleet: Fleet) -> None:
    async def session_here() -> object:
        return current_session()

    assert current_session() is None
    async with fleet.session("outer") as outer:
        assert current_session() is outer
        with fleet.session("inner") as inner:
            assert current_session() is inner
            assert await asyncio.create_task(session_here()) is inner
            assert await asyncio.to_thread(current_session) is inner
        assert current_session() is outer
    assert current_session() is None


def test_a_session_goes_on_after_one_that_began_before_it(fleet: Fleet, recorder: Recorder) -> None:
    first, second = fleet.session("first"), fleet.session("second")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert current_session() is second and read("x") == "x: 10"
    second.__exit__(None, None, None)
    assert current_session() is None and len(recorder.outcomes) == 1


def test_a_group_of_one_error_is_that_error(fleet: Fleet, recorder: Recorder) -> None:
    """As a task group raises it, around what a client of MCP or HTTP raised."""
    error = PermissionError(13, "Permission denied")

    @fleetlore.tool
    def ask() -> None:
        raise ExceptionGroup("unhandled errors in a TaskGroup", [ExceptionGroup("again", [error])])

    with pytest.raises(ExceptionGroup), fleet.session("g"):
        ask()
    [outcome] = recorder.outcomes
    assert recorder.error(outcome) == ("PermissionError", "[Errno 13] Permission denied")


def test_without_a_session_it_is_the_plain_call(recorder: Recorder) -> None:
    assert read("x", limit=3) == "x: 3"
    assert asyncio.run(read_later("x")) == "x"
    assert not recorder.events


def test_it_keeps_what_a_framework_reads_of_a_function() -> None:
    assert str(inspect.signature(read)) == "(path: str, limit: int = 10) -> str"
    assert read.__name__ == "read" and read.__doc__ == "Read a file."
    assert inspect.iscoroutinefunction(read_later) and not inspect.iscoroutinefunction(read)


async def test_it_records_arguments_by_name_result_and_exception(fleet: Fleet, recorder: Recorder) -> None:
    with fleet.session("g"):
        assert read("x", limit=3) == "x: 3"
        assert await read_later("y") == "y"
        with pytest.raises(PermissionError):
            read("/etc/shadow")
        with pytest.raises(PermissionError):
            await read_later("/etc/shadow")
        with pytest.raises(TypeError):
            read(1, 2, 3)
    ended = recorder.outcomes
    assert [each[events.TOOL] for each in ended] == ["read", "read_later", "read", "read_later", "read"]
    assert ended[0][events.ARGUMENTS] == {"path": "x", "limit": 3} and ended[0][events.RESULT] == "x: 3"
    denied = "PermissionError", "[Errno 13] Permission denied"
    assert [recorder.error(each) for each in ended[:4]] == [None, None, denied, denied]
    assert ended[4][events.ERROR_TYPE] == "TypeError"


@dataclass
class Query:
    text: str


@dataclass
class Context:
    client: object


async def test_what_holds_no_data_is_no_argument(fleet: Fleet, recorder: Recorder) -> None:
    class Shop:
        @fleetlore.tool(name="shop_search")
        def search(self, context: Context, query: Query, *where: Path, **more: object) -> int:
            return 1

    with fleet.session("g"):
        Shop().search(Context(object()), Query("red"), Path("/a"), first=True, lock=threading.Lock())
    assert recorder.outcomes[0][events.TOOL] == "shop_search"
    assert recorder.outcomes[0][events.ARGUMENTS] == {"query": {"text": "red"}, "where": ["/a"], "first": True}


@dataclass
class Row:
    """A row whose fields are loaded when they are read, as those of an object-relational mapper."""

    key: int

    def __getattribute__(self, name: str) -> object:
        if name == "key":
            raise RuntimeError("the row is bound to no database session")
        return object.__getattribute__(self, name)


def test_a_tool_is_called_with_an_argument_whose_fields_cannot_be_read(fleet: Fleet, recorder: Recorder) -> None:
    @fleetlore.tool
    def store(row: object, mode: str, *others: object) -> int:
        return 1

    with fleet.session("g"):
        assert store(Row(1), "new") == 1
        assert store([Row(1)], "new", Row(1)) == 1
    assert [each[events.ARGUMENTS] for each in recorder.outcomes] == [{"mode": "new"}] * 2


def test_a_tool_may_return_what_cannot_be_read(fleet: Fleet, recorder: Recorder) -> None:
    class Rows(list[Any]):
        def __len__(self) -> int:
            raise RuntimeError("the connection is closed")

    with fleet.session("g"):
        for returned in ({"error": np.zeros(2)}, Rows()):
            assert fleetlore.tool(lambda each: each, name="fit")(returned) is returned
    assert [recorder.error(each) for each in recorder.outcomes] == [None, None]


@dataclass
class Node:
    children: list[Any]
    parent: object = None


@pytest.mark.timeout(10)
def test_a_tree_whose_nodes_know_their_parent_delays_no_call(fleet: Fleet, recorder: Recorder) -> None:
    root = Node([])
    root.children += [Node([], root) for _ in range(1000)]
    with fleet.session("g"):
        assert fleetlore.tool(lambda node: node, name="walk")(root) is root
    assert len(recorder.outcomes) == 1


def test_an_error_that_is_no_text_is_recorded_as_one(fleet: Fleet, recorder: Recorder) -> None:
    with fleet.session("g") as session:
        session.record("sql", {}, error_text={"code": 5})  # type: ignore[arg-type]  # agents are not type-checked
    assert [recorder.error(each) for each in recorder.outcomes] == [("_OTHER", "{'code': 5}")]


async def test_a_coroutine_of_a_plain_function_ends_once_it_was_awaited(fleet: Fleet, recorder: Recorder) -> None:
    """Many decorators wrap an async function in a plain one."""

    async def fetch(address: str) -> str:
        await asyncio.sleep(0)
        if address == "bad":
            raise PermissionError("no access")
        return address

    class Fetcher:
        async def __call__(self, address: str) -> str:
            return await fetch(address)

    plain = fleetlore.tool(name="plain")(lambda address: fetch(address))
    called = fleetlore.tool(name="called")(Fetcher())
    with fleet.session("g"):
        for tool in (plain, called):
            assert await asyncio.gather(tool("a"), tool("bad"), return_exceptions=True) == ["a", ANY]
    ended = [(each[events.TOOL], each[events.ARGUMENTS]["address"], recorder.error(each)) for each in recorder.outcomes]
    denied = "PermissionError", "no access"
    assert sorted(ended, key=str) == [
        ("called", "a", None), ("called", "bad", denied), ("plain", "a", None), ("plain", "bad", denied),
    ]  # fmt: skip
    assert [each.get(events.RESULT) for each in recorder.outcomes].count("a") == 2


def test_a_tool_without_a_name_is_refused_where_it_is_made() -> None:
    with pytest.raises(ConfigError, match="has no name"):
        fleetlore.tool(partial(print, "x"))


def test_a_long_list_is_data_whose_values_are_not_read(fleet: Fleet, recorder: Recorder) -> None:
    class Untouched(list[Any]):
        def __iter__(self) -> Any:
            raise AssertionError("it was read")

    with fleet.session("g") as session:
        for result in (list(range(65)), Untouched(range(65))):
            with session.action("embed") as action:
                action.returned(result)
                assert action.result is result and action.error is None
                action.result = "65 numbers"


def lines_of(text: str) -> Any:
    yield text


def test_a_generator_is_refused_where_it_is_written() -> None:
    with pytest.raises(ConfigError, match="is a generator"):

        @fleetlore.tool
        def lines() -> Any:
            yield "a"

    with pytest.raises(ConfigError, match="is a generator"):
        fleetlore.tool(name="lines")(partial(lines_of, "a"))


async def test_under_a_frameworks_hook_a_call_is_recorded_once_as_it_was(fleet: Fleet, recorder: Recorder) -> None:
    with fleet.session("g") as session:
        with session.action("read", {"path": "/etc/shadow"}) as action:
            try:
                read("/etc/shadow")
            except PermissionError:
                action.result = "An error occurred while running the tool. Please try again."
        with session.action("read", {"path": "x"}) as action:
            for path in ("/etc/shadow", "x"):  # the framework tries again, and then it works
                try:
                    action.result = read(path)
                except PermissionError:
                    continue
        with session.action("another", {}):
            read("y")
    assert [(each[events.TOOL], recorder.error(each)) for each in recorder.outcomes] == [
        ("read", ("PermissionError", "[Errno 13] Permission denied")),
        ("read", None),
        ("read", None),
        ("another", None),
    ]


async def test_a_call_may_begin_and_end_in_different_functions(fleet: Fleet, recorder: Recorder) -> None:
    with fleet.session("g") as session:
        first, second = session.begin("sql", {"q": 1}, call_id="1"), session.begin("sql", {"q": 2}, call_id="2")
        second.end(error_text="PermissionError: [Errno 13] Permission denied")
        first.end([1], duration_seconds=0.25)
        first.end(error=ValueError("only the first end counts"))
        session.record("sql", {"q": 3}, error=KeyError("x"), duration_seconds=2)
        session.record("sql", {"q": 4}, error=asyncio.CancelledError())
        session.record("sql", {"q": 5}, error_text="")
        session.begin("sql", {"q": 6}).abandon()
    ended = recorder.outcomes
    assert [each[events.ARGUMENTS]["q"] for each in ended] == [2, 1, 3, 5]
    assert [recorder.error(each) for each in ended] == [
        ("_OTHER", "PermissionError: [Errno 13] Permission denied"), None, ("KeyError", "'x'"), ("_OTHER", "")
    ]  # fmt: skip
    assert [each[events.DURATION] for each in ended[1:3]] == [0.25, 2]


class _Gone(KeyError):
    def __str__(self) -> str:
        return "gone for good"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (KeyError("warehouse berlin was renamed to ber-1"), "warehouse berlin was renamed to ber-1"),
        (KeyError("price"), "'price'"),
        (KeyError(("a b", 1)), "('a b', 1)"),
        (KeyError(), ""),
        (_Gone("a b"), "gone for good"),
    ],
)
async def test_a_key_error_says_its_text(fleet: Fleet, recorder: Recorder, error: KeyError, text: str) -> None:
    with fleet.session("g") as session:
        session.record("stock", {"q": 1}, error=error)
    assert recorder.error(recorder.outcomes[0]) == (type(error).__name__, text)


async def test_a_failure_without_a_word_is_no_success(fleet: Fleet, recorder: Recorder) -> None:
    with fleet.session("g") as session, session.action("sql") as action:
        action.fail("")
    assert recorder.error(recorder.outcomes[0]) == ("_OTHER", "")
    assert recorder.events[-1].data[events.OUTCOME] == "unknown", "the session may have got past it"


async def test_a_reused_id_is_refused_loudly(fleet: Fleet, recorder: Recorder) -> None:
    with fleet.session("g", session_id="thread-1"):
        pass
    with pytest.raises(ConfigError, match="has begun before"), fleet.session("g", session_id="thread-1"):
        pass
    session = fleet.session("g")
    with session:
        pass
    with pytest.raises(ConfigError, match="has begun before"), session:
        pass
    assert recorder.kinds == ["session.started", "session.ended"] * 2


async def test_a_further_part_has_an_id_of_its_own_and_names_the_whole(fleet: Fleet, recorder: Recorder) -> None:
    ids = []
    for _ in range(2):
        async with fleet.session("g", session_id="thread-1", resume=True) as session:
            ids.append(session.id)
    assert len(set(ids)) == 2 and all(each.startswith("thread-1.") for each in ids)
    started = [event.data for event in recorder.events if event.kind == "session.started"]
    assert [each[events.CONVERSATION] for each in started] == ["thread-1", "thread-1"]


async def test_a_client_with_other_tools_in_each_request_fills_no_memory(fleet: Fleet) -> None:
    async with fleet.session("g") as session:
        first = doors.prompt_prefix(session, ["t0"])
        for number in range(1_000):
            doors.prompt_prefix(session, [f"t{number}"])
            doors.tool_note(session, f"t{number}")
        assert len(doors._PREFIXES[session]) == len(doors._NOTES[session]) == doors._MOST_TEXTS
        assert doors.prompt_prefix(session, ["t0"]) == first


async def test_any_thread_may_record_while_the_loop_stands_still(broker: EmbeddedBroker, tenant: str) -> None:
    async with Fleet("agent", broker=broker.address, tenant=tenant) as fleet:
        with fleet.session("g", session_id="s1") as session, ThreadPoolExecutor(8) as pool:
            # The loop's thread waits here, as it does where a framework is run without `await`.
            contexts = [copy_context() for _ in range(200)]
            list(pool.map(lambda number: contexts[number].run(read, str(number)), range(200)))
            session.advise("read", {"path": "x"})
        assert await fleet.flush(120)
        assert (fleet.sent, fleet.dropped) == (202, 0)
