from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from fleetlore.stats.hashing import withheld
from fleetlore.testing.sessions import call, judgment
from fleetlore.wire.trajectory import Judgment, Step
from models.memory.utility import ARM_SESSIONS, LEAST_SESSIONS, Evidence, Trials, utility_evidence


def judged(probability: float = 1.0, *steps: Step) -> Judgment:
    return judgment(*steps, probability=probability, events=4)


def step(advice: tuple[str, ...] = (), withheld: tuple[str, ...] = ()) -> Step:
    return call("t", advice=advice, withheld=withheld)


def test_a_session_says_how_it_ended_of_every_item_it_was_or_was_not_shown() -> None:
    steps = (step(("item1", "0af3", "guard:loop", "fact9"), ("item2",)), step(("item1", "item3"), ("item3",)))
    found = utility_evidence(judged(1.0, *steps))
    assert [(each.item_id, each.shown, each.outcome) for each in found] == [("item1", True, 1), ("item2", False, 1)]
    assert {each.outcome for each in utility_evidence(judged(0.1, *steps))} == {0}
    assert {each.outcome for each in utility_evidence(judged(0.5, *steps))} == {-1}
    assert utility_evidence(judged()) == []


def trials(evidence: list[Evidence]) -> Trials:
    merged = Trials()
    for each in evidence:
        merged.add(each)
    return merged


def arms(successes: int, shown: int, other: int, hidden: int) -> list[Evidence]:
    return [
        Evidence(
            item_id="item1",
            tenant="default",
            session=f"{arm}{number}",
            revision=(1, 0.0),
            shown=arm,
            outcome=int(number < good),
            agent=f"agent-{number % 5}",
        )
        for arm, good, count in ((True, successes, shown), (False, other, hidden))
        for number in range(count)
    ]


def test_too_few_sessions_say_nothing() -> None:
    assert trials(arms(9, LEAST_SESSIONS - 1, 0, 100)).uplift is None
    # One of five agents may go, and enough are left.
    assert trials(arms(10, LEAST_SESSIONS + 2, 0, 100)).uplift is None
    assert trials(arms(10, LEAST_SESSIONS + 3, 0, LEAST_SESSIONS + 3)).uplift is not None


@pytest.mark.parametrize("helps", [False, True])
def test_one_agent_makes_no_item_help_or_harm(helps: bool) -> None:
    honest = arms(20, 40, 20, 40)
    lies = [
        _of(each, session=f"lie-{number}-{each.shown}", outcome=int(each.shown is helps), agent="liar")
        for number, each in enumerate(arms(0, 100, 0, 100))
    ]
    alone, among, more = (trials(some).uplift for some in (lies, [*honest, *lies], arms(38, 40, 2, 40)))
    assert alone is None
    assert among is not None and among.low < 0 < among.high
    assert more is not None and more.low > 0  # what all agents see is still found


def test_a_newer_verdict_on_a_session_replaces_the_older_in_any_order() -> None:
    once = arms(10, 20, 10, 20)
    unsure = [_of(each, revision=(1, 9.0), outcome=-1) for each in once if each.shown]
    assert trials([*once, *unsure]).to_rows() == trials([*unsure, *once]).to_rows()
    assert trials([*once, *unsure]).uplift is None
    corrected = [_of(each, revision=(1, 10.0), outcome=1) for each in once if each.shown]
    found = trials([*corrected, *unsure, *once]).uplift
    assert found is not None and found.estimate == 0.5


def test_a_sample_of_many_sessions_is_bounded_and_unbiased() -> None:
    many = arms(600, 1000, 300, 1000)
    Random(1).shuffle(many)
    kept = trials(many)
    assert len(kept.shown) == len(kept.withheld) == ARM_SESSIONS
    found = kept.uplift
    assert found is not None and found.low < 0.3 < found.high
    assert Trials.from_rows(*kept.to_rows()).to_rows() == kept.to_rows()


def test_items_recalled_together_do_not_stain_each_other() -> None:
    """A useless item that is always recalled beside a useful one: the useful one is as frequent in both of its arms."""
    rng = Random(3)
    found = []
    for number in range(4000):
        session = f"s{number}"
        useful = not withheld(session, "item1", 0.3)
        good = rng.random() < (0.8 if useful else 0.3)
        found.append(
            Evidence(
                item_id="item2",
                tenant="default",
                session=session,
                revision=(1, 0.0),
                shown=not withheld(session, "item2", 0.3),
                outcome=int(good),
                agent=f"agent-{number % 5}",
            )
        )
    uplift = trials(found).uplift
    assert uplift is not None and uplift.low < 0 < uplift.high


def _of(each: Evidence, **changes: Any) -> Evidence:
    return msgspec.structs.replace(each, **changes)
