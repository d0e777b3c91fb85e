"""Which candidates of the policy adapter go into service."""

from pathlib import Path

import pytest

from benchmarks.tiny_model import save_tiny_model
from fleetlore.errors import ConfigError
from fleetlore.lora.adapter import check_lora
from models.policy.gate import LEAST, judge_policy, split
from models.policy.pairs import Pair, preference_pairs
from tests.lora import manifest_of
from tests.models.policy.made import fleet
from tests.rows import for_each

PAIRS = preference_pairs(fleet(60), 2)
LATER = split(PAIRS)[1]
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


OLDER, LATER = split(preference_pairs(fleet(60), 2))


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
