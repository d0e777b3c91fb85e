"""Run the rules judge and the distiller over a folder of logged runs.

    python benchmarks/judge_and_distiller.py FOLDER [--show KIND [--count 10] [--seed 0]]

Prints, for each source, how often the rules fire with the rewards hidden and how often the environment agrees that the
session failed; then how many memory items come out of the judged runs. `--show` prints a random sample of items, to be
read by a person.
"""

from __future__ import annotations

import argparse
import gzip
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
from msgspec.structs import replace

from fleetlore.fingerprint.fingerprint import call_id, failure_of
from fleetlore.fingerprint.loops import LoopDetector
from fleetlore.stats.intervals import wilson
from fleetlore.wire.lore import MemoryItem
from fleetlore.wire.trajectory import MAX_TEXT, Judgment, Step, Trajectory
from models.distil.distiller import distil
from models.judge import chain as judge
from models.memory.item_state import ItemState

RULES: tuple[Callable[[Trajectory], bool], ...] = (
    judge.ended_on_a_failed_call,
    judge.never_got_a_call_through,
    judge.ended_in_a_loop,
    judge.gave_up,
)


def read_trajectories(folder: Path) -> Iterator[Trajectory]:
    """Read the sessions of a source (`steps.jsonl.gz`, `trajectories.jsonl.gz`), with the environment's ending."""
    steps: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in _rows(folder / "steps.jsonl.gz"):
        steps[row["session"]].append(row)
    for number, row in enumerate(_rows(folder / "trajectories.jsonl.gz")):
        yield Trajectory(
            tenant="default",
            session=row["session"],
            agent=row["agent"],
            task=row["task"],
            goal=row["goal"] or "",
            started=float(number),
            ended=float(number),
            ending="success" if row["outcome"] else "failure",
            steps=tuple(_steps(steps[row["session"]])),
        )


def _steps(rows: list[dict[str, Any]]) -> Iterator[Step]:
    """The steps of a session, each call with the loop that it was in."""
    detector = LoopDetector()
    for place, row in enumerate(rows):
        step = _step(place, row)
        loop = detector.take(row["input"] or "", step) if step.role == "tool" else None
        yield replace(step, loop=loop.pattern.exact) if loop else step


def _step(place: int, row: dict[str, Any]) -> Step:
    tool, text, output = row["tool"] or "", row["input"] or "", row["output"] or ""
    if row["role"] != "tool":
        return Step(sequence=place, role=tool or "assistant", result=(text or output)[:MAX_TEXT])
    failure = failure_of(tool, text, None, row["error"]) if row["error"] else None
    return Step(
        sequence=place,
        role="tool",
        tool=tool,
        arguments=text[:MAX_TEXT],
        result=output[:MAX_TEXT],
        error_message=row["error"],
        call=call_id(tool, text),
        family=failure.family if failure else None,
        pattern=failure.class_ if failure else None,
        exact=failure.exact if failure else None,
        transient=failure is not None and failure.transient,
    )


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path) as lines:
        for line in lines:
            yield orjson.loads(line)


def measure_rules(trajectories: list[Trajectory]) -> list[tuple[str, int, int]]:
    """Rows (rule, times fired, times the session had failed), over sessions whose reward is hidden."""
    rows = []
    rules_judge = judge.RulesJudge()
    for name, fires in [*((rule.__name__, rule) for rule in RULES), ("any", None)]:
        fired = failed = 0
        for trajectory in trajectories:
            hidden = replace(trajectory, ending="unknown")
            if fires(hidden) if fires and hidden.steps else fires is None and rules_judge.judge(hidden) is not None:
                fired += 1
                failed += trajectory.ending == "failure"
        rows.append((name, fired, failed))
    return rows


def distil_all(trajectories: list[Trajectory]) -> list[MemoryItem]:
    """The memory items of all sessions, each judged by what the environment said."""
    chain = judge.JudgeChain()
    states: dict[str, ItemState] = defaultdict(ItemState)
    for trajectory in trajectories:
        for candidate in distil(Judgment(trajectory=trajectory, verdict=chain.judge(trajectory))):
            states[candidate.item_id].merge(candidate)
    return [item for state in states.values() if (item := state.to_item()) is not None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--show", choices=("recovery", "strategy"))
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    items: list[MemoryItem] = []
    print(f"{'source':<10} {'rule':<26} {'fired':>6} {'failed':>6} precision (95 % interval)")
    for path in sorted(options.data.glob("*/trajectories.jsonl.gz")):
        trajectories = list(read_trajectories(path.parent))
        failures = sum(each.ending == "failure" for each in trajectories)
        print(f"{path.parent.name:<10} {'(all sessions)':<26} {len(trajectories):>6} {failures:>6}")
        for rule, fired, failed in measure_rules(trajectories):
            low, high = wilson(failed, fired)
            if fired:
                print(f"{'':<10} {rule:<26} {fired:>6} {failed:>6} {failed / fired:.3f} ({low:.3f}–{high:.3f})")
        found = distil_all(trajectories)
        items += found
        kinds = Counter(item.kind for item in found)
        print(f"{'':<10} items: " + ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())))
    chosen = [item for item in items if item.kind == options.show]
    for item in random.Random(options.seed).sample(chosen, min(options.count, len(chosen))):
        print(f"\n=== {item.title}  [{item.support} sessions, {item.agents} agents]")
        print(f"{item.description}\n{item.content}\nwhen: {item.when}\nremedy: {item.remedy}")


if __name__ == "__main__":
    main()
