from __future__ import annotations

from benchmarks.evaluate.worlds.long_catalogue import LONG_CATALOGUE
from benchmarks.pretrain import (
    DOMAINS,
    UNSEEN_WORLD_SEEDS,
    WORLD_SEEDS,
    card,
    world_episodes,
    world_judgments,
)
from fleetlore.retrieval.encoder import shared_encoder
from models.adapter.pretrain import BATCH, pretrain


def test_a_base_is_a_function_of_its_episodes() -> None:
    episodes = world_episodes(shared_encoder(), 9000, BATCH)
    assert pretrain(episodes, 3, seed=20).sha256 == pretrain(episodes, 3, seed=20).sha256


def test_judgments_of_a_world_are_those_of_its_environment() -> None:
    judgments = list(world_judgments(3, 40))
    assert {judgment.verdict.label for judgment in judgments} == {"success", "failure"}
    failed = [step for judgment in judgments for step in judgment.trajectory.steps if step.failed]
    assert failed and all(step.family and step.error_type for step in failed)


def test_the_evaluation_measures_in_worlds_with_rules_that_the_base_has_not_seen() -> None:
    measured = range(100)  # the seeds that `python -m benchmarks.evaluate --seeds` can ask for
    assert set(measured).isdisjoint(WORLD_SEEDS) and set(measured).isdisjoint(UNSEEN_WORLD_SEEDS)
    # The base knows these four of the ten measured domains by tool names and errors (docs/research/learning-notes.md).
    assert set(DOMAINS) == {"database", "files", "git", "python"} < set(LONG_CATALOGUE.domains)
    assert len(LONG_CATALOGUE.domains) == 10


def test_the_card_names_the_file() -> None:
    text = card(b"weights", 10, {"all": (0.9, 0.3, 100)}, shared_encoder())
    assert "0.900" in text and shared_encoder().sha256 in text
