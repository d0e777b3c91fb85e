"""Measure what real models do with advice: `python -m benchmarks.living sql --world DIR`.

The model plays half of each place's tasks without advice; these sessions are the fleet's past. It meets the other tasks
in every arm (`benchmarks.living.arms`), one call at a time (`first_call`, `after_failure`) and as whole `sessions`.
Each state and session is drawn three times. `minus_none` is of `works` at the first call, and of `same_call` after a
failure.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import typer

from benchmarks.living.agent import Played, play
from benchmarks.living.arms import ARMS, Arms
from benchmarks.living.figures import Past, of_sessions, of_states
from benchmarks.living.llm.model import Model
from benchmarks.living.past import play_past, seed_of
from benchmarks.living.states import DRAWS, Makes, State, calls_after_failure, first_calls
from benchmarks.living.world import World, split
from fleetlore.errors import ConfigError

# The most tasks of each group in the past.
MOST_PAST = 8


def chosen(arms: str) -> tuple[str, ...]:
    """Arms by names with commas between them; raises ConfigError for another name."""
    found = tuple(dict.fromkeys(each.strip() for each in arms.split(",") if each.strip()))
    if unknown := [each for each in found if each not in ARMS]:
        raise ConfigError(f"--arms: {', '.join(unknown)} is no arm; the arms are {', '.join(ARMS)}")
    return found


def measure(
    world: World,
    model: Model,
    arms: Sequence[str],
    *,
    states: int,
    sessions: int,
    seed: int,
    keep: Path | None = None,
    draws: int = DRAWS,
) -> dict[str, Any]:
    """The report, of so many held-out tasks for the states and for whole sessions; transcripts are kept in `keep`.
    `draws`: how often the model is asked at each state, and plays each session.
    """
    began = time.monotonic()

    def done(what: str) -> None:
        typer.echo(f"{time.monotonic() - began:7.1f} s  {what}; the model was asked {model.asked} times", err=True)

    past_tasks, held_out = split(world.tasks, seed, MOST_PAST)
    past = play_past(world, past_tasks, model, seed)
    done(f"{len(past)} past sessions")
    made = Arms(world, past, model, seed).make
    makes = {arm: made[arm] for arm in arms if arm in made}
    first = first_calls(world, held_out[:states], model, makes, seed, draws)
    done(f"{len(first)} first calls")
    after = calls_after_failure(world, held_out[:states], model, makes, seed, draws)
    done(f"{len(after)} calls after a failure")
    played = _sessions(world, model, makes, sessions, seed, draws)
    done(f"{sum(map(len, played.values()))} sessions")
    known = Past(world, past)
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        kept: dict[str, Sequence[State | Played]] = {"past": past, "first_call": first, "after_failure": after}
        for name, some in (kept | {f"sessions.{arm}": each for arm, each in played.items()}).items():
            rows = [msgspec.json.encode(each._asdict()) for each in some]
            (keep / f"{name}.jsonl").write_bytes(b"".join(row + b"\n" for row in rows))
    return {
        "model": model.name,
        "seed": seed,
        "past": {"sessions": len(past), "solved": sum(each.solved for each in past)},
        "first_call": of_states(world, known, first, "works"),
        "after_failure": of_states(world, known, after, "same_call"),
        "sessions": of_sessions(known, played),
    }


def _sessions(world: World, model: Model, makes: Makes, most: int, seed: int, draws: int) -> dict[str, list[Played]]:
    """By arm. The arms run side by side, the sessions of one in turn: what fleetlore says is a function of that."""
    tasks = split(world.tasks, seed, MOST_PAST).held_out[:most]

    def of_arm(arm: str) -> list[Played]:
        return [
            play(world, each, model, makes[arm](each, f"session/{each.id}/{draw}"), seed_of(seed, each, draw))
            for each, draw in product(tasks, range(draws))
        ]

    if not tasks:
        return {}
    with ThreadPoolExecutor(len(makes)) as pool:
        return dict(zip(makes, pool.map(of_arm, makes), strict=True))
