from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from safetensors.numpy import load, save

from fleetlore.errors import ConfigError
from fleetlore.testing import sessions
from fleetlore.wire.trajectory import Feedback, Step, Trajectory
from models.judge.critic import CONFIDENCE, Critic, CriticJudge, FamilyScore
from models.judge.critic_features import features
from models.judge.critic_fit import fit
from models.judge.prefix import first_calls

SMOKE = Path(__file__).parents[4] / "shared" / "data" / "smoke"


def call(tool: str, arguments: str, result: str, failed: bool = False) -> Step:
    return sessions.call(tool, arguments, result, error=result if failed else None)


def session(name: str, agent: str, task: str, steps: list[Step], failed: bool | None = None) -> Trajectory:
    ending = {True: "failure", False: "success", None: "unknown"}[failed]
    goal = f"report the {task} of last month"
    return sessions.trajectory(*steps, session=name, agent=agent, task=task, goal=goal, ending=ending)


def world(sessions: int, seed: int, agents: str = "abcdefghi") -> tuple[list[Trajectory], list[bool]]:
    """A database: who guesses a column fails 9 times of 10, who looks at the schema first 1 time of 10. Tables do not
    matter.
    """
    chance = random.Random(seed)
    tables = [f"{size}_{kind}" for size in ("big", "small", "old") for kind in ("orders", "users", "visits", "prices")]
    made, ends = [], []
    for number in range(sessions):
        task, agent = chance.choice(tables), chance.choice(agents)
        guesses = chance.random() < 0.5
        failed = chance.random() < (0.9 if guesses else 0.1)
        first = (
            call("sql", f"SELECT total FROM {task}", "Unknown column 'total'", failed=True)
            if guesses
            else call("sql", f"DESCRIBE {task}", "[('id',), ('amount',)]")
        )
        last = call("sql", f"SELECT sum(amount) FROM {task}", f"[({number},)]")
        if failed:
            last = call("sql", f"SELECT amounts FROM {task}", "Unknown column 'amounts'", failed=True)
        steps = [first, last, call("submit", str(number), "done")]
        made.append(session(f"s{seed}-{number}", f"agent-{agent}", task, steps, failed))
        ends.append(failed)
    return made, ends


@pytest.fixture(scope="module")
def critic() -> Critic:
    return fit(*world(600, 1))[0]


@pytest.fixture(scope="module")
def unseen() -> tuple[list[Trajectory], list[bool]]:
    return world(400, 2, agents="xyz")


def test_it_foresees_failures_of_agents_it_has_not_met(
    critic: Critic, unseen: tuple[list[Trajectory], list[bool]]
) -> None:
    sessions, failed = unseen
    p = critic.failure_probability(sessions, 1)
    assert p.shape == (400,)
    # Guessing fails 9 times of 10: no critic can be better, and this one claims no more.
    assert np.mean((p > 0.5) == np.array(failed)) > 0.85
    assert 0.8 < np.median(p[p > 0.5]) < 0.97
    assert 0.03 < np.median(p[p < 0.5]) < 0.2


def test_its_probabilities_are_calibrated(critic: Critic, unseen: tuple[list[Trajectory], list[bool]]) -> None:
    sessions, failed = unseen
    for calls in (1, None):
        p, outcome = critic.failure_probability(sessions, calls), np.array(failed)
        bins = np.minimum((p * 10).astype(int), 9)
        gaps = [abs(p[bins == at].mean() - outcome[bins == at].mean()) * np.mean(bins == at) for at in np.unique(bins)]
        assert sum(gaps) < 0.06


def test_an_agent_that_is_known_has_a_calibration_of_its_own() -> None:
    # Who it is decides how a session ends, so what was learned of an agent says nothing about another.
    trajectories, _ = world(900, 3)
    ends = [(t.agent < "agent-e") != (number % 20 == 0) for number, t in enumerate(trajectories)]
    fitted, _ = fit(trajectories, ends)
    known, new = (
        fitted.failure_probability([replace(t, agent=agent) for t in trajectories[:100]], None)
        for agent in ("agent-a", "agent-z")
    )
    assert known.mean() > 0.9
    assert new.mean() < 0.7


def test_fitting_again_gives_the_same_critic(critic: Critic) -> None:
    again, _ = fit(*world(600, 1))
    assert again.version == critic.version
    assert again.to_bytes() == critic.to_bytes()
    assert fit(*world(300, 3))[0].version != critic.version


def test_bytes_and_back(critic: Critic, unseen: tuple[list[Trajectory], list[bool]]) -> None:
    data = critic.to_bytes()
    back = Critic.from_bytes(data)
    assert back.version == critic.version and back.records == critic.records
    for calls in (1, 2, 5, None):
        ours, theirs = (each.failure_probability(unseen[0][:50], calls) for each in (critic, back))
        np.testing.assert_array_equal(ours, theirs)


@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_broken_bytes_are_refused(critic: Critic, data: st.DataObject) -> None:
    good = critic.to_bytes()
    cut = data.draw(st.integers(0, len(good) - 1))
    with pytest.raises(ConfigError, match="critic"):
        Critic.from_bytes(good[:cut])
    with pytest.raises(ConfigError, match="critic"):
        Critic.from_bytes(data.draw(st.binary(max_size=200)))


@pytest.mark.parametrize("broken", ["bias", "weights", "words", "calibration"])
def test_arrays_of_another_shape_or_no_numbers_are_refused(critic: Critic, broken: str) -> None:
    import orjson

    data = critic.to_bytes()
    header = orjson.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
    arrays: dict[str, Any] = load(data)
    shorter = arrays | {broken: arrays[broken][:-1].copy()}
    with pytest.raises(ConfigError, match="another version"):
        Critic.from_bytes(save(shorter, header))
    with pytest.raises(ConfigError, match="critic"):
        Critic.from_bytes(save({name: array for name, array in arrays.items() if name != broken}, header))
    with pytest.raises(ConfigError, match="no critic"):
        Critic.from_bytes(save(arrays, {}))
    if broken == "bias":
        with pytest.raises(ConfigError, match="no numbers"):
            Critic.from_bytes(save(arrays | {broken: np.full_like(arrays[broken], np.nan)}, header))


LEAKS: list[dict[str, Any]] = [
    {"ending": "success"},
    {"ending": "failure"},
    {"reward": 1.0},
    {"feedback": Feedback(session="s", label="success", time=1.0, by="x")},
    {"session": "another"},
    {"tenant": "another"},
    {"started": 5.0, "ended": 500.0},
    {"events": 77, "missing": 3, "part": 0},
]


@pytest.mark.parametrize("change", LEAKS, ids=lambda change: "+".join(change))
@pytest.mark.parametrize("calls", [1, 2, None])
def test_what_only_the_end_tells_changes_nothing(
    critic: Critic, unseen: tuple[list[Trajectory], list[bool]], change: dict[str, Any], calls: int | None
) -> None:
    sessions = [replace(each, ending="unknown") for each in unseen[0][:20]]
    changed = [replace(each, **change) for each in sessions]
    ours, theirs = (critic.failure_probability(each, calls) for each in (sessions, changed))
    np.testing.assert_array_equal(ours, theirs)


def test_later_steps_change_nothing(critic: Critic, unseen: tuple[list[Trajectory], list[bool]]) -> None:
    for calls in (1, 2):
        sessions = unseen[0][:20]
        beginnings = [beginning for each in sessions if (beginning := first_calls(each, calls))]
        longer = [replace(each, steps=each.steps + each.steps * 5) for each in beginnings]
        assert len(beginnings) == 20
        known = critic.failure_probability(beginnings, calls)
        np.testing.assert_array_equal(known, critic.failure_probability(sessions, calls))
        np.testing.assert_array_equal(known, critic.failure_probability(longer, calls))


def test_the_length_of_a_session_is_no_feature() -> None:
    step = call("look", "here", "nothing new")
    short, long = (session("s", "a", "k", [step] * n) for n in (5, 25))
    ((few, less),) = features(short, (None,))
    ((many, more),) = features(long, (None,))
    assert set(few.tolist()) ^ set(many.tolist()) == _share_of_repeats(few, many)
    assert len(less) == len(more)


def _share_of_repeats(few: Any, many: Any) -> set[int]:
    """Five equal calls are 4/5 repeated, 25 are 24/25: shares near the same level may round to two levels, no more."""
    different = set(few.tolist()) ^ set(many.tolist())
    assert len(different) <= 4
    return different


def test_a_critic_needs_both_ends() -> None:
    sessions, _ = world(20, 1)
    for failed in ([True] * 20, [False] * 20, [True, False]):
        with pytest.raises(ConfigError, match="sessions that failed"):
            fit(sessions, failed)


def test_a_session_begins_with_its_first_call(critic: Critic) -> None:
    with pytest.raises(ValueError, match="calls is 0"):
        critic.failure_probability([], 0)
    assert critic.failure_probability([], None).shape == (0,)


def test_sessions_without_a_call_and_odd_texts_get_an_answer(critic: Critic) -> None:
    odd = session("s", "", "", [call("", "\ud800 \x00 é 漢字" * 500, "", failed=True)])
    p = critic.failure_probability([session("s", "a", "k", []), odd], None)
    assert np.isfinite(p).all() and ((p > 0) & (p < 1)).all()


def test_the_judge_says_what_it_is_sure_of(critic: Critic, unseen: tuple[list[Trajectory], list[bool]]) -> None:
    judge = CriticJudge(critic)
    said = [(judge.judge(each), failed) for each, failed in zip(*unseen, strict=True)]
    made = [(verdict, failed) for verdict, failed in said if verdict is not None]
    assert len(made) > 200
    assert all((verdict.label == "failure") == failed for verdict, failed in made if verdict) or (
        np.mean([(verdict.label == "failure") == failed for verdict, failed in made]) > 0.9
    )
    for verdict, _ in made:
        assert verdict.source == "critic" and critic.version in verdict.version
        assert max(verdict.probability, 1 - verdict.probability) >= CONFIDENCE
        assert (verdict.label == "success") == (verdict.probability > 0.5)


def test_the_judge_abstains_where_it_is_not_sure(critic: Critic, unseen: tuple[list[Trajectory], list[bool]]) -> None:
    strict = CriticJudge(critic, confidence=1.0)
    assert all(strict.judge(each) is None for each in unseen[0][:20])
    with pytest.raises(ValueError, match="confidence"):
        CriticJudge(critic, confidence=0.2)


def test_the_judge_abstains_on_what_it_does_not_know(
    critic: Critic, unseen: tuple[list[Trajectory], list[bool]]
) -> None:
    judge = CriticJudge(critic)
    known = next(each for each in unseen[0] if judge.judge(each) is not None)
    elsewhere = replace(known, steps=tuple(replace(step, tool=f"other {step.tool}") for step in known.steps))
    words = ["quantum", "harbours", "seldom", "weigh", "plum", "velvet", "engines", "beyond", "tidal", "orchards"]
    talk = tuple(replace(step, arguments=" ".join(words), result=" ".join(words[::-1])) for step in known.steps)
    assert judge.judge(elsewhere) is None
    assert judge.judge(replace(known, goal=" ".join(words), steps=talk)) is None
    assert judge.judge(replace(known, steps=())) is None
    assert judge.judge(replace(known, ending="continued")) is None


def test_the_record_counts_what_was_left_out(critic: Critic) -> None:
    (record,) = critic.records
    assert record.tools == "sql, submit"
    judged = record.failure + record.missed + record.alarm + record.success
    assert judged > 200
    assert (record.failure + record.success) / judged > 0.9
    assert record.failure > record.missed and record.success > record.alarm


@pytest.mark.parametrize(
    ("failure", "missed", "alarm", "success", "failures", "successes"),
    [
        (90, 10, 10, 90, True, True),
        (10, 90, 0, 900, True, False),  # nearly always right about success, and blind to failures
        (10, 0, 90, 10, False, True),
        (90, 20, 0, 10, True, False),
        (0, 0, 0, 0, False, False),
    ],
)
def test_a_record_bears_out_what_was_right_often_enough(
    failure: int, missed: int, alarm: int, success: int, failures: bool, successes: bool
) -> None:
    record = FamilyScore("sql", failure, missed, alarm, success, unsure=5)
    assert (record.allows(failed=True), record.allows(failed=False)) == (failures, successes)


def test_the_judge_calls_nothing_a_success_where_failures_look_like_it() -> None:
    sessions, ends = world(600, 4)
    chance = random.Random(1)
    # Nine of ten succeed, whatever they did.
    luck = [chance.random() < 0.1 for _ in ends]
    blind, _ = fit(sessions, luck)
    assert (blind.failure_probability(sessions[:50], None) < 0.25).mean() > 0.9
    assert all(CriticJudge(blind).judge(each) is None for each in sessions[:50])


@pytest.mark.real_data
@pytest.mark.skipif(not SMOKE.is_dir(), reason=f"the folder of real trajectories is missing: {SMOKE}")
async def test_it_learns_from_logged_runs() -> None:
    from fleetlore.transcripts.read import read_sessions
    from models.data.auroc import auroc
    from streams.offline.memory_pipeline import run_logs

    rehearsed = await run_logs(read_sessions(SMOKE / "mint"), seed=0, learn=False)
    agents = sorted({each.agent for each in rehearsed.trajectories})[::3]
    known = [each for each in rehearsed.trajectories if each.agent not in agents]
    new = [each for each in rehearsed.trajectories if each.agent in agents]
    critic, _ = fit(known, [each.ending == "failure" for each in known])
    p = critic.failure_probability(new, None)
    failed = np.array([each.ending == "failure" for each in new])
    assert (auroc(p, failed) or 0) > 0.8
