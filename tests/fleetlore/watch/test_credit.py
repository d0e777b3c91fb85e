from __future__ import annotations

import gzip
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.watch.credit import blame
from fleetlore.watch.episode import KEPT_MOMENTS, MAX_TEXT, RecentStep, RecentSteps

DATA = Path(__file__).parents[4] / "shared" / "data" / "dev"


def moments(*steps: Any) -> list[RecentStep]:
    """Calls are (tool, arguments, result or (kind, text) of an error); messages (role, text)."""
    episode = RecentSteps()
    for step in steps:
        if len(step) == 2:
            episode.said(*step)
        else:
            tool, arguments, came = step
            failed = isinstance(came, tuple)
            episode.record(tool, arguments, None if failed else came, came if failed else None)
    return list(episode.moments)


@pytest.mark.parametrize(
    ("steps", "guilty"),
    [
        # The wrong name was made up by the second call, and the failure uses it.
        (
            [
                ("find_user", {"name": "Mia"}, "mia_1"),
                ("assistant", "Her order is #W99."),
                ("refund", {"order": "#W99"}, ("NotFound", "no order #W99")),
            ],
            2,
        ),
        # A tool gave the name: nobody brought it in, so the call itself is to blame.
        ([("find_order", {}, "#W99"), ("refund", {"order": "#W99"}, ("Refused", "#W99 is shipped"))], 2),
        # Nothing failed: the first call that changed something.
        ([("get_user", {}, "u"), ("cancel_order", {"id": "#W1"}, "ok"), ("refund_order", {"id": "#W1"}, "ok")], 2),
        # Only words: what was brought in and then relied upon.
        (
            [
                ("user", "How many?"),
                ("assistant", "Let me think."),
                ("assistant", "Ohio has 88 counties and Iowa 99."),
                ("assistant", "So 88 + 99 = 187."),
            ],
            3,
        ),
        ([("user", "hello")], None),
        ([], None),
    ],
)
def test_who_brought_in_what_the_failure_rests_on(steps: list[Any], guilty: int | None) -> None:
    found = blame("Compare Ohio and Iowa", moments(*steps))
    assert (found.number if found else None) == guilty


texts = st.text(alphabet="aB9_ .", max_size=12)
steps = st.lists(st.tuples(st.sampled_from(["user", "assistant"]), texts) | st.tuples(texts, texts, texts), max_size=8)


@given(texts, steps)
def test_only_the_agents_own_doing_is_blamed(goal: str, taken: list[Any]) -> None:
    known = moments(*taken)
    found = blame(goal, known)
    assert found is None or (found in known and (found.did or found.tool))
    assert (found is None) == (not any(each.did or each.tool for each in known))


def test_the_buffer_is_bounded_and_keeps_counting() -> None:
    episode = RecentSteps()
    for number in range(100):
        episode.record("t", {"n": number}, "x" * 5000, ("E", "y" * 5000) if number % 2 else None)
    assert (episode.calls, episode.errors, len(episode.moments)) == (100, 50, KEPT_MOMENTS)
    assert [episode.moments[0].number, episode.moments[-1].number] == [37, 100]
    assert max(len(each.came) for each in episode.moments) == MAX_TEXT


# --- against what people found decisive ---

Labelled = tuple[
    str, list[RecentStep], dict[int, int], set[int]
]  # goal, moments, number of each logged step, decisive steps


def lines(path: str) -> Iterator[dict[str, Any]]:
    with gzip.open(DATA / path, "rb") as file:
        yield from map(orjson.loads, file)


def logged(
    steps: list[dict[str, Any]], heard: Callable[[dict[str, Any]], bool]
) -> tuple[list[RecentStep], dict[int, int]]:
    episode, numbers = RecentSteps(), {}
    for number, step in enumerate(steps, 1):
        numbers[number] = step["step"]
        if heard(step):
            episode.said("user", step["output"] or step["input"] or "")
        elif step["role"] == "tool":
            error = ("error", step["error"]) if step["error"] else None
            episode.record(step["tool"], step["input"], step["output"], error)
        else:
            episode.said("assistant", step["input"] or step["output"] or "")
    return list(episode.moments), numbers


def labelled() -> Iterator[Labelled]:
    by_session: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for step in lines("whowhen/steps.jsonl.gz"):
        by_session[step["session"]].append(step)
    for label in lines("whowhen/failure_labels.jsonl.gz"):
        steps = by_session[label["session"]]
        # The terminal answers with what it printed; the code it ran was said by another.
        found, numbers = logged(steps, lambda step: step["role"] == "tool" or step["tool"] == "human")
        yield steps[0]["goal"], found, numbers, {label["mistake_step"]}
    labels = {label["session"]: label for label in lines("agentrx/failure_labels.jsonl.gz")}
    by_session.clear()
    for step in lines("tau1/steps.jsonl.gz"):
        if step["session"] in labels:
            by_session[step["session"]].append(step)
    for session, label in sorted(labels.items()):
        steps = by_session[session]
        found, numbers = logged(steps, lambda step: step["tool"] == "user")
        root = label["root_cause"]["failure_id"]
        counted = next(each["step_number"] for each in label["failures"] if each["failure_id"] == root)
        yield steps[0]["goal"], found, numbers, {_step_at(steps, counted)}


def _step_at(steps: list[dict[str, Any]], counted: int) -> int:
    """People counted the system prompt, and a call and its answer as two."""
    place = 1
    for step in steps:
        place += 2 if step["role"] == "tool" else 1
        if place >= counted:
            return int(step["step"])
    return -1


@pytest.mark.real_data
@pytest.mark.skipif(not DATA.is_dir(), reason="no real trajectories beside the project")
def test_blame_beats_chance_and_the_last_step_at_naming_the_decisive_one() -> None:
    hits: dict[str, list[float]] = defaultdict(list)
    for goal, found, numbers, decisive in labelled():
        acts = [numbers[each.number] for each in found if each.did or each.tool]
        guilty = blame(goal, found)
        assert guilty is not None
        hits["blame"].append(numbers[guilty.number] in decisive)
        hits["last"].append(acts[-1] in decisive)
        hits["second"].append(acts[min(1, len(acts) - 1)] in decisive)
        hits["random"].append(mean(each in decisive for each in acts))
    rates = {name: round(mean(values), 3) for name, values in hits.items()}
    print(len(hits["blame"]), rates)
    assert len(hits["blame"]) == 119
    assert (
        rates["blame"] > 2 * rates["random"] and rates["blame"] > 2 * rates["last"] and rates["blame"] > rates["second"]
    )
