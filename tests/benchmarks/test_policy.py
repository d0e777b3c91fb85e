"""That the objectives are compared on the same pairs, and that the rival reads advice."""

import json
from itertools import product
from pathlib import Path

import pytest

from benchmarks.policy import OBJECTIVES, Rows, compare, log_of, with_text
from benchmarks.tiny_model import save_tiny_model
from models.policy.gate import split
from models.policy.pairs import preference_pairs
from tests.models.policy.made import fleet


@pytest.mark.long
def test_a_row_says_what_an_objective_gained(tmp_path: Path) -> None:
    older, later = split(preference_pairs(fleet(60), 2))
    base = save_tiny_model(tmp_path)
    for each in OBJECTIVES:
        rows = Rows(tmp_path / "rows.jsonl", later, {pair.task for pair in older})
        compare(base, each, older, later, [], rows, updates=5, every=2)
    kept = Rows(tmp_path / "rows.jsonl", later, set()).kept
    assert list(kept) == [("alone", 0), *((each, updates) for each in OBJECTIVES for updates in (2, 4, 5))]
    assert len({row["margin_base"] for key, row in kept.items() if key[0] != "alone"}) == 1
    assert kept["margin", 5]["margin_gained"]["mean"] > 0 and kept["dpo", 5]["margin_gained"]["mean"] > 0
    gained = kept["margin", 5]
    assert gained["margin_gained"]["mean"] == pytest.approx(
        gained["worked_gained"]["mean"] - gained["failed_gained"]["mean"], abs=1e-3
    )


def test_the_rival_reads_the_advice_of_older_sessions(tmp_path: Path) -> None:
    queries = "SELECT a FROM items", "SELECT a FROM things"
    trajectories, steps = [], []
    for agent, task in product(range(4), range(5)):
        base = {
            "source": "s",
            "agent": f"p{agent}",
            "session": f"{agent}:{task}",
            "task": f"sql/{task}",
            "goal": "List",
        }
        trajectories.append(base | {"outcome": 1, "label_from": "env_reward", "meta": {}})
        for number, (query, error) in enumerate(zip(queries, ["Table 'shop.items' doesn't exist", None], strict=True)):
            call = {"step": number, "tool": "sql", "role": "tool", "input": query, "output": "[(1,)]", "error": error}
            steps.append(base | call)
    for name, rows in (("trajectories", trajectories), ("steps", steps)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    log = log_of(tmp_path, "sql")
    older, later = split(log.pairs())
    texts = with_text(log, older, later)
    assert len(texts) == len(later) >= 12
    for plain, told in zip(later, texts, strict=True):
        assert told.prompt[:-1] == plain.prompt and told._replace(prompt=[]) == plain._replace(prompt=[])
        assert told.prompt[-1]["role"] == "user" and "items" in told.prompt[-1]["content"]
    assert any("things" in told.prompt[-1]["content"] for told in texts)
