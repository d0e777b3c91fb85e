"""Build the frozen base that every adapter starts from: `python -m benchmarks.pretrain`.

It learns from random sessions in many scripted worlds (`benchmarks.demo.world`), each with rules of its own: so it
learns how sessions go (an error without a remedy comes again, a remedy helps), not what is right in one world. Three
domains are left out, and no world that a demo or a test uses is among the seeds. Deterministic; under 3 minutes on one
core.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import torch

import fleetlore
from benchmarks.rollouts import rollouts
from fleetlore.fingerprint.fingerprint import call_id, failure_of
from fleetlore.retrieval.encoder import StaticEncoder, shared_encoder
from fleetlore.risk.network import base_to_bytes
from fleetlore.wire.trajectory import Judgment, Step, Trajectory, Verdict
from models.adapter.pretrain import pretrain
from models.data.dataset import Example, examples_of
from models.promotion.metrics import predict

WORLD_SEEDS = range(9000, 9024)
UNSEEN_WORLD_SEEDS = range(9100, 9104)
DOMAINS = ("database", "files", "git", "python")
SESSIONS_PER_WORLD = 160
STEPS = 900
SEED = 20


def world_judgments(
    world_seed: int, sessions: int, *, seed: int = 0, domains: Sequence[str] | None = None, tenant: str = "default"
) -> Iterator[Judgment]:
    """Random sessions of a scripted world, judged by the world's own outcome."""
    return judged(rollouts(world_seed, sessions, seed=seed, domains=domains), tenant)


def judged(sessions: Iterable[dict[str, Any]], tenant: str = "default") -> Iterator[Judgment]:
    """Sessions as plain data, judged by their own outcome."""
    for session in sessions:
        trajectory = Trajectory(
            tenant=tenant,
            session=session["session"],
            agent=session["agent"],
            task=session["task"],
            goal=session["goal"],
            started=0.0,
            ended=0.0,
            ending=session["outcome"],
            reward=1.0 if session["outcome"] == "success" else 0.0,
            steps=tuple(_step(number, step) for number, step in enumerate(session["steps"])),
        )
        probability = 1.0 if session["outcome"] == "success" else 0.0
        yield Judgment(
            trajectory=trajectory,
            verdict=Verdict(label=session["outcome"], probability=probability, source="reward", version="world"),
        )


def world_episodes(encoder: StaticEncoder, world_seed: int, sessions: int, **options: Any) -> list[Example]:
    """The same as episodes; `options` are those of `world_judgments`."""
    judgments = world_judgments(world_seed, sessions, **options)
    return [episode for judgment in judgments for episode in examples_of(judgment, encoder)]


def _step(number: int, step: dict[str, Any]) -> Step:
    failure = None
    if step["error_type"] is not None:
        failure = failure_of(step["tool"], step["arguments"], step["error_type"], step["error_message"])
    return Step(
        sequence=number + 1,
        role="tool",
        tool=step["tool"],
        arguments=orjson.dumps(step["arguments"]).decode(),
        result=step["result"],
        error_type=step["error_type"],
        error_message=step["error_message"],
        call=call_id(step["tool"], step["arguments"]),
        family=failure.family if failure else None,
        pattern=failure.class_ if failure else None,
        exact=failure.exact if failure else None,
        transient=failure.transient if failure else False,
    )


def main() -> None:
    torch.set_num_threads(1)
    began = time.monotonic()
    encoder = shared_encoder()
    episodes = [e for seed in WORLD_SEEDS for e in world_episodes(encoder, seed, SESSIONS_PER_WORLD, domains=DOMAINS)]
    base = pretrain(episodes, STEPS, seed=SEED)
    data = base_to_bytes(base.network)
    figures = {}
    for name, domains in (("known domains", DOMAINS), ("all domains", None)):
        unseen = [e for seed in UNSEEN_WORLD_SEEDS for e in world_episodes(encoder, seed, 100, domains=domains)]
        predictions = predict(base.network, unseen)
        figures[name] = (predictions.auroc, predictions.cross_entropy, len(predictions.failed))
    folder = Path(fleetlore.__file__).parent / "base"
    folder.mkdir(exist_ok=True)
    (folder / "procedural.safetensors").write_bytes(data)
    (folder / "README.md").write_text(card(data, len(episodes), figures, encoder))
    print(
        f"{len(data):,} bytes, sha256 {hashlib.sha256(data).hexdigest()}, {time.monotonic() - began:.0f} s, {figures}"
    )


def card(data: bytes, episodes: int, figures: dict[str, tuple[float, float, int]], encoder: StaticEncoder) -> str:
    """The model card that ships beside the weights."""
    rows = "\n".join(f"| unseen worlds, {name} | {a:.3f} | {b:.3f} | {n:,} |" for name, (a, b, n) in figures.items())
    return f"""# Base of the procedural memory

A causal transformer (2 blocks, width 128, 4 heads, 0.44 M parameters, half precision) that reads a session's goal,
actions and outcomes and predicts which step fails. It is frozen; what a fleet learns is a LoRA adapter over it.

| | |
| --- | --- |
| sha256 | `{hashlib.sha256(data).hexdigest()}` |
| encoder | `{encoder.name}`, sha256 `{encoder.sha256}` |
| built by | `python -m benchmarks.pretrain`, from {episodes:,} random sessions in {len(WORLD_SEEDS)} scripted worlds |
| domains | {", ".join(DOMAINS)}; no other domain of the scripted worlds was seen |

| held out | AUROC of P(step fails) | cross-entropy | steps |
| --- | --- | --- | --- |
{rows}

An unseen world has other right answers under the same tools, so the base can only know how sessions go in general.
It must not be used alone: without an adapter the risk model abstains. It has never seen a real tool.
"""


if __name__ == "__main__":
    main()
