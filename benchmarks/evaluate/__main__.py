"""Measure memories in a world of logs: `python -m benchmarks.evaluate sql-log --data DIR`, or `python-log`.

Printed as JSON: `solved` {arm: {slice: {budget: {mean, low, high}}}}, `calls` {arm: {slice: …}} until solved, ten at
the most, `failed` {arm: {slice: …}} of the first calls, `failed_safest` {arm: {slice: …}} where the first call is the
one of the least stated chance of failure, `log_loss` {arm: {slice: …}} of these chances, `paired` {arm: {rival:
{slice: …}}} of tasks solved within five calls, `paired_failed` {…} of first calls that fail, `sessions` {slice: …}, and
the hash of the reading rule. The slices are in `benchmarks.evaluate.holdouts`, the worlds in
`benchmarks.evaluate.logs`.

With `--test DIR` all sessions of `--data` are the past. `new_tasks` are the tasks of DIR that are in no session of
`--data`, with agents that are in none of them either. Then `points` {`over_none`, `over_raw_episodes`, …: {mean, low,
high}} are those of `both`, in percentage points of tasks solved within five calls.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, get_args

import typer

from benchmarks.command import command_app
from benchmarks.evaluate.figures import NONE, Results, report
from benchmarks.evaluate.fleet import Fleet, Hears, OtherPlace, Told
from benchmarks.evaluate.holdouts import Stage, stages_by_group, stages_by_task, stages_of_others
from benchmarks.evaluate.logs import WORLDS, some_tasks
from benchmarks.evaluate.memories import Counts, Memory, OwnLog, Perfect, RawEpisodes, Regression
from benchmarks.evaluate.play import Played, play
from benchmarks.evaluate.reading import rule_hash
from benchmarks.evaluate.world import LoggedTask
from fleetlore.cli.shared import print_json
from fleetlore.errors import ConfigError
from fleetlore.recall.encoder import shared_encoder

OWN = ("weights", "text", "both", "placebo")
RIVALS = ("log", "counts", "LR", "raw-episodes")
ARMS = (NONE, *RIVALS, *OWN, "perfect")
OURS = "both"
# The default arms for the logs of others.
TEST_ARMS = (NONE, OURS, "raw-episodes", "LR")

# By seed and order: what is met and measured, one after the other.
Drawn = Callable[[int, int], Sequence[Sequence[Stage]]]


@dataclass(frozen=True, slots=True)
class Plan:
    """The runs: each seed draws the held-out tasks, each order the order of the past."""

    arms: tuple[str, ...]
    seeds: int
    orders: int


def main(
    world: Annotated[str, typer.Argument(metavar="WORLD", help=f"One of: {', '.join(WORLDS)}.")],
    data: Annotated[Path, typer.Option(exists=True, file_okay=False, help="Logged sessions: steps and trajectories.")],
    test: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="Measure new agents at new tasks of these logs instead."),
    ] = None,
    arms: Annotated[
        str, typer.Option(help=f"Which arms, with commas between them; all, or with --test {','.join(TEST_ARMS)}.")
    ] = "",
    seeds: Annotated[int, typer.Option(min=1, max=100, help="What is held out.")] = 5,
    orders: Annotated[int, typer.Option(min=1, max=100, help="Orders of the past, of each seed.")] = 3,
    tasks: Annotated[int, typer.Option(min=0, help="Play in so many tasks of the logs; 0: in all.")] = 0,
) -> None:
    """Measure how many tasks agents that were logged would have solved with each memory, within 1 to 10 calls."""
    plan = Plan(_chosen(arms or ",".join(ARMS if test is None else TEST_ARMS)), seeds, orders)
    if world not in WORLDS:
        raise ConfigError(f"there is no world {world!r}; the worlds of logs are {', '.join(WORLDS)}")
    began = time.process_time()
    past = WORLDS[world](data)
    measured = some_tasks(past if test is None else WORLDS[world](test), tasks)

    def drawn(seed: int, order: int) -> list[list[Stage]]:
        if test is not None:
            return [stages_of_others(past, measured, seed, order)]
        return [stages_by_task(measured, seed, order), stages_by_group(measured, seed, order)]

    results = asyncio.run(run(measured.tasks, drawn, plan, _progress))
    found = {"world": world, "reading_rule": rule_hash(), **report(results)}
    if test is not None:
        found["points"] = _points(found["paired"].get(OURS, {}))
    found["cpu_seconds"] = round(time.process_time() - began, 1)
    print_json(found)


def _points(paired: Mapping[str, Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    return {
        f"over_{rival.replace('-', '_')}": {name: round(100 * share, 2) for name, share in slices["new_tasks"].items()}
        for rival, slices in paired.items()
    }


async def run(tasks: Mapping[str, LoggedTask], drawn: Drawn, plan: Plan, progress: Callable[[str], None]) -> Results:
    """Play all arms; what does not depend on the order of the past is played once a seed and counts for each order."""
    found: defaultdict[str, defaultdict[str, list[Played]]] = defaultdict(lambda: defaultdict(list))
    for seed in range(plan.seeds):
        once: dict[tuple[str, str], list[Played]] = {}
        for order in range(plan.orders):
            for stages in drawn(seed, order):
                async for arm, name, played in _stages(tasks, stages, plan, seed, once):
                    found[arm][name] += played
            progress(f"seed {seed}, order {order}")
    return {arm: dict(found[arm]) for arm in plan.arms}


async def _stages(
    tasks: Mapping[str, LoggedTask],
    stages: Sequence[Stage],
    plan: Plan,
    seed: int,
    once: dict[tuple[str, str], list[Played]],
) -> AsyncIterator[tuple[str, str, list[Played]]]:
    memories = _memories(plan.arms)
    for stage in stages:
        for arm, memory in memories.items():
            if not memory.of_order and all((arm, name) in once for name in stage.measured):
                for name in stage.measured:
                    yield arm, name, once[arm, name]
                continue
            await memory.learn(stage.past)
            for name, measured in stage.measured.items():
                played = await play(memory, measured, tasks, seed)
                if not memory.of_order:
                    once[arm, name] = played
                yield arm, name, played


def _memories(arms: Sequence[str]) -> dict[str, Memory]:
    makers: dict[str, Callable[[], Memory]] = {
        NONE: Memory,
        "log": OwnLog,
        "counts": Counts,
        "LR": Regression,
        "raw-episodes": lambda: RawEpisodes(shared_encoder()),
        "perfect": Perfect,
    }
    own = [arm for arm in arms if arm in OWN]
    fleet = Fleet(lore=bool({"text", "both", "placebo"} & set(own)))
    told: dict[str, Callable[..., Memory]] = {arm: partial(Told, hears=arm) for arm in get_args(Hears)}
    for arm in own:
        makers[arm] = partial(told.get(arm, OtherPlace), fleet, learns=arm == own[0])
    return {arm: makers[arm]() for arm in arms}


def _chosen(arms: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in arms.split(",") if name.strip()))
    unknown = [name for name in names if name not in ARMS]
    if unknown or NONE not in names:
        wrong = f"{', '.join(unknown)} is no arm" if unknown else f"{NONE} is left out, to which all are compared"
        raise ConfigError(f"--arms: {wrong}; the arms are {', '.join(ARMS)}")
    return names


def _progress(done: str) -> None:
    typer.echo(f"{time.process_time():7.1f} s  {done}", err=True)


app = command_app(main)

if __name__ == "__main__":
    app()
