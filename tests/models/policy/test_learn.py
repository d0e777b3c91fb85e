"""That a language model learns to prefer what worked, and comes back as it was."""

from pathlib import Path

import pytest

from benchmarks.tiny_model import save_tiny_model
from fleetlore.errors import ConfigError
from fleetlore.lora.adapter import check_lora
from models.policy.gate import judge_policy, split
from models.policy.pairs import preference_pairs
from tests.lora import manifest_of
from tests.models.policy.made import fleet

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
