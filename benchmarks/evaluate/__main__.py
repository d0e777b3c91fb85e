"""Run agents with and without a memory in worlds whose checkers are programs: `python -m benchmarks.evaluate tools`.

`sql-log`, `python-log` and `bash-log` are made of logs of real agents, and have options of their own
(`benchmarks.evaluate.logged.command`).
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from benchmarks.command import command_app
from fleetlore.cli.options import Json
from fleetlore.cli.output import print_json, print_table
from fleetlore.errors import ConfigError

if TYPE_CHECKING:
    from benchmarks.evaluate.arms.memory import Memory
    from benchmarks.evaluate.worlds.world import World

ARMS = ("none", "log", "raw-episodes", "reasoning-bank", "text", "weights", "both")
# Not run unless they are named: what text is worth without its content, and without each of its parts.
CONTROLS = ("placebo", "no-remedies", "no-losses", "no-strategies", "no-patterns")
WORLDS = ("tools", "services", "bfcl")
LONG_WORLDS = ("tools", "services")
# Measured sessions where tasks take a tenth of the steps.
SHORT_TASKS = 48


def evaluate(
    world: Annotated[str, typer.Argument(metavar="WORLD", help=f"One of: {', '.join(WORLDS)}.")],
    arms: Annotated[
        str, typer.Option(help=f"Which arms, with commas between them; also {', '.join(CONTROLS)}.")
    ] = ",".join(ARMS),
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Worlds, each with a past of its own.")] = 5,
    orders: Annotated[int, typer.Option(min=1, max=100, help="Shuffled orders of the tasks, of each seed.")] = 3,
    measured: Annotated[
        int,
        typer.Option(min=0, help="Sessions that each arm lives through, of each order; 0: 16 long or 48 short ones."),
    ] = 0,
    forgetting: Annotated[int, typer.Option(min=0, max=100, help="Seeds over which forgetting is measured.")] = 2,
    quick: Annotated[
        bool, typer.Option("--quick", help="A smoke run: one seed, few sessions. Proves nothing.")
    ] = False,
    shortcuts: Annotated[
        bool,
        typer.Option("--shortcuts", help="In `tools`: forbidden calls that pay, and how often each arm makes them."),
    ] = False,
    immunity: Annotated[
        bool, typer.Option("--immunity", help="Repeats of known failures instead: a fleet against isolated agents.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Measure what memory is worth to agents that can be wrong. Same steps, seeds and candidates for every arm."""
    import torch

    torch.set_num_threads(1)  # arms are compared by CPU time, and several threads would spin against each other
    if immunity:
        _immunity(seeds, quick, as_json)
        return
    from benchmarks.evaluate.figures import BUDGETS
    from benchmarks.evaluate.report import lines, report
    from benchmarks.evaluate.runner import Plan
    from benchmarks.evaluate.runner import evaluate as run

    plan = Plan(arms=_chosen(arms), seeds=tuple(range(seeds)), orders=orders, forgetting_seeds=forgetting)
    if measured or world not in LONG_WORLDS:
        plan = replace(plan, measured=measured or SHORT_TASKS)
    if quick:
        plan = replace(
            plan,
            seeds=(0,),
            orders=1,
            history=4,
            measured=2,
            forgetting_seeds=1,
            old_updates=1,
            new_updates=1,
            probed=3,
        )
    began = time.process_time()
    progress = _Progress()
    results = asyncio.run(run(_world(world, shortcuts), plan, memories, progress))
    found = report(world, plan, results, time.process_time() - began)
    if as_json:
        print_json(found)
        return
    names = (
        "arm",
        "steps / shortest",
        *(f"within {budget:g} x" for budget in BUDGETS),
        "success",
        "recovery",
        "forgetting pp",
        "gain pp",
        "guard violations / session",
        "overhead %",
    )
    print_table([names[0], *(f">{name}" for name in names[1:])], lines(found))
    print_table(
        ("bar", ">figure", "~should be", "met"),
        [
            (
                name,
                "-" if bar["figure"] is None else f"{bar['figure']:.3f}",
                bar["bar"],
                "yes" if bar["met"] else "no",
            )
            for name, bar in found["bars"].items()
        ],
    )
    past = found["past"]
    typer.echo(f"The past: {past['success']:.0%} of its sessions succeed, {past['failed']:.0%} of its calls fail,")
    typer.echo(f"{past['silent']:.0%} of them work and lead nowhere.")
    typer.echo(f"{past['solved_before']:.0%} of the measured sessions are at a task that it has solved.")
    typer.echo(f"{found['cpu_seconds']:.0f} s of CPU")


def memories(names: Sequence[str]) -> Mapping[str, Memory]:
    """Fresh memories. `both` is made of the arms `text` and `weights` if they are there, so that they learn once."""
    from benchmarks.evaluate.arms.memory import LogOnly, NoMemory
    from benchmarks.evaluate.arms.raw_episodes import RawEpisodes
    from benchmarks.evaluate.arms.reasoning_bank import ReasoningBank
    from benchmarks.evaluate.arms.weights import Weights
    from benchmarks.evaluate.fleet_arm import PARTS, FleetBoth, FleetText, OtherTask
    from fleetlore.retrieval.encoder import shared_encoder

    encoder = shared_encoder()
    makers: dict[str, Callable[[], Memory]] = {
        "none": NoMemory,
        "log": LogOnly,
        "raw-episodes": lambda: RawEpisodes(encoder),
        "reasoning-bank": lambda: ReasoningBank(encoder),
        "text": FleetText,
        "weights": Weights,
        "both": lambda: FleetBoth(FleetText(), Weights()),
        "placebo": OtherTask,
        **{f"no-{part}": partial(FleetText, part) for part in PARTS},
    }
    made = {name: makers[name]() for name in names}
    text, weights = made.get("text"), made.get("weights")
    if "both" in made and isinstance(text, FleetText) and isinstance(weights, Weights):
        made["both"] = FleetBoth(text, weights, shares=True)
    return made


def _chosen(arms: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in arms.split(",") if name.strip()))
    unknown = [name for name in names if name not in (*ARMS, *CONTROLS)]
    if unknown or not names:
        known = ", ".join((*ARMS, *CONTROLS))
        raise ConfigError(f"--arms: {', '.join(unknown) or 'nothing'} is no arm; the arms are {known}")
    return names


def _world(name: str, shortcuts: bool = False) -> Callable[[int], World]:
    if shortcuts and name != "tools":
        raise ConfigError(f"--shortcuts: only the world tools has forbidden calls, not {name}")
    if name == "tools":
        from benchmarks.evaluate.worlds.tool_world import ToolWorld

        return partial(ToolWorld, shortcuts=shortcuts)
    if name == "services":
        from benchmarks.evaluate.worlds.service_world import ServiceWorld

        return ServiceWorld
    if name == "bfcl":
        from benchmarks.evaluate.worlds.bfcl import BfclWorld

        return BfclWorld
    raise ConfigError(f"there is no world {name!r}; the worlds are {', '.join(WORLDS)}")


class _Progress:
    """One line for each thing that is done, on stderr."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self, done: str) -> None:
        typer.echo(f"{time.monotonic() - self._began:7.1f} s  {done}", err=True)


def _immunity(seeds: int, quick: bool, as_json: bool) -> None:
    from benchmarks.evaluate.immunity import BAR, immunity

    progress = _Progress()
    sizes = (20,) if quick else (100, 1_000)
    found = [asyncio.run(immunity(agents, seed, progress)) for agents in sizes for seed in range(1 if quick else seeds)]
    if as_json:
        rows = [asdict(each) | {"fewer": round(each.fewer, 4), "bar": BAR, "met": each.fewer >= BAR} for each in found]
        print_json({"world": "tools", "immunity": rows})
        return
    print_table(
        [f">{name}" for name in ("agents", "seed", "isolated", "fleet", "fewer", "success alone", "as a fleet")],
        [
            (
                str(each.agents),
                str(each.seed),
                str(each.isolated),
                str(each.fleet),
                f"{each.fewer:.0%}",
                f"{each.isolated_success:.0%}",
                f"{each.fleet_success:.0%}",
            )
            for each in found
        ],
    )


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1].endswith("-log"):
        from benchmarks.evaluate.logged import command

        command.app(sys.argv[1:], prog_name="python -m benchmarks.evaluate")
    command_app(evaluate)()
