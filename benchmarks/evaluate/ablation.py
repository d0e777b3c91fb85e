"""Take parts of learning away, one at a time, on logged sessions: `python -m benchmarks.evaluate ablation --data DIR`.

Every call is foreseen before its session is learned (prequential evaluation, Dawid 1984), in one order for all
variants, and the second half of the stream counts. The linear model and the network with LoRA stand side by side; then
comes what an agent hears of both (`benchmarks.evaluate.logged.heard`). Intervals are of the mean over sessions.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import log
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
import typer
from torch import Tensor

from benchmarks.backtest.hear import at_places
from benchmarks.command import command_app
from benchmarks.evaluate.logged.figures import interval
from benchmarks.evaluate.logged.heard import heard
from fleetlore.calls.model import sigmoid
from fleetlore.cli.options import Json
from fleetlore.cli.output import print_json, print_table
from fleetlore.retrieval.encoder import StaticEncoder, shared_encoder
from fleetlore.risk.network import Base, RiskNetwork, load_base
from fleetlore.stats.hashing import stable_hash
from fleetlore.transcripts.read import read_sessions
from fleetlore.wire.trajectory import Judgment, Trajectory
from models.adapter.lora_trainer import ContrastiveTrainer, TrainerConfig
from models.calls.training import CallTraining
from models.data.auroc import auroc
from models.data.dataset import UNLABELLED, Example, collate, examples_of
from models.data.replay_buffer import ReplayBuffer
from models.judge.chain import JudgeChain
from streams.offline.memory_pipeline import run_logs

# Updates between two versions; the published one is the teacher of rehearsed sessions.
PUBLISHED = 3

# Session and position of a call.
Key = tuple[str, int]


class Said(NamedTuple):
    """A call, its log odds to fail as they were foreseen, and how it ended. `number`: of its session."""

    number: int
    session: str
    tool: str
    first: bool
    odds: float
    failed: bool


class NoRehearsal(CallTraining):
    """The linear model that learns each call once."""

    def _rehearse(self) -> None:
        pass


LINEAR: dict[str, Callable[[], CallTraining]] = {
    "all": CallTraining,
    "no rehearsal": NoRehearsal,
}
CONFIG = TrainerConfig()
NETWORK: dict[str, tuple[TrainerConfig, bool]] = {
    "all": (CONFIG, True),
    "no pairs": (replace(CONFIG, pair_weight=0.0), True),
    "no supervised contrast": (replace(CONFIG, contrast_weight=0.0), True),
    "no distillation": (replace(CONFIG, distillation_weight=0.0), True),
    "no rehearsal": (replace(CONFIG, replayed_sessions=0), True),
    "no P(in vain)": (replace(CONFIG, vain_weight=0.0), True),
    "untrained base": (CONFIG, False),
}


def main(
    data: Annotated[Path, typer.Option(exists=True, file_okay=False, help="Logged sessions, of several sources.")],
    sessions: Annotated[int, typer.Option(min=64, help="Of each source, drawn by hash.")] = 800,
    seed: Annotated[int, typer.Option(min=0, help="Of the draw and of the order.")] = 0,
    as_json: Json = False,
) -> None:
    """Print what each part of learning is worth on logged sessions."""
    torch.set_num_threads(1)
    found = {name: of_source(stream) for name, stream in streams(data, sessions, seed).items()}
    if as_json:
        print_json(found)
        return
    for source, figures in found.items():
        typer.echo(f"{source}: {figures['calls']} calls, {figures['failed']:.0%} fail")
        for part in ("linear", "network"):
            names = ("auroc", "auroc_first", "log_loss", "worse_by")
            print_table(
                [part, *(f">{name}" for name in names)],
                [(name, *(_shown(row.get(each)) for each in names)) for name, row in figures[part].items()],
            )
        _print_heard(figures["heard"])
        typer.echo(f"  signature: {figures['signature']}")


def _print_heard(found: Mapping[str, Any]) -> None:
    names = ("auroc", "log_loss", "likely", "right", "recall")
    print_table(
        ["heard", *(f">{name}" for name in names)],
        [(name, *(_shown(row[each]) for each in names)) for name, row in found["rivals"].items()],
    )
    typer.echo(f"  {found['versions']} versions; the network speaks from session {found['speaks'] or 'none'} on")
    for place, gain in found["gain"].items():
        typer.echo(f"  both save {_shown(gain)} nats a call ({place})")


def streams(data: Path, most: int, seed: int = 0) -> dict[str, list[Trajectory]]:
    """Sessions by source, in one order, at their places."""
    by: defaultdict[str, list[Any]] = defaultdict(list)
    for each in at_places(read_sessions(data)):
        by[each.source].append(each)
    found = {}
    for source, some in sorted(by.items()):
        salt = f"{seed}/" if seed else ""
        drawn = sorted(some, key=lambda each: (stable_hash(salt + each.session), each.session))[:most]
        run = asyncio.run(run_logs(drawn, seed=seed, learn=False))
        found[source] = sorted((each for each in run.trajectories if each.calls), key=lambda each: each.ended)
    return {source: some for source, some in found.items() if any(step.failed for each in some for step in each.calls)}


def of_source(stream: Sequence[Trajectory]) -> dict[str, Any]:
    """All figures of one stream."""
    encoder, judge = shared_encoder(), JudgeChain()
    judgments = [Judgment(trajectory=each, verdict=judge.judge(each)) for each in stream]
    linear = {name: line(make(), stream) for name, make in LINEAR.items()}
    network: dict[str, dict[Key, Said]] = {}
    signature: dict[str, float | None] = {}
    for name, (config, trained) in NETWORK.items():
        network[name], signature[name] = deep(ContrastiveTrainer(_base(trained), config), judgments, encoder)
    counted = [said for said in linear["all"].values() if said.number >= len(stream) // 2]
    return {
        "calls": len(counted),
        "failed": sum(said.failed for said in counted) / max(1, len(counted)),
        "linear": _table(linear, len(stream)),
        "network": _table(network, len(stream)),
        "heard": heard(judgments, _base(trained=True), encoder),
        "signature": signature,
    }


def line(training: CallTraining, stream: Sequence[Trajectory]) -> dict[Key, Said]:
    """What the linear model said of each call before it learned the session."""
    numbers = {each.id: number for number, each in enumerate(stream)}
    for each in stream:
        training.learn(each)
    return {
        (each.session, each.position): Said(
            numbers[each.session],
            each.session,
            each.tool,
            each.state == "first",
            _odds(each.fails),
            each.failed,
        )
        for each in training.version().foreseen
    }


def deep(
    trainer: ContrastiveTrainer, judgments: Sequence[Judgment], encoder: StaticEncoder
) -> tuple[dict[Key, Said], float | None]:
    """What the network said of each call before its batch was learned; and how often it names a failure's class.

    The class is that of the nearest signature among the failures of the same tool in the first half.
    """
    config = trainer.config
    replay = ReplayBuffer(400)
    found: dict[Key, Said] = {}
    everything: list[list[Example]] = [examples_of(each, encoder) for each in judgments]
    for update, start in enumerate(range(0, len(judgments), config.new_sessions)):
        rows = range(start, min(start + config.new_sessions, len(judgments)))
        network = trainer.network_of(trainer.weights())
        for number in rows:
            found |= _read(network, judgments[number].trajectory, number, everything[number])
        new = [example for number in rows for example in everything[number]]
        trainer.update(new, replay.draw(config.replayed_sessions, update))
        replay.add(new)
        if update % PUBLISHED == PUBLISHED - 1:
            trainer.resume(trainer.weights())
    half = len(judgments) // 2
    network = trainer.network_of(trainer.weights())
    return found, _named(network, everything[:half], everything[half:])


def _read(network: RiskNetwork, trajectory: Trajectory, number: int, examples: Sequence[Example]) -> dict[Key, Said]:
    """Windows overlap by half, and each call is labelled in one of them only."""
    found: dict[Key, Said] = {}
    for example in examples:
        with torch.inference_mode():
            odds = network(collate([example]).vectors).step[0, 1::2].tolist()
        start = int(example.key[32:], 16)
        for place, label in enumerate(example.failed.tolist()):
            if label != UNLABELLED:
                key = trajectory.id, start + place
                found[key] = Said(
                    number, trajectory.id, example.tools[place], start + place == 0, odds[place], bool(label)
                )
    return found


def _named(network: RiskNetwork, known: list[list[Example]], asked: list[list[Example]]) -> float | None:
    one, classes = _signatures(network, known)
    other, truth = _signatures(network, asked)
    right = total = 0
    for tool in sorted(other):
        if tool in one:
            nearest = (torch.stack(other[tool]) @ torch.stack(one[tool]).T).argmax(dim=1).tolist()
            right += sum(classes[tool][place] == each for place, each in zip(nearest, truth[tool], strict=True))
            total += len(nearest)
    return round(right / total, 4) if total else None


def _signatures(
    network: RiskNetwork, sessions: list[list[Example]]
) -> tuple[dict[str, list[Tensor]], dict[str, list[str]]]:
    found: defaultdict[str, list[Tensor]] = defaultdict(list)
    classes: defaultdict[str, list[str]] = defaultdict(list)
    for example in (each for some in sessions for each in some):
        if not (example.failed == 1).any():
            continue
        with torch.inference_mode():
            signature = network(collate([example]).vectors).signature[0, 1::2]
        for place in (example.failed == 1).nonzero()[0].tolist():
            found[example.tools[place]].append(signature[place])
            classes[example.tools[place]].append(example.contrast[place])
    return found, classes


def _table(variants: Mapping[str, Mapping[Key, Said]], sessions: int) -> dict[str, dict[str, Any]]:
    """Figures of each variant over the second half; `worse_by`: nats a call that it loses to `all`."""
    whole = _losses(variants["all"], sessions)
    table: dict[str, dict[str, Any]] = {}
    for name, said in variants.items():
        counted = [each for each in said.values() if each.number >= sessions // 2]
        first = [each for each in counted if each.first]
        losses = _losses(said, sessions)
        shared = [key for key in losses if key in whole]
        table[name] = {
            "auroc": auroc([each.odds for each in counted], [each.failed for each in counted]),
            "auroc_first": auroc([each.odds for each in first], [each.failed for each in first]),
            "log_loss": sum(losses.values()) / max(1, len(losses)),
        }
        if name != "all":
            table[name]["worse_by"] = interval([key[0] for key in shared], [losses[key] - whole[key] for key in shared])
    return table


def _losses(said: Mapping[Key, Said], sessions: int) -> dict[Key, float]:
    return {
        key: -log(max(1e-6, sigmoid(each.odds) if each.failed else 1.0 - sigmoid(each.odds)))
        for key, each in said.items()
        if each.number >= sessions // 2
    }


def _odds(chance: float) -> float:
    return log(max(chance, 1e-9) / max(1.0 - chance, 1e-9))


def _base(trained: bool) -> Base:
    base = load_base()
    if trained:
        return base
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return replace(base, network=RiskNetwork().eval())


def _shown(value: float | dict[str, float] | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, dict):
        return f"{value['mean']:+.4f} ({value['low']:+.4f} to {value['high']:+.4f})"
    return f"{value:.4f}"


app = command_app(main)
