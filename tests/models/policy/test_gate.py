"""Which candidates of the policy adapter go into service: by later pairs, and by a trial of a share of the agents."""

import math
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.tiny_model import save_tiny_model
from fleetlore.errors import ConfigError
from fleetlore.lora.adapter import check_lora
from fleetlore.wire.adapter_manifest import in_cohort
from fleetlore.wire.trajectory import Judgment, Label, Step
from models.policy.gate import LEAST, CanaryTrial, judge_policy, log_wealth, split
from models.policy.pairs import Pair, preference_pairs
from tests.build import call, judgment
from tests.lora import manifest_of
from tests.models.policy.made import fleet
from tests.rows import for_each

PAIRS = preference_pairs(fleet(60), 2)
OLDER, LATER = split(PAIRS)
ALONE = [0.5] * len(LATER)


def judged(gain: float, *, published: float | None = None, forgotten: float = 0.0) -> str:
    candidate = [each + gain for each in ALONE]
    of_published = None if published is None else [each + published for each in ALONE]
    return judge_policy(LATER, ALONE, candidate, of_published, (10.0, 10.0 * (1 + forgotten))).reason


@for_each(
    "gain, published, forgotten, reason",
    (2.0, None, 0.0, "better"),
    (2.0, None, 0.019, "better"),
    (2.0, None, 0.021, "forgets"),
    (0.0, None, 0.0, "no_gain"),
    (-2.0, None, 0.0, "no_gain"),
    (2.0, 2.05, 0.0, "better"),
    (2.0, 2.5, 0.0, "worse_than_published"),
)
def test_a_version_passes_that_gains_on_later_pairs_and_forgets_little(
    gain: float, published: float | None, forgotten: float, reason: str
) -> None:
    assert judged(gain, published=published, forgotten=forgotten) == reason


def test_sessions_of_one_task_count_once() -> None:
    same = [pair._replace(task="t") for pair in LATER]
    assert judge_policy(same, ALONE, [9.0] * len(same), None, (1.0, 1.0)).reason == "no_gain"


def test_few_pairs_decide_nothing() -> None:
    few = LATER[: LEAST - 1]
    assert judge_policy(few, ALONE[: len(few)], [9.0] * len(few), None, (1.0, 1.0)).reason == "too_few"


def test_the_later_pairs_end_later_and_share_no_session_with_the_older() -> None:
    older, later = split(PAIRS)
    assert max(pair.ended for pair in older) <= min(pair.ended for pair in later)
    assert len(later) >= LEAST and not {pair.sessions[0] for pair in older} & {pair.sessions[0] for pair in later}


def test_of_few_pairs_nothing_is_learned() -> None:
    some: list[Pair] = PAIRS[:LEAST]
    assert split(some) == ([], some) and split([]) == ([], [])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("base"))


@pytest.mark.long
def test_a_version_passes_the_gate_and_runs_again_from_its_file(folder: Path) -> None:
    from models.policy.learn import LanguageModel, Training  # takes seconds

    fast = Training(updates=40, learning_rate=5e-3)
    model = LanguageModel(folder, fast)
    alone, before = model.margins(LATER), model.perplexity()
    lora = model.learn(OLDER)
    learned, after = model.margins(LATER), model.perplexity()
    assert judge_policy(LATER, alone, learned, None, (before, after)).passed
    manifest = manifest_of(lora, model.base.sha256, architecture=model.architecture)
    check_lora(lora.weights, manifest)
    model.run_alone()
    assert (model.margins(LATER), model.perplexity()) == (alone, before)
    model.run(lora.weights, manifest)
    assert model.margins(LATER) == pytest.approx(learned, abs=1e-3)
    assert LanguageModel(folder, fast).learn(OLDER).weights == lora.weights, "a function of the pairs"


@pytest.mark.long
def test_a_model_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from models.policy.learn import snapshot

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ConfigError, match="no/such-model"):
        snapshot("no/such-model")


SHARE = 0.3
AGENTS = [f"a{number}" for number in range(40)]
COHORT = [agent for agent in AGENTS if in_cohort(agent, SHARE, "new")]
OTHERS = [agent for agent in AGENTS if not in_cohort(agent, SHARE, "new")]


def session(number: int, version: str | None, label: Label, agent: str = COHORT[0]) -> Judgment:
    thanks = Step(sequence=0, role="user", result="thanks")
    return judgment(call("t", adapter=version), thanks, label=label, session=f"s{number}", agent=agent)


def trial(canary: float, stable: float, sessions: int, seed: int) -> str:
    """The decision between two versions with these success rates, checked after every pair of votes."""
    chance, running, pairs = random.Random(seed), new_trial(), 0
    for number in range(sessions):
        version = chance.choice(["new", "old", "old", "older"])
        won = chance.random() < (canary if version == "new" else stable)
        agent = chance.choice(COHORT if version == "new" else OTHERS)
        # A quarter of a minute is between two sessions: hardly ever two of one agent in one.
        running.add(session(number, version, "success" if won else "failure", agent), 15.0 * number)
        before, pairs = pairs, min(votes for votes, _ in running.counts.values())
        if pairs > before and (decision := running.decide(1.0)) != "waiting":
            return decision
    return "waiting"


def test_one_that_costs_success_is_aborted() -> None:
    found = [trial(0.3, 0.7, 600, seed) for seed in range(40)]
    assert found.count("abort") >= 38 and "promote" not in found


@pytest.mark.long
def test_one_that_costs_nothing_is_promoted() -> None:
    found = [trial(0.8, 0.8, 2400, seed) for seed in range(40)]
    assert found.count("promote") >= 28 and found.count("abort") <= 5


@pytest.mark.long
def test_one_that_costs_as_much_as_the_margin_is_seldom_promoted() -> None:
    found = [trial(0.6, 0.7, 800, seed) for seed in range(60)]
    assert found.count("promote") <= 3


def new_trial() -> CanaryTrial:
    return CanaryTrial("new", "old", SHARE, 0.0)


@pytest.fixture
def running() -> CanaryTrial:
    return new_trial()


def test_without_sessions_nothing_is_promoted(running: CanaryTrial) -> None:
    assert running.decide(10.0) == "waiting"
    assert running.decide(7200.0) == "abort"


@pytest.mark.parametrize(("version", "label"), [(None, "success"), ("other", "success"), ("new", "abstained")])
def test_what_says_nothing_is_not_counted(running: CanaryTrial, version: str | None, label: str) -> None:
    running.add(session(1, version, label), 0.0)
    assert running.counts == {"new": (0, 0), "old": (0, 0)}


def test_an_agent_has_one_vote_a_minute_and_only_under_the_version_that_it_is_to_run(running: CanaryTrial) -> None:
    for number in range(50):
        running.add(session(number, "new", "failure"), 30.0 * (number // 25))
        running.add(session(100 + number, "old", "success"), 0.0)  # as a member of the cohort it does not run that
        running.add(session(200 + number, "new", "success", OTHERS[0]), 0.0)
    assert running.counts == {"new": (1, 0), "old": (0, 0)}
    running.add(session(300, "new", "failure"), 61.0)
    assert running.counts["new"] == (2, 0)


def test_three_names_of_one_principal_are_one_vote(running: CanaryTrial) -> None:
    for number in range(30):
        running.add(session(number, "new", "failure", f"{COHORT[0]}:{number % 3}"), 60.0 * number)
        running.add(session(100 + number, "old", "success", OTHERS[number % len(OTHERS)]), 60.0 * number)
    assert running.counts == {"new": (30, 0), "old": (30, 30)}
    assert running.decide(1.0) == "waiting"
    others = new_trial()
    for number in range(30):
        others.add(session(number, "new", "failure", COHORT[number % 3]), 60.0 * number)
        others.add(session(100 + number, "old", "success", OTHERS[number % len(OTHERS)]), 60.0 * number)
    assert others.decide(1.0) == "abort"


def test_no_agent_is_asked_of_every_version() -> None:
    versions = [f"v{number}" for number in range(200)]
    asked = [sum(in_cohort(agent, 0.2, version) for version in versions) for agent in AGENTS]
    assert min(asked) > 20 and max(asked) < 64
    assert all(in_cohort(f"{AGENTS[0]}:7", 0.2, each) is in_cohort(AGENTS[0], 0.2, each) for each in versions)


@pytest.mark.parametrize("label", ["success", "failure"])
def test_one_agent_alone_decides_nothing(running: CanaryTrial, label: Label) -> None:
    other: Label = "failure" if label == "success" else "success"
    for number in range(60):  # of two agents half as many decide
        running.add(session(number, "new", label), 60.0 * number)
        running.add(session(1000 + number, "old", other, OTHERS[number % len(OTHERS)]), 60.0 * number)
        assert running.decide(1.0) == "waiting"


@pytest.mark.timeout(10)
def test_a_trial_of_thousands_of_principals_is_decided_in_a_moment(running: CanaryTrial) -> None:
    cohorts = {True: list[str](), False: list[str]()}
    for number in range(20_000):
        cohorts[in_cohort(f"agent{number}", SHARE, "new")].append(f"agent{number}")
    for number, (of_new, of_old) in enumerate(zip(cohorts[True], cohorts[False], strict=False)):
        running.add(session(number, "new", "success", of_new), 0.0)
        running.add(session(100_000 + number, "old", "success", of_old), 0.0)
    assert running.counts["new"][0] > 4000
    assert running.decide(1.0) == "promote"


gains = st.lists(st.floats(-1, 1), max_size=40)


@given(gains, st.randoms())
def test_order_does_not_matter(values: list[float], chance: random.Random) -> None:
    shuffled = chance.sample(values, len(values))
    assert log_wealth(shuffled) == pytest.approx(log_wealth(values), abs=1e-9)


def test_a_thousand_null_updates_looked_at_eight_times_each_promote_at_most_one_in_twenty() -> None:
    """No candidate is better than the running version, and each new held-out session runs the gate again."""
    chance = np.random.default_rng(0)
    promoted = 0
    for _ in range(1000):
        # Most sessions do not differ; those that do, differ a lot: the kindest case for a false alarm.
        values = np.where(chance.random(400) < 0.3, chance.choice([-1.0, 1.0], 400), chance.normal(0, 0.1, 400)).clip(
            -1, 1
        )
        promoted += any(log_wealth(values[: 50 * look]) >= -math.log(0.05) for look in range(1, 9))
    assert promoted <= 50


def test_a_real_gain_is_promoted() -> None:
    chance = np.random.default_rng(0)
    found = [log_wealth(chance.normal(0.25, 0.5, 200).clip(-1, 1)) >= -math.log(0.05) for _ in range(100)]
    assert sum(found) >= 99
