from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from benchmarks.backtest.cases import Case
from benchmarks.backtest.silence import silence
from fleetlore.wire.lore import MemoryItem

MakeCase = Callable[..., Case]
COUNT, SAVE, LOOK = ("count()", None), ("save()", None), ("look()", None)


def strategy(task: str, missing: str) -> MemoryItem:
    content = f"What worked:\n1. sh(x)\nA session that failed did not do (several of 2 did):\n- sql({missing})"
    return MemoryItem(
        id=task, tenant="default", kind="strategy", title="t", description="", content=content, when="", task=task
    )


def test_the_first_step_that_an_item_names_is_held_against_what_other_test_sessions_did(make_case: MakeCase) -> None:
    def session(name: str, task: str, failed: bool, *calls: tuple[str, str | None]) -> Case:
        return make_case(name, "ann", task, *calls, failed=failed)

    train = [session("0", "cook", False, COUNT, SAVE), session("1", "wash", False, LOOK, COUNT)]
    test = [
        session("2", "cook", False, COUNT, SAVE),
        session("3", "cook", True, COUNT),
        session("4", "wash", False, LOOK, SAVE),
        session("5", "wash", True, LOOK),
        session("6", "wash", True, LOOK, ("count()", "ValueError: no")),  # not silent
        session("7", "iron", True, LOOK),  # nobody shows what was missing
    ]
    told = [strategy("cook", "save()"), strategy("wash", "count()")]
    (found,) = silence(train, test, told, seed=0).values()
    assert found == {
        "failed": 4, "silent": 0.75, "asked": 2, "item": 1.0, "named": 0.5, "most_frequent": 0.0, "shuffled": 0.5,
    }  # fmt: skip


def test_a_missing_step_may_be_named_by_its_number(make_case: MakeCase) -> None:
    train, test = (
        [make_case("1", "ann", "cook", COUNT, SAVE, failed=False)],
        [
            make_case("2", "ann", "cook", COUNT, SAVE, failed=False),
            make_case("3", "ann", "cook", COUNT, failed=True),
        ],
    )
    way = "What worked:\n1. sql(count())\n2. sql(save()) (×2)\n"
    for number, named in ((2, 1.0), (1, 0.0)):
        content = f"{way}A session that failed did not do {number}, 3 (several of 3 did)"
        item = replace(strategy("cook", ""), content=content)
        (found,) = silence(train, test, [item], seed=0).values()
        assert found["named"] == named  # type: ignore[index]


def test_without_a_case_there_is_no_figure(make_case: MakeCase) -> None:
    (found,) = silence([], [make_case("1", "ann", "cook", COUNT, failed=False)], [], seed=0).values()
    assert found == {
        "failed": 0, "silent": None, "asked": 0, "item": None, "named": None, "most_frequent": None, "shuffled": None,
    }  # fmt: skip
