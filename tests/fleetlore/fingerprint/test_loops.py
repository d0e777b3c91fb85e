from collections import Counter
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from fleetlore.fingerprint.fingerprint import failure_of
from fleetlore.fingerprint.loops import Loop, LoopDetector
from tests.rows import for_each

Call = tuple[str, object, object, str | None]

A: Call = ("bash", {"command": "cat x"}, "no", None)
B: Call = ("bash", {"command": "ls"}, "a b", None)
C: Call = ("read", {"path": "y"}, "text", None)
D: Call = ("sql", {"query": "select 1"}, "1 row", None)


def add(detector: LoopDetector, call: Call) -> Loop | None:
    tool, arguments, result, error = call
    return detector.add(tool, arguments, result, failure_of(tool, "", None, error).class_ if error else None)


def find_loop(calls: Iterable[tuple[str, object, object, str | None]]) -> Loop | None:
    """The longest loop among a session's calls (tool, arguments, result, error); None where there is none."""
    detector = LoopDetector()
    found: Counter[str] = Counter()
    loops: dict[str, Loop] = {}
    for call in calls:
        if loop := add(detector, call):
            found[loop.id] += 1
            loops[loop.id] = loop
    return loops[min(found, key=lambda id: (-found[id], id))] if found else None


def x(number: int) -> Call:
    return "think", {"about": f"step {number}"}, f"thought {number}", None


def at(calls: list[Call]) -> int | None:
    """How many calls it took until a loop was seen."""
    detector = LoopDetector()
    return next((place for place, call in enumerate(calls, 1) if add(detector, call)), None)


@for_each(
    "calls, kind, period, seen_at",
    ([A] * 5, "repeat", 1, 3),
    ([A, B] * 4, "cycle", 2, 6),
    ([A, B, C] * 3, "cycle", 3, 6),
    ([A, B, C, D] * 3, "cycle", 4, 8),
    ([A, A, B] * 3, "repeat", 1, 5),
    ([A, A, x(1), A, A, x(2), A, A, x(3)], "repeat", 1, 5),
    ([B, C, D, A, A, A], "repeat", 1, 6),
)
def test_what_goes_round_is_seen(calls: list[Call], kind: str, period: int, seen_at: int) -> None:
    loop = find_loop(calls)
    assert loop is not None
    assert (loop.kind, len(loop.around), at(calls)) == (kind, period, seen_at)


def poll(state: str) -> Call:
    return "http", {"url": "https://a.example/job/7"}, state, None


@for_each(
    "calls",
    [A, A, B, C, D],
    [A, B, A, B, C],
    [x(1), x(2), x(3), x(4), x(5), x(6)],
    [poll(f"{percent} % done") for percent in range(0, 100, 10)],
    [poll(f'{{"status": "running", "built": {n}}}') for n in range(9)],
    # A blank inside a value makes another call; so does what lies behind the first 300 characters.
    [("bash", {"command": command}, "", "exit code 1") for command in ("rm -rf / tmp/x", "rm -rf /tmp/x", "ls")],
    [("write", {"content": "z" * 400, "path": path}, "written", None) for path in ("a", "b", "c", "d", "e")],
    [("pad", {"note": "hm"}, "", None)] * 9,
    [("pad", {"note": "hm"}, None, None)] * 9,
    [("read", {"path": f"/srv/{name}"}, "", "No such file or directory") for name in ("ab", "cd", "ef", "gh", "ij")],
)
def test_what_gets_on_is_no_loop(calls: list[Call]) -> None:
    assert find_loop(calls) is None


def test_what_changes_by_itself_does_not_hide_a_loop() -> None:
    said = ["at 2026-01-01T10:00:0{0} in {0}.2s, pid 4{0}, object at 0x7f{0}", "exit 1"]
    calls: list[Call] = [("bash", "make", said[0].format(n), None) for n in range(4)]
    assert at(calls) == 3
    failed: list[Call] = [("bash", "make", "", f"error in /tmp/b{n}/x.c:{n}: bad") for n in range(4)]
    assert at(failed) == 3


def test_small_changes_that_do_not_help_are_a_retry() -> None:
    queries = [f"SELECT name, {column} FROM users WHERE id = {n}" for n, column in enumerate(("a", "b", "c", "d"))]
    calls: list[Call] = [("sql", {"query": query}, "", "table users does not exist") for query in queries]
    loop = find_loop(calls)
    assert loop is not None and (loop.kind, loop.times, loop.tools) == ("retry", 4, ("sql",))
    assert find_loop(calls[:3]) is None
    assert find_loop([*calls[:2], D, *calls[2:]]) is None
    other: Call = ("sql", {"query": queries[0]}, "", "column name does not exist")
    assert find_loop([*calls[:3], other]) is None


@given(st.lists(st.sampled_from([A, B, C, D]), max_size=20), st.sampled_from([[A, B], [A, B, C], [A, B, C, D], [D]]))
def test_a_long_enough_round_is_seen_whatever_came_before(before: list[Call], block: list[Call]) -> None:
    detector = LoopDetector()
    for call in before:
        add(detector, call)
    assert any([add(detector, call) for call in block * 6])


def test_a_call_that_fails_again_and_again_gave_no_result_to_be_used() -> None:
    failed = find_loop([("sql", "SELECT 1 FROM car", None, "no such table: car")] * 3)
    assert failed is not None and failed.failed
    assert str(failed) == "sql was called 3 times with the same arguments and failed in the same way."
    around = "The calls bash → bash → read were gone through 2 times with the same results."
    assert str(find_loop([A, B, C] * 2)) == around
    worked = find_loop([("sql", "SELECT 1", "1", None)] * 3)
    assert worked is not None and not worked.failed
