"""Logs of each form, as its producer writes them, and what they become."""

import os
import struct
import tracemalloc
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import tzset
from typing import Any

import orjson
import pytest
import zstandard

from fleetlore.errors import ConfigError
from fleetlore.kafka.encode import encode
from fleetlore.transcripts import read as forms
from fleetlore.transcripts.read import FORMS, files_of, groups_of, read_files, read_sessions
from fleetlore.transcripts.session import Conversation, LoggedSession, seconds_of, timed_events
from fleetlore.wire import events as ev
from tests.rows import for_each

TEXT = "PermissionError: [Errno 13] Permission denied: '/etc/shadow'"
CALLS: list[tuple[str, str, str, bool]] = [
    ("c1", "/etc/shadow", TEXT, True),
    ("c2", "/srv/a", "a page about PermissionError: what it means", False),
]


def in_messages(folder: Path) -> None:
    """Two calls side by side, answered in the other order."""
    functions = [{"name": "read_file", "arguments": orjson.dumps({"path": path}).decode()} for _, path, _, _ in CALLS]
    made = [{"id": call[0], "type": "function", "function": each} for call, each in zip(CALLS, functions, strict=True)]
    answers = [{"role": "tool", "tool_call_id": id, "content": text} for id, _, text, _ in reversed(CALLS)]
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "look"}]},
        {"role": "assistant", "content": None, "tool_calls": made},
        *answers,
        {"role": "assistant", "content": "done"},
    ]
    line = {"messages": messages, "task_id": 7, "reward": 1.0, "model": "m"}
    (folder / "a.jsonl").write_bytes(orjson.dumps(line) + b"\nno json\n{}\n")


def in_claude_code(folder: Path) -> None:
    def entry(number: int, role: str, content: Any) -> bytes:
        about = {"type": role, "sessionId": "s1", "timestamp": f"2026-01-01T00:00:0{number}.500Z", "uuid": str(number)}
        return orjson.dumps({**about, "message": {"role": role, "content": content}})

    uses = [{"type": "tool_use", "id": id, "name": "read_file", "input": {"path": path}} for id, path, _, _ in CALLS]
    results = [
        {"type": "tool_result", "tool_use_id": id, "is_error": failed, "content": [{"type": "text", "text": text}]}
        for id, _, text, failed in reversed(CALLS)
    ]
    stopped = {"type": "tool_result", "tool_use_id": "c3", "is_error": True, "content": "[Request interrupted by user]"}
    lines = [
        orjson.dumps({"type": "summary", "summary": "x", "leafUuid": "1"}),
        entry(1, "user", "look"),
        entry(2, "assistant", [*uses, {"type": "tool_use", "id": "c3", "name": "read_file", "input": {}}]),
        entry(3, "user", [*results, stopped]),
        entry(4, "assistant", [{"type": "text", "text": "done"}]),
        b"torn",
    ]
    (folder / "s1.jsonl").write_bytes(b"\n".join(lines))


def in_codex(folder: Path) -> None:
    calls = [
        {"type": "function_call", "name": "read_file", "arguments": f'{{"path": "{path}"}}', "call_id": id}
        for id, path, _, _ in CALLS
    ]
    results = [{"type": "function_call_output", "call_id": id, "output": text} for id, _, text, _ in reversed(CALLS)]
    told = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]}
    payloads = [
        ("session_meta", {"id": "s1"}),
        ("event_msg", {"type": "user_message", "message": "look"}),
        *(("response_item", each) for each in (*calls, *results, told)),
    ]
    about = {"timestamp": "2026-01-01T00:00:01Z"}
    lines = [orjson.dumps({**about, "type": kind, "payload": payload}) for kind, payload in payloads]
    (folder / "rollout.jsonl").write_bytes(b"\n".join([*lines, b"torn"]))


def in_inspect(folder: Path) -> None:
    tools = [
        {
            "event": "tool", "function": "read_file", "arguments": {"path": path},
            "timestamp": "2026-01-01T00:00:03+00:00",
            **({"error": {"type": "PermissionError", "message": text.partition(": ")[2]}} if failed
               else {"result": "attachment://h1"}),
        }
        for _, path, text, failed in reversed(CALLS)
    ]  # fmt: skip
    said = {"event": "model", "output": {"choices": [{"message": {"content": "done"}}]}}
    sample = {
        "id": 1, "epoch": 1, "input": [{"role": "user", "content": "look"}], "events": [*tools, said],
        "scores": {"match": {"value": "C"}}, "attachments": {"h1": CALLS[1][2]},
    }  # fmt: skip
    with zipfile.ZipFile(folder / "log.eval", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", orjson.dumps({"eval": {"eval_id": "e1", "task": "t", "model": "m"}}))
        archive.writestr("samples/1_epoch_1.json", orjson.dumps(sample))
        archive.writestr("samples/2_epoch_1.json", b"{}")


def in_atif(folder: Path) -> None:
    about = {"function_name": "read_file"}
    calls = [{**about, "tool_call_id": id, "arguments": {"path": path}} for id, path, _, _ in CALLS]
    results = [{"source_call_id": id, "content": text} for id, _, text, _ in reversed(CALLS)]
    steps = [
        {"step_id": 1, "source": "user", "message": "look", "timestamp": "2026-01-01T00:00:01Z"},
        {"step_id": 2, "source": "agent", "message": "", "tool_calls": calls, "observation": {"results": results}},
        {"step_id": 3, "source": "agent", "message": "done"},
    ]
    document = {"schema_version": "ATIF-v1.6", "session_id": "s1", "agent": {"name": "m", "version": "1"}}
    document["steps"] = steps
    (folder / "trajectory.json").write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
    (folder / "other.json").write_bytes(b'{"schema_version": "x"}')


def in_swe_agent(folder: Path) -> None:
    empty = {"thought": "", "response": ""}
    steps = [{"action": f"cat {path}", "observation": text, **empty} for _, path, text, _ in reversed(CALLS)]
    document = {"trajectory": [*steps, {"action": "", "thought": "done"}], "info": {"exit_status": "submitted"}}
    document["history"] = [{"role": "system", "content": "x"}, {"role": "user", "content": "look"}]
    (folder / "task-1.traj").write_bytes(orjson.dumps(document))


@for_each("form", "atif", "swe-agent")
def test_a_step_that_cannot_be_read_costs_itself_alone(form: str, tmp_path: Path) -> None:
    WRITERS[form](tmp_path)
    [path] = [each for each in tmp_path.iterdir() if each.suffix == FORMS[form][1][0] and each.name != "other.json"]
    document = orjson.loads(path.read_bytes())
    document["steps" if form == "atif" else "trajectory"][1:1] = [None, {"tool_calls": [{}], "thought": {}}, 5]
    document["history"] = [None, {"role": "user", "content": [{"type": "text", "text": "look"}]}]
    path.write_bytes(orjson.dumps(document))
    [session] = [each for each in read_files(form, [path]) if each is not None]
    assert [kind for kind, _ in session.events].count("outcome") == 2 and session.goal == "look"
    assert session.left_out.total() == 3


def test_an_event_of_inspect_costs_itself_alone_and_says_how_it_ended(tmp_path: Path) -> None:
    call = {"event": "tool", "function": "f", "arguments": {}, "result": "r"}
    denied, failed = ({"type": kind, "message": "no"} for kind in ("approval", "timeout"))
    more: list[dict[str, Any]] = [{"error": denied}, {"error": failed}, {"pending": True}, {"failed": True}, {}]
    sample = {"id": 1, "input": "go", "events": [{"event": "tool"}, None, *(call | each for each in more)]}
    [session] = [
        each
        for each in read_files("inspect", [archived(tmp_path / "x.eval", {"samples/1.json": orjson.dumps(sample)})])
    ]
    assert session is not None and session.unanswered == 1
    assert [data.get(ev.ERROR_MESSAGE) for _, data in session.events] == ["timeout: no", "r", None]
    assert session.left_out == {"event that cannot be read": 2, "call that was never made": 1}


def test_a_step_of_swe_agent_without_an_observation_and_a_mark_of_atif(tmp_path: Path) -> None:
    path = tmp_path / "a.traj"
    path.write_bytes(
        orjson.dumps({"trajectory": [{"action": "ls", "observation": None}, {"action": "ls", "observation": ""}]})
    )
    [session] = read_sessions(path)
    assert len(session.events) == session.unanswered == 1
    in_atif(tmp_path)
    document = orjson.loads((tmp_path / "trajectory.json").read_bytes())
    document["steps"][1] |= {"extra": {"tool_result_is_error": True}}
    (tmp_path / "trajectory.json").write_bytes(orjson.dumps(document))
    [session] = read_sessions(tmp_path / "trajectory.json")
    assert all(ev.ERROR_MESSAGE in data for kind, data in session.events if kind == "outcome")


def test_results_of_atif_without_ids_answer_their_calls_in_order(tmp_path: Path) -> None:
    in_atif(tmp_path)
    path = tmp_path / "trajectory.json"
    document = orjson.loads(path.read_bytes())
    del document["session_id"]
    step = document["steps"][1]
    step["observation"]["results"] = [{"content": text} for _, _, text, _ in CALLS]
    path.write_bytes(orjson.dumps(document))
    for trajectory, id in (("t1", "x"), ("t2", None)):
        document["trajectory_id"] = trajectory
        step["tool_calls"][0]["tool_call_id"] = id
        (tmp_path / f"{trajectory}.json").write_bytes(orjson.dumps(document))
    files = [path, tmp_path / "t1.json", tmp_path / "t2.json"]
    sessions = [each for each in read_files("atif", files) if each is not None]
    assert len({each.session for each in sessions}) == 3
    for session in sessions:
        found = [data.get(ev.RESULT) or data[ev.ERROR_MESSAGE] for kind, data in session.events if kind == "outcome"]
        assert found == [text for _, _, text, _ in CALLS] and not session.left_out


WRITERS: dict[str, Callable[[Path], None]] = {
    "messages": in_messages,
    "claude-code": in_claude_code,
    "codex": in_codex,
    "inspect": in_inspect,
    "atif": in_atif,
    "swe-agent": in_swe_agent,
}


@pytest.mark.parametrize("form", FORMS)
def test_calls_and_their_results_are_joined_and_nothing_is_recorded_as_its_opposite(form: str, tmp_path: Path) -> None:
    WRITERS[form](tmp_path)
    found = list(read_files(form, files_of([tmp_path], FORMS[form][1])))
    sessions = [each for each in found if each is not None]
    [session] = sessions
    assert session.goal == "look" and session.unanswered == 0
    worked, failed = [data for kind, data in session.events if kind == "outcome"]
    assert ev.ERROR_MESSAGE not in worked and worked[ev.RESULT] == CALLS[1][2]
    assert (failed[ev.ERROR_TYPE], failed[ev.ERROR_MESSAGE]) == ("_OTHER", TEXT) and ev.RESULT not in failed
    expected = {"command": "cat /etc/shadow"} if form == "swe-agent" else {"path": "/etc/shadow"}
    assert failed[ev.ARGUMENTS] == expected
    said = [data[ev.CONTENT] for kind, data in session.events if kind == "message"]
    assert said[-1] == "done"
    # One that cannot be read is said, and does not end the rest.
    assert len(found) - len(sessions) == {"messages": 2, "claude-code": 1, "codex": 1, "inspect": 1, "atif": 1}.get(
        form, 0
    )
    rewarded = form in ("messages", "inspect")
    assert (session.outcome, session.reward) == (("success", 1.0) if rewarded else ("unknown", None))


@pytest.mark.parametrize("form", WRITERS)
def test_ids_are_the_same_wherever_a_log_lies_and_the_form_is_found(form: str, tmp_path: Path) -> None:
    ids = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        WRITERS[form](tmp_path / name)
        ids.append([session.session for session in read_sessions(tmp_path / name)])
    assert ids[0] == ids[1] and ids[0][0].startswith(f"{form}-")


def test_the_log_s_own_times_are_kept(tmp_path: Path) -> None:
    in_claude_code(tmp_path)
    [session] = read_sessions(tmp_path)
    times = [event.time for event in timed_events(session, "default", 9e9)]
    start = 1767225600.0
    assert [round(time - start, 1) for time in times] == [1.5, 1.5, 3.5, 3.5, 4.5, 4.5]
    assert times == sorted(times)
    timeless = LoggedSession("s", "a\nb", "", "g", events=[("message", {})])
    events = list(timed_events(timeless, "default", 1000.0))
    assert [event.time for event in events] == sorted(event.time for event in events)
    assert events[-1].time <= 1000.0 and events[0].agent == "a b"
    # Layers of containers and mounted buckets have the time 0.
    assert next(timed_events(timeless, "default", 0.0)).time == pytest.approx(0.0, abs=0.01)
    assert all(event.time >= 0 for event in timed_events(timeless, "default", -9.0))


def test_no_time_of_a_log_is_in_the_future() -> None:
    """Workers would refuse such an event. The log's clock was ahead, or its local times have no zone."""
    session = LoggedSession("s", "a", "", "g", events=[("message", {})] * 3, times=[5.0, 20.0, 0.0])
    times = [event.time for event in timed_events(session, "default", 9.0, 10.0)]
    assert times == pytest.approx([5.0, 5.0, 10.0, 10.0, 10.0], abs=0.01) and max(times) == 10.0


def members_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def archived(path: Path, members: dict[str, bytes], *, zstd: bool = False) -> Path:
    """Write an archive, whose members are compressed by Zstandard if so, which `zipfile` cannot do."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED if zstd else zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, zstandard.compress(content) if zstd else content)
    raw = bytearray(path.read_bytes())
    for signature, at in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)) if zstd else ():  # say how they are compressed
        start = raw.find(signature)
        while start >= 0:
            struct.pack_into("<H", raw, start + at, 93)
            start = raw.find(signature, start + 4)
    path.write_bytes(raw)
    return path


def test_a_sample_in_zstandard_is_read(tmp_path: Path) -> None:
    in_inspect(tmp_path)
    path = archived(tmp_path / "new.eval", members_of(tmp_path / "log.eval"), zstd=True)
    [session] = [each for each in read_files("inspect", [path]) if each is not None]
    assert session.outcome == "success" and len(session.events) == 3


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        ("2026-01-01T00:00:00Z", 1767225600.0),
        ("2026-01-01T02:00:00+02:00", 1767225600.0),
        ("2026-01-01T00:00:00", 1767225600.0),  # of no zone: the same wherever the log is read
        (1767225600, 1767225600.0),
        (1767225600_000, 1767225600.0),
        (1767225600_000_000, 1767225600.0),
        (1767225600_000_000_000, 1767225600.0),
        (1e300, 0.0),
        (-1, 0.0),
        ("1902-01-01", 0.0),
        ("9999-12-31T23:59:59+14:00", 0.0),  # a worker would refuse it as an event of the future
        ("yesterday", 0.0),
        (None, 0.0),
    ],
)
def test_a_time_is_read_in_any_unit_and_zone(time: object, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    tzset()
    try:
        assert seconds_of(time) == seconds
    finally:
        monkeypatch.undo()
        tzset()


def test_what_claude_code_says_itself_is_no_message_and_calls_without_an_end_are_counted(tmp_path: Path) -> None:
    in_claude_code(tmp_path)
    path = tmp_path / "s1.jsonl"
    meta = {"type": "user", "sessionId": "s1", "isMeta": True, "message": {"role": "user", "content": "Caveat: …"}}
    use = {"type": "tool_use", "id": "c9", "name": "read_file", "input": {}}
    open_call = {"type": "assistant", "sessionId": "s1", "message": {"role": "assistant", "content": [use]}}
    interrupted = transcript(tmp_path / "other", "s1", ["a", "b"], toolUseResult={"interrupted": True}).read_bytes()
    path.write_bytes(b"\n".join([orjson.dumps(meta), path.read_bytes(), orjson.dumps(open_call), interrupted]))
    sessions = read_sessions(tmp_path)
    assert [each.goal for each in sessions] == ["look"] * 3 and [each.unanswered for each in sessions] == [1, 0, 0]
    assert [each.left_out["call that was never made"] for each in sessions] == [1, 1, 1]


@for_each("reward, outcome", (0.0, "failure"), (0.5, "failure"), (0.51, "success"), (None, "unknown"))
def test_more_than_half_of_a_reward_is_a_success(reward: float | None, outcome: str) -> None:
    session = LoggedSession("s", "a", "", "g")
    session.end(reward)
    assert (session.outcome, session.reward) == (outcome, reward)


def test_a_cut_array_of_several_lines_is_unreadable_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'[\n {"messages": [{"role": "user", "content": "look"}]},\n {"mess')
    assert list(read_files("messages", [tmp_path / "a.json"])) == [None]


def test_a_run_of_inspect_that_was_stopped_says_who_ran_it(tmp_path: Path) -> None:
    in_inspect(tmp_path)
    members = members_of(tmp_path / "log.eval")
    members["_journal/start.json"] = members.pop("header.json")
    stopped = archived(tmp_path / "stopped.eval", members)
    sessions = [[each for each in read_files("inspect", [path]) if each] for path in (tmp_path / "log.eval", stopped)]
    assert [(each.session, each.agent, each.task) for [each] in sessions] == [(sessions[0][0].session, "m", "t")] * 2


def test_the_form_is_found_behind_a_long_first_line(tmp_path: Path) -> None:
    long = {"type": "user", "sessionId": "s1", "message": {"role": "user", "content": "look " * 20_000}}
    (tmp_path / "s1.jsonl").write_bytes(orjson.dumps(long) + b"\n")
    [session] = read_sessions(tmp_path)
    assert session.source == "claude-code"


def test_sessions_in_compact_json_are_found_and_copies_count_once(tmp_path: Path) -> None:
    chat = {"messages": [{"role": "user", "content": "go"}]}
    for number, document in enumerate(({"inputs": chat}, {"simulations": [chat | {"id": "s"}]})):
        (tmp_path / f"{number}.json").write_bytes(orjson.dumps(document))
    transcript(tmp_path / "a.jsonl", "a", ["1"])
    transcript(tmp_path / "b.jsonl", "b", ["1", "2"])
    assert sorted(made_in(read_sessions(tmp_path))) == [[], [], ["done 1"], ["done 2"]]


def test_a_part_of_more_than_a_million_values_is_read(tmp_path: Path) -> None:
    many = b'"many": [' + b"0," * 1_100_000 + b"0], "
    sample = b"{" + many + b'"id": 1, "input": "go"}'
    path = transcript(tmp_path / "a.jsonl", "a", ["1"])
    path.write_bytes(path.read_bytes().replace(b"{", b"{" + many, 1))
    archive = archived(tmp_path / "log.eval", {"samples/1.json": sample})
    for form, file in (("claude-code", path), ("inspect", archive)):
        [session] = read_files(form, [file])
        assert session is not None and session.goal in ("go", "do 1")


def test_a_file_that_its_user_may_not_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "a.jsonl").touch()
    monkeypatch.setattr(Path, "open", refuse)
    uses: list[Callable[[], object]] = [lambda: groups_of([tmp_path / "a.jsonl"]), lambda: read_sessions(tmp_path)]
    uses.append(lambda: list(read_files("messages", [tmp_path / "a.jsonl"])))
    for use in uses:
        with pytest.raises(ConfigError, match=r"a\.jsonl cannot be read: Permission denied$"):
            use()


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        read_sessions(tmp_path / "no")
    with pytest.raises(ConfigError, match=r"holds no file that ends in \.json or \.eval$"):
        files_of([tmp_path], (".json", ".eval", ".json"))
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(ConfigError, match="holds no logged session"):
        read_sessions(tmp_path)


@for_each(
    "text, arguments",
    ('{"a": 1}', {"a": 1}),
    (" [1]", [1]),
    ('"ls"', "ls"),
    ("-3", -3),
    (" null ", None),
    ("true", True),
    ("nullify()", "nullify()"),
    ("[x for x in y]", "[x for x in y]"),
    ("print(1)", "print(1)"),
    ("", ""),
)
def test_arguments_in_json_are_read_and_other_texts_stay(text: str, arguments: object) -> None:
    talk = Conversation("messages", "s", goal="g")
    talk.call("1", "tool", text)
    talk.result("1", "done")
    [(_, data)] = talk.session.events
    assert data[ev.ARGUMENTS] == arguments


@pytest.mark.parametrize("method", ["deflate", "zstandard"])
def test_a_part_that_unpacks_too_far_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """A few kB on the disk may stand for gigabytes."""
    monkeypatch.setattr(forms, "MAX_PART_BYTES", 1_000_000)
    sample = b'{"id": "x", "input": "' + b"a" * 24_000_000 + b'"}'
    path = archived(tmp_path / "log.eval", {"samples/1.json": sample}, zstd=method == "zstandard")
    tracemalloc.start()
    try:
        assert list(read_files("inspect", [path])) == [None]
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def transcript(path: Path, session: str, calls: Sequence[str], **more: Any) -> Path:
    """A transcript of Claude Code in which these calls were made, one by prompt; a result is missing where its name
    says so.
    """
    lines = []
    for number, call in enumerate(calls):
        use = {"type": "tool_use", "id": f"toolu_{call}", "name": "Bash", "input": {"command": call}}
        done = {"type": "tool_result", "tool_use_id": use["id"], "content": f"done {call}", "is_error": False}
        said = ("user", [{"type": "text", "text": f"do {call}"}]), ("assistant", [use]), ("user", [done])
        for place, (role, content) in enumerate(said[:2] if "open" in call else said):
            about = {"sessionId": session, "timestamp": f"2026-01-01T00:00:{number:02}Z", "uuid": f"{call}-{place}"}
            lines.append({**about, **more, "type": role, "message": {"role": role, "content": content}})
    path.write_bytes(b"\n".join(map(orjson.dumps, lines)))
    return path


def made_in(sessions: Iterable[LoggedSession | None]) -> list[list[Any]]:
    """The results of each session."""
    return [[data[ev.RESULT] for kind, data in each.events if kind == "outcome"] for each in sessions if each]


def test_history_that_a_resumed_branched_or_copied_transcript_holds_counts_once(tmp_path: Path) -> None:
    files = [
        transcript(tmp_path / "a.jsonl", "a", ["1", "2"]),
        transcript(tmp_path / "b.jsonl", "b", ["1", "2", "3"]),  # resumed
        transcript(tmp_path / "d.jsonl", "a", ["1", "2"]),  # copied
        transcript(tmp_path / "c.jsonl", "c", ["1", "4"], forkedFrom={"sessionId": "a"}),  # branched, and written twice
    ]
    files[3].write_bytes(b"\n".join([files[3].read_bytes()] * 2))
    sessions = [each for each in read_files("claude-code", files) if each is not None]
    assert made_in(sessions) == [["done 1"], ["done 2"], ["done 3"], [], ["done 4"]]
    assert [each.left_out.total() for each in sessions] == [0, 0, 6, 6, 9] and not sessions[3].events
    assert {each.goal for each in sessions if each.events} == {"do 1"} and not any(each.unanswered for each in sessions)
    assert [set(group) for group in groups_of(files)] == [set(files)]


@for_each("about", {}, {"forkedFrom": {"sessionId": "z"}})
def test_a_later_import_of_a_copy_alone_or_beside_its_origin_repeats_what_was_sent(about: dict[str, Any]) -> None:
    """Claude Code deletes old transcripts, but not their copies; and one that goes on has more prompts."""
    with TemporaryDirectory() as folder:
        first = transcript(Path(folder) / "z.jsonl", "z", ["1", "2"])
        os.utime(first, (5, 5))
        before = {each.session: each.events for each in read_files("claude-code", [first]) if each}
        copy = transcript(Path(folder) / "a.jsonl", "a", ["1", "2", "3"], **about)
        os.utime(copy, (4, 4) if about else (6, 6))  # a session may go on after it was branched
        for files in ([copy], [copy, first]):
            later = {each.session: each.events for each in read_files("claude-code", files) if each}
            assert len(later) == 3 and before.items() <= later.items()
        transcript(first, "z", ["1", "2", "9"])
        grown = {each.session: each.events for each in read_files("claude-code", [first]) if each}
        assert len(grown) == 3 and before.items() <= grown.items()


def test_entries_without_ids_or_times_belong_to_their_own_transcript(tmp_path: Path) -> None:
    first, other = (transcript(tmp_path / f"{name}.jsonl", name, ["1"]) for name in "ab")
    for path, name in ((first, b'"timestamp"'), (other, b'"uuid"')):
        path.write_bytes(path.read_bytes().replace(name, b'"at"'))
        (tmp_path / f"more-{path.name}").write_bytes(path.read_bytes().replace(b'"do 1"', b'"do it"'))
    files = files_of([tmp_path], (".jsonl",))
    assert made_in(read_files("claude-code", files)) == [["done 1"]] * 4
    assert len({each.session for each in read_files("claude-code", files) if each}) == 4


def test_each_entry_belongs_to_its_parents_prompt(tmp_path: Path) -> None:
    """Sub-agents side by side write into one transcript; it is compacted while they run, and a person interrupts it."""
    path = transcript(tmp_path / "a.jsonl", "a", ["task", "x", "y"])
    lines = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    for place, line in enumerate(lines):
        before = lines[place - 1]["uuid"] if place % 3 else None
        line |= {"parentUuid": before, "isSidechain": place >= 3}
    ask, use, done, *others = lines
    mark = {"type": "system", "uuid": "m", "parentUuid": use["uuid"], "subtype": "compact_boundary"}
    done["parentUuid"] = "m"
    digest = {**ask, "uuid": "s", "parentUuid": done["uuid"], "isCompactSummary": True}
    stop = {
        **ask,
        "uuid": "i",
        "parentUuid": "s",
        "message": {"role": "user", "content": "[Request interrupted by user]"},
    }
    written = [ask, use, mark, *others[::3], *others[1::3], *others[2::3], done, digest, stop]
    path.write_bytes(b"\n".join(map(orjson.dumps, written)))
    sessions = [each for each in read_files("claude-code", [path]) if each is not None]
    assert made_in(sessions) == [["done task"], ["done x"], ["done y"]]
    assert [each.goal for each in sessions] == ["do task", "do x", "do y"]
    assert [sum(kind == "message" for kind, _ in each.events) for each in sessions] == [1, 1, 1]


def test_a_call_whose_result_is_in_the_copy_alone_is_not_lost(tmp_path: Path) -> None:
    """A session is sent to the background while a call runs: its result comes in the copy."""
    first = transcript(tmp_path / "a.jsonl", "a", ["1", "open"])
    lines = first.read_bytes().splitlines()
    done = {"type": "tool_result", "tool_use_id": "toolu_open", "content": "done"}
    about = {"type": "user", "sessionId": "b", "uuid": "r", "timestamp": "2026-01-01T00:00:09Z"}
    lines.append(orjson.dumps({**about, "message": {"role": "user", "content": [done]}}))
    (tmp_path / "b.jsonl").write_bytes(b"\n".join(lines))
    _, kept, copy = [each for each in read_files("claude-code", [first, tmp_path / "b.jsonl"]) if each is not None]
    assert kept.unanswered == 1 and copy.unanswered == 0 and copy.goal == "do 1"
    assert made_in([copy]) == [["done"]]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_log_that_powershell_wrote_is_read(encoding: str, tmp_path: Path) -> None:
    in_claude_code(tmp_path)
    text = (tmp_path / "s1.jsonl").read_text()
    before = list(read_files("claude-code", [tmp_path / "s1.jsonl"]))
    (tmp_path / "s1.jsonl").write_bytes(f"\ufeff{text}".replace("\n", "\r\n").encode(encoding))
    after = list(read_files("claude-code", [tmp_path / "s1.jsonl"]))
    assert [each and each.events for each in after] == [each and each.events for each in before]


@pytest.mark.parametrize("odd", ["\\ud83d…", "NaN", "1e999", "\\u0000", "123456789012345678901234567890"])
def test_no_session_is_lost_for_an_odd_value(odd: str, tmp_path: Path) -> None:
    text = f'"{odd}"' if odd[0] == "\\" else odd
    line = '{"messages": [{"role": "user", "content": "go"}, {"role": "assistant", "tool_calls": [{"id": "c1", '
    line += '"function": {"name": "f", "arguments": {"n": %s}}}]}, {"role": "tool", "tool_call_id": "c1", "content": '
    line += '"Error: no"}], "reward": %s}'
    (tmp_path / "x.jsonl").write_text(line % (text, text if odd == "NaN" else "0") + "\n" + line % (1, 1))
    first, second = read_files("messages", [tmp_path / "x.jsonl"])
    assert first is not None and second is not None and len(first.events) == len(second.events) == 2
    assert first.outcome == ("unknown" if odd == "NaN" else "failure")
    written = [orjson.loads(encode(each)[-1]) for each in timed_events(first, "t", 1e9)][2][ev.ARGUMENTS]["n"]
    expected = {"\\ud83d…": "\ufffd…", "\\u0000": "\x00"}
    assert written == expected.get(odd, odd)


@pytest.mark.parametrize("name", ["timestamp", "reward", "id", "created_at"])
def test_a_number_beyond_every_count_costs_no_session(name: str, tmp_path: Path) -> None:
    huge = "1" + "0" * 400
    message = f'{{"role": "user", "content": "go", "{name}": {huge}}}'
    (tmp_path / "x.jsonl").write_text(f'{{"messages": [{message}], "{name}": {huge}}}')
    [session] = read_files("messages", [tmp_path / "x.jsonl"])
    assert session is not None and len(session.events) == 1 and session.outcome == "unknown"
    assert list(timed_events(session, "t", 1e9))
