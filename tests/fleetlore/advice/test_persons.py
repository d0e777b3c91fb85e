"""Hints of persons: when agents are shown them, what they correct, who may take them back."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.advice import sources
from fleetlore.advice.advice import Advice, advise, warn
from fleetlore.advice.changes import holds, word_of
from fleetlore.advice.decide import Draft, Reviews, draft_of, judged, proposed, words_of, write
from fleetlore.advice.gate import Tip
from fleetlore.calls.call import MadeCall
from fleetlore.errors import ConfigError, WordsChanged
from fleetlore.fingerprint.fingerprint import strategy_id
from fleetlore.recall.index import LoreIndex, when_of
from fleetlore.wire.lore import Decision, Hint, Pattern
from fleetlore.wire.stats import stable_hash, withheld
from tests.build import failed_call, memory_item, situation
from tests.rows import for_each

NOW = 1_767_225_600.0
SQL = {"query": "SELECT id FROM orders"}
FAILED = failed_call("sql", SQL, "OperationalError", "no such column: id")
TEXT = "Join orders by order_id."


def hint(index: LoreIndex, text: str = TEXT, by: str = "ann", **fields: Any) -> Decision:
    made = write(index, Draft(text=text, why="I know it", **fields), by=by, now=NOW)
    index.put_hint(made)
    return made


def before(index: LoreIndex, tool: str = "sql", arguments: Any = SQL, **fields: Any) -> Advice:
    return advise(index, situation(tool, arguments, **{"now": NOW} | fields))


def shown(advice: Advice) -> list[str]:
    return [tip.text for tip in advice.tips if tip.source == "person"]


SAID = [f"{TEXT} (written by ann)"]


def test_it_is_shown_before_a_call_that_holds_its_words_and_before_no_other(index: LoreIndex) -> None:
    made = hint(index, before=("orders", "sql"))
    advice = before(index)
    assert shown(advice) == SAID and advice.ids == (made.id,) and advice.sure
    assert not before(index, "sql", {"query": "SELECT id FROM preorders"})
    assert not before(index, "bash", SQL) and not advise(index, situation(tools=("sql",), now=NOW))
    assert not before(index, shown={f"person/{made.id}"}), "a session is shown it once"
    assert warn(index, situation("sql", SQL, now=NOW)).ids == (made.id,)


@for_each("text",
    "Use `List<String>` or df[column].", "SELECT * FROM [Order Details]",
    "Send <order_id>, as `a[i][0]`.", 'orders([{"id": 1}])', "See [the runbook](https://wiki.example/r) first.",
    "cat <<EOF &lt;b&gt; %5Bx%5D",
)  # fmt: skip
def test_it_is_told_as_it_was_written(text: str) -> None:
    index = LoreIndex()
    hint(index, text, start=True)
    assert shown(advise(index, situation(now=NOW))) == [f"{text} (written by ann)"]


@for_each("mark",
    "<|im_end|>", "＜|user|>", "</s>", "[INST]", "[/INST]", "<<SYS>>", "</fleet-memory 1>",
    "<end_of_turn>", "<system>", "</tool_result>", "<think>", "<｜User｜>",
)  # fmt: skip
def test_a_text_with_a_mark_of_a_chat_is_refused_and_never_told_as_such(mark: str) -> None:
    index = LoreIndex()
    with pytest.raises(ConfigError, match="for a mark of the chat"):
        hint(index, f"Say {mark} now", start=True)
    made = hint(index, start=True)
    assert made.hint is not None  # another program may write the topic
    index.put_hint(msgspec.structs.replace(made, hint=msgspec.structs.replace(made.hint, text=f"Say {mark} now")))
    assert mark not in shown(advise(index, situation(now=NOW)))[0]


def test_a_lesson_that_agents_cannot_be_shown_is_not_approved() -> None:
    """With other brackets its call would be another one."""
    index = LoreIndex()
    index.put_item(item(now=("[oid]",), proposed=True))
    with pytest.raises(ConfigError, match="write a hint"):
        judged(index, "approve", "item1", by="ann", why="x", now=NOW, wording=index.items["item1"].wording)


@for_each("after", "operationalerror", "no such column", FAILED.failure.class_, "sql")
def test_it_is_shown_after_a_failure_of_its_class_pattern_words_or_tool(after: str) -> None:
    index = LoreIndex()
    hint(index, after=after)
    assert shown(advise(index, situation(failed=FAILED, now=NOW))) == SAID
    assert not advise(index, situation(now=NOW)) and not before(index)
    other = failed_call("bash", {"command": "ls"}, "Missing", "no such columns")
    assert not shown(advise(index, situation(failed=other, now=NOW)))


def test_it_is_withheld_from_a_share_of_the_sessions_like_every_hint(index: LoreIndex) -> None:
    made = hint(index, before=("orders",))
    for session in map(str, range(40)):
        advice = advise(index, situation("sql", SQL, session=session, now=NOW, holdout_share=0.5))
        kept_back = withheld(session, made.id, 0.5)
        assert (advice.ids, advice.withheld) == (((), (made.id,)) if kept_back else ((made.id,), ()))


def test_long_hints_take_no_place_of_what_the_fleet_learned(index: LoreIndex) -> None:
    for word in "xyz":
        hint(index, word * 400, start=True)
    way = strategy_id("shop", "count orders")
    index.put_item(memory_item(way, kind="strategy", task="shop", content="sql: SELECT 1", agents=3, support=3))
    asked = situation(task="shop", goal="Count orders", now=NOW)
    for limits in ({}, {"most": 1}, {"max_chars": 1}):
        assert [tip.source for tip in advise(index, asked, **limits).tips] == ["person", "person", "way"], limits


def test_warnings_of_the_session_take_no_place_of_what_a_person_wrote(index: LoreIndex) -> None:
    hint(index, start=True)
    cautions = [Tip(id, "loop", (id * 460,)) for id in "ab"]
    for limits in ({"most": 1}, {"max_chars": 700}):
        assert shown(advise(index, situation(now=NOW), cautions, **limits)) == SAID, limits


def item(**fields: Any) -> Any:
    values = {"tool": "sql", "pattern": FAILED.failure.class_, "was": ("id",), "now": ("oid",), "when": "id oid"}
    return memory_item("item1", **{"support": 9, "agents": 9, "goals": 9} | values | fields)


def test_a_correction_replaces_an_item_that_mining_publishes_again(index: LoreIndex) -> None:
    index.put_item(item())
    assert "`oid`" in advise(index, situation(failed=FAILED, now=NOW)).text
    draft = draft_of(index, "item1")
    assert draft is not None and "`oid`" in draft.text and draft.before == ("id",)
    draft.text, draft.why = TEXT, "oid is gone"
    correction = write(index, draft, by="ann", now=NOW)
    index.put_hint(correction)
    for _ in range(2):
        assert shown(advise(index, situation(failed=FAILED, now=NOW))) == SAID == shown(before(index))
        assert "oid" not in advise(index, situation(failed=FAILED, now=NOW)).text
        index.put_item(item(support=99))  # a replay, a backfill, a new session
    draft.wording = ""
    assert correction == write(index, draft, by="ann", now=NOW), "one correction an item"
    index.forget("item1")
    assert shown(before(index)) == SAID, "it does not need the item"
    index.put_item(item())
    index.put_hint(judged(index, "reject", correction.id, by="ann", why="wrong", now=NOW, wording=""))
    assert "`oid`" in advise(index, situation(failed=FAILED, now=NOW)).text


@for_each("order", "item first", "correction first")
def test_an_item_is_shown_again_once_its_correction_ends(order: str) -> None:
    index = LoreIndex()
    index.put_item(item())
    correction = write(index, Draft(text=TEXT, why="x", id="item1", after="sql", until=NOW + 60), by="ann", now=NOW)
    if order == "correction first":
        index = LoreIndex()
    index.put_hint(correction)
    index.put_item(item())
    index.end_corrections(NOW + 59)
    assert index.hides(item()) and not index.items
    index.end_corrections(NOW + 60)
    assert list(index.items) == ["item1"]
    index.put_hint(write(index, Draft(text=TEXT, why="x", id="item1", after="sql"), by="ann", now=NOW + 70))
    assert not index.items
    index.put_hint(judged(index, "expire", correction.id, by="ann", why="over", now=NOW + 80, wording=""))
    assert list(index.items) == ["item1"]
    index.distrust(stable_hash("ann"))
    index.undo_distrust(stable_hash("ann"))
    assert list(index.items) == ["item1"]


def test_a_correction_of_a_way_is_shown_for_its_goal_alone(index: LoreIndex) -> None:
    id = strategy_id("shop", "count orders")
    index.put_item(memory_item(id, kind="strategy", task="shop", content="sql: SELECT 1", agents=3, support=3))
    draft = draft_of(index, id)
    assert draft is not None and draft.start
    draft.text, draft.why = TEXT, "better"
    index.put_hint(write(index, draft, by="ann", now=NOW))
    goal = situation(task="shop", goal="Count orders", now=NOW)
    assert [tip.source for tip in advise(index, goal).tips] == ["person"]
    assert not advise(index, situation(task="shop", goal="drop orders", now=NOW))


def test_distrust_hides_what_an_author_wrote_and_shows_what_it_corrected(index: LoreIndex) -> None:
    index.put_item(item())
    index.put_hint(write(index, Draft(text=TEXT, why="x", id="item1", after="sql"), by="ann", now=NOW))
    moment = situation(failed=FAILED, now=NOW)
    index.distrust(stable_hash("ann"))
    assert "`oid`" in advise(index, moment).text and not shown(advise(index, moment))
    index.undo_distrust(stable_hash("ann"))
    assert shown(advise(index, moment)) == SAID and "oid" not in advise(index, moment).text


def test_a_proposed_item_waits_for_a_person_and_warns_in_the_askers_own_words_until_then(index: LoreIndex) -> None:
    index.put_item(item(proposed=True, now=("oid",)))
    moment = situation(failed=FAILED, now=NOW)
    assert not advise(index, moment) and [each.id for each in proposed(index)] == ["item1"]
    own = failed_call("sql", SQL, "OperationalError", "no such column: id, did you mean oid?")
    index.put_item(item(proposed=True, pattern=own.failure.class_))
    assert "`oid`" in advise(index, situation(failed=own, now=NOW)).text, "its own error says it"
    index.put_item(item(proposed=True))
    decision = judged(index, "approve", "item1", by="ann", why="right", now=NOW, wording=index.items["item1"].wording)
    index.revoke(decision.id, decision.wording, on=False)
    assert "`oid`" in advise(index, moment).text and not proposed(index)
    index.put_item(item(proposed=True, support=99))
    assert "`oid`" in advise(index, moment).text, "evidence changes no approval"
    index.put_item(item(proposed=True, now=("evil",)))
    assert "evil" not in advise(index, moment).text, "an approval holds for the approved words alone"
    assert [each.id for each in proposed(index)] == ["item1"]


def test_an_approved_item_needs_no_quorum_not_even_a_harmful_one(index: LoreIndex) -> None:
    index.put_item(item(danger=True, agents=1, support=1, when="shop.orders id"))
    moment = situation(failed=FAILED, now=NOW)
    assert not advise(index, moment)
    decision = judged(index, "approve", "item1", by="ann", why="right", now=NOW, wording=index.items["item1"].wording)
    index.revoke(decision.id, decision.wording, on=False)
    assert "`oid`" in advise(index, moment).text
    index.revoke("item1", on=False)  # `revoke --undo` is no approval
    assert not advise(index, moment)


def test_an_approval_is_refused_if_the_words_changed_since_they_were_read(index: LoreIndex) -> None:
    index.put_item(item(proposed=True))
    made = hint(index, before=("orders",))
    read = {"item1": index.items["item1"].wording, made.id: index.hints.standing[made.id].hint.wording}
    for id, wording in read.items():
        assert not judged(index, "approve", id, by="ann", why="x", now=NOW, wording=wording).on
        with pytest.raises(WordsChanged):
            judged(index, "approve", id, by="ann", why="x", now=NOW, wording="")
    index.put_item(item(proposed=True, now=("evil",)))
    index.put_hint(write(index, Draft(text="Be evil.", why="y", before=("orders",), id=made.id), by="bob", now=NOW))
    for id, wording in read.items():
        with pytest.raises(WordsChanged, match="evil"):
            judged(index, "approve", id, by="ann", why="x", now=NOW, wording=wording)
        assert judged(index, "reject", id, by="ann", why="x", now=NOW, wording=wording).on, "hiding vouches for nothing"
    assert index.vouched(index.items["item1"]) is False


def pattern(template: str, first_seen: float, tool: str = "sql") -> Pattern:
    fields = {"level": "class", "error_class": "OperationalError", "template": template, "failures": 1}
    return Pattern(id=template + tool, tenant="default", tool=tool, first_seen=first_seen, **fields)


def test_it_asks_for_review_where_its_own_words_fail_or_the_old_value_works_again(index: LoreIndex) -> None:
    made = hint(index, "Use `order_id` instead of `id`.", tool="sql", before=("orders",))

    def reason(**confirmed: float) -> str:
        return Reviews(index, confirmed).reason(index.hints.standing[made.id])

    index.put_pattern(pattern("no such column: id", NOW - 9))
    index.put_pattern(pattern("no such column: id in b", NOW + 9))
    index.put_pattern(pattern("no such column: order_id", NOW + 9, "other"))
    assert not reason(), "only a name that failed before, and another tool's, have failed since"
    index.put_pattern(pattern("no such column: order_id", NOW + 9))
    assert "order_id" in reason() and not reason(**{made.id: NOW + 10})
    approved = judged(index, "approve", made.id, by="bob", why="still right", now=NOW + 20, wording=None)
    index.put_hint(approved)
    assert not reason() and approved.hint is not None and approved.hint.author == "ann"
    index.put_item(item(against=1))
    correction = write(index, Draft(text=TEXT, why="x", id="item1", after="sql"), by="ann", now=NOW + 20)
    index.put_hint(correction)
    assert not Reviews(index).reason(index.hints.standing[correction.id])
    index.put_item(item(against=5))
    assert "came again after this change in 5 sessions" in Reviews(index).reason(index.hints.standing[correction.id])
    assert "came again after this change in 5 sessions" in Reviews(LoreIndex()).reason(item(against=5))


@for_each("rejected", False, True)
def test_words_that_were_edited_are_written_again_as_another_hint(rejected: bool) -> None:
    index = LoreIndex()
    made = hint(index, start=True)
    index.put_hint(write(index, Draft(text="Use c.", why="y", start=True, id=made.id), by="bob", now=NOW))
    if rejected:
        index.put_hint(judged(index, "reject", made.id, by="bob", why="slow", now=NOW, wording=""))
        with pytest.raises(ConfigError, match=f"bob rejected these words: slow. .*approve {made.id}"):
            hint(index, "Use c.", start=True)
    again = hint(index, start=True)
    told = SAID if rejected else [*SAID, "Use c. (written by bob)"]
    assert again.id != made.id and sorted(shown(advise(index, situation(now=NOW)))) == sorted(told)
    assert hint(index, start=True, by="eve").id == again.id, "the same words are one hint"
    index.put_hint(judged(index, "reject", again.id, by="bob", why="it is slow", now=NOW, wording=""))
    with pytest.raises(ConfigError, match=f"bob rejected these words: it is slow. .*approve {again.id}"):
        hint(index, start=True)


def test_a_person_reads_when_a_correction_is_shown(index: LoreIndex) -> None:
    """No id of a pattern says anything, least of all in a skill of a coding agent."""
    index.put_item(item())
    draft = draft_of(index, "item1")
    assert draft is not None and draft.after == FAILED.failure.class_
    draft.text, draft.why = TEXT, "x"
    made = write(index, draft, by="ann", now=NOW).hint
    assert made is not None and when_of(made) == "before a call with id or after this failure; tool sql"
    known = {made.after: replace(pattern("no such column: id", NOW), id=made.after)}
    assert when_of(made, known) == "before a call with id or after no such column: id; tool sql"


def test_of_two_persons_who_edit_at_once_the_second_is_told_the_words_of_the_first(index: LoreIndex) -> None:
    index.put_item(item())
    ann, bob = draft_of(index, "item1"), draft_of(index, "item1")
    assert ann is not None and bob is not None
    for draft, text in ((ann, "Ann's."), (bob, "Bob's.")):
        draft.text, draft.why = text, "x"
    index.put_hint(write(index, ann, by="ann", now=NOW))
    with pytest.raises(WordsChanged, match="Ann's"):
        write(index, bob, by="bob", now=NOW + 1)
    present = draft_of(index, "item1")
    assert present is not None
    bob.wording = present.wording
    edited = write(index, bob, by="bob", now=NOW + 2)
    index.put_hint(edited)
    assert edited.hint is not None and edited.hint.text == "Bob's." and list(index.hints.standing) == [edited.id]


@for_each(
    "fields, message",
    ({"text": " "}, "the text has 1 to 400"),
    ({"text": "x" * 401}, "this one has 401"),
    ({"text": "a\u202eb"}, "nobody sees, U\\+202E after 'a'"),
    ({"text": "caf\ufffd"}, "U\\+FFFD after 'caf'"),
    ({"text": "use password=hunter2hunter2"}, "holds a secret"),
    ({"why": ""}, "the reason has 1 to 500"),
    ({"before": ()}, "say when"),
    ({"before": ("a", " ")}, "words that a call must hold"),
    ({"before": ("a",) * 9}, "words that a call must hold"),
    ({"tool": "a\nb"}, "tool has at most 256"),
    ({"tool": "caf\ufffd"}, "no U\\+FFFD"),
    ({"task": "caf\udce9"}, "task has at most 256"),
    ({"until": NOW}, "ended already"),
    ({"until": 9e15}, "after the year 9999"),
    ({"id": "gone"}, "no hint or memory item 'gone'"),
)
def test_bad_input_is_explained(fields: dict[str, Any], message: str) -> None:
    draft = Draft(**{"text": TEXT, "why": "x", "before": ("orders",)} | fields)
    with pytest.raises(ConfigError, match=message):
        write(LoreIndex(), draft, by="ann", now=NOW)


def test_what_is_unknown_or_has_no_end_is_not_judged(index: LoreIndex) -> None:
    index.put_item(item())
    with pytest.raises(ConfigError, match="no hint or memory item"):
        judged(index, "reject", "gone", by="ann", why="x", now=NOW, wording="")
    with pytest.raises(ConfigError, match="reject it"):
        judged(index, "expire", "item1", by="ann", why="x", now=NOW, wording="")


def test_words_of_an_item_are_for_persons() -> None:
    assert words_of(replace(item(), agents=1)) == "Use `oid` instead of `id` in sql."


PARTS = st.text(st.sampled_from('ab =.-_é\u4e2d<>"\\\n1'), min_size=1, max_size=8)
WORDS = PARTS | st.sampled_from(["a=<number>", "id=1", "<id>", "a.b", "{", "true"])
ARGUMENTS = PARTS | st.dictionaries(PARTS, PARTS | st.integers() | st.lists(PARTS) | st.dictionaries(PARTS, PARTS))


@given(WORDS, ARGUMENTS)
def test_a_call_that_holds_a_part_has_its_word(part: str, arguments: Any) -> None:
    call = MadeCall("sql", arguments)
    assert not holds(arguments, (part,)) or word_of(part) in f"{call.json}\n{call.text}"


def test_hints_about_other_calls_are_not_looked_for_in_this_one(
    index: LoreIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand hints held each agent up for a tenth of a second before every call."""
    asked: list[str] = []
    monkeypatch.setattr(sources, "holds", lambda arguments, was: (asked.extend(was), holds(arguments, was))[1])
    others = [Hint(text="x", author="ann", written=NOW, before=(f"table{n}",), after=f"no table{n}") for n in range(50)]
    index.put_hint(
        *(Decision(kind="hint", id=f"h{n}", on=False, by="ann", why="", time=NOW, hint=h) for n, h in enumerate(others))
    )
    hint(index, before=("orders",))
    assert shown(before(index)) == SAID and asked == ["orders"]
