"""Give the agents' own model weights from what the fleet lived through: `python -m benchmarks.living.own_model`.

    python -m benchmarks.living.own_model --world DIR --answers FILE --out DIR

The past of `benchmarks.living sql` is played by the 1.5B model (or its answers are kept), and the 0.5B model makes a
call of its own at each of its tasks. Where that fails and another's worked, the other's is what should have been said:
first, and after the failure. On four fifths of the tasks a LoRA of the 0.5B model learns that by peft; on the others a
gate asks whether the call that worked has become the likelier one beside the one that failed. What passes is
published by `fleetlore adapters publish-llm`, followed, converted to GGUF, and served by llama.cpp beside the bare
model. Both meet the same states after a failure of the bare model, told nothing, what fleetlore says, and the two
nearest past sessions. Where two versions passed, the first is rolled back to.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from benchmarks.embedded_broker import EmbeddedBroker
from benchmarks.living.agent import CALLS, Played, opening, propose, reply
from benchmarks.living.arms import Arms
from benchmarks.living.command import MOST_PAST
from benchmarks.living.figures import Past, of_states
from benchmarks.living.llm import own_weights
from benchmarks.living.llm.model import Answers, Message, Model
from benchmarks.living.past import play_past, seed_of
from benchmarks.living.sql.world import SqlWorld
from benchmarks.living.states import State, calls_after_failure
from benchmarks.living.world import Call, Ran, World, drawn, split
from fleetlore.adapters.signatures import create_signing_key
from fleetlore.cli.output import print_json
from fleetlore.lora.follow import LoraFollower
from fleetlore.wire.topics import topic
from sinks.adapter_publisher import ADAPTER_TOPICS

NAME, TEACHER, TENANT = "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b", "default"
# One task of so many is kept for the gate.
KEPT_FOR_GATE = 5
EPOCHS = 2
# What the model is told, without weights and with them.
ARMS = ("none", "ours", "raw")
FOLLOW_SECONDS = 60.0


class Lesson(NamedTuple):
    """What a model should say after these messages, and what failed there instead."""

    task: str
    messages: tuple[Message, ...]
    worked: str
    failed: str


def lessons(world: World, past: Sequence[Played], model: Model, seed: int) -> list[Lesson]:
    """Two of each call that worked: it is to be said first, and after the model's own first call, where that failed.

    Look-ups are left out: weights are to know the place.
    """
    found = []
    for played in past:
        task = played.task
        worked = dict.fromkeys(str(each.call) for each in played.steps if _is_work(world, each.call, each.ran))
        if not worked:
            continue
        before = opening(world, task, "")
        call = propose(world, model, before, seed_of(seed, task))
        ran = world.run(task, call)
        if _is_work(world, call, ran):
            continue
        after = [*before, ("assistant", str(call)), reply(task, ran, "", CALLS - 1)]
        found += [Lesson(task.id, tuple(said), each, str(call)) for each in worked for said in (before, after)]
    return found


def _is_work(world: World, call: Call, ran: Ran) -> bool:
    return not ran.error and not world.is_look_up(call)


def run(
    world: Annotated[Path, typer.Option(help="Folder of *.db and questions.json.")],
    answers: Annotated[Path, typer.Option(help="File of SQLite with the answers of models.")],
    out: Annotated[Path, typer.Option(help="Folder of the trained versions: a rerun trains none that is there.")],
    states: Annotated[int, typer.Option(min=1, help="Held-out tasks.")] = 78,
    seed: int = 0,
) -> None:
    """Train, gate, publish, serve, measure and roll back."""
    made = SqlWorld(world)
    kept = Answers(answers)
    past_tasks, held_out = split(made.tasks, seed, MOST_PAST)
    with Model(TEACHER, kept) as teacher, Model(NAME, kept) as pupil:
        past = play_past(made, past_tasks, teacher, seed)
        found = lessons(made, past, pupil, seed)
        gate = [each for each in found if drawn(seed, "gate", each.task) % KEPT_FOR_GATE == 0]
        learned = [each for each in found if each not in gate]
        versions = _versions(out, learned, gate)
        with tempfile.TemporaryDirectory() as folder:
            report, adapter = _followed(Path(folder), versions)
            report["lessons"] = {"learned": len(learned), "gate": len(gate)}
            if adapter is not None:
                arms = Arms(made, past, teacher, seed).make
                told = {arm: arms[arm] for arm in ARMS}
                states_found: list[State] = []
                for weights, file in (("", None), ("weights, ", adapter)):
                    with Model(NAME, kept, adapter=file) as model:
                        found_now = calls_after_failure(made, held_out[:states], model, told, seed, pupil)
                        states_found += [each._replace(arm=weights + each.arm) for each in found_now]
                report["after_failure"] = of_states(made, Past(made, past), states_found, "works")
    print_json(report)


def _versions(out: Path, learned: Sequence[Lesson], gate: Sequence[Lesson]) -> list[Path]:
    """Of half the training and of all of it."""
    if kept := sorted(out.glob("version-*/gate.json")):  # written last
        return [each.parent for each in kept]
    said = [(each.messages, each.worked) for each in learned]
    asked = [(each.messages, each.worked, each.failed) for each in gate]
    return own_weights.train(own_weights.trainable(NAME), said, asked, EPOCHS, out)


def _followed(folder: Path, versions: Sequence[Path]) -> tuple[dict[str, Any], Path | None]:
    """Publish what passes, follow it, roll back; the report and the served one as GGUF."""
    gates = {each: json.loads((each / "gate.json").read_text()) for each in versions}
    report: dict[str, Any] = {"versions": list(gates.values())}
    passed = [each for each, gate in gates.items() if gate["passed"]]
    if not passed:
        return report, None
    with EmbeddedBroker() as broker:
        return report, asyncio.run(_published(folder, own_weights.trainable(NAME), passed, broker.address, report))


async def _published(folder: Path, base: Path, passed: Sequence[Path], broker: str, report: dict[str, Any]) -> Path:
    key = create_signing_key(folder / "key")
    environment = {
        "FLEETLORE_SIGNING_KEY": str(folder / "key"), "FLEETLORE_PUBLIC_KEY": key.public_base64,
        "FLEETLORE_BROKER": broker, "FLEETLORE_TENANTS": TENANT, "FLEETLORE_WEIGHTS_STORAGE": f"file://{folder}/shared",
    }  # fmt: skip
    os.environ.update(environment)
    admin = AIOKafkaAdminClient(bootstrap_servers=broker)
    await admin.start()
    await admin.create_topics([NewTopic(topic(TENANT, name), 1, 1) for name in (*ADAPTER_TOPICS, "adapters.acks")])
    await admin.close()
    followed = []
    async with LoraFollower(folder / "kept", tenant=TENANT) as follower:
        for each in passed:
            gate = ("--gate", str(each / "gate.json"))
            said = _adapters("publish-llm", str(each), "--base", str(base), "--base-name", NAME, *gate, "--json")
            followed.append(json.loads(said)["version"])
            await _runs(follower, followed[-1])
        assert follower.current is not None
        file = own_weights.as_gguf(follower.current.path, folder / f"lora-{followed[-1][:12]}.gguf")
        if len(followed) > 1:
            _adapters("rollback", followed[0], "--adapter", "llm")
            await _runs(follower, followed[0])
        report["followed"] = [*followed, *followed[:1][: len(followed) - 1]]
    return file


async def _runs(follower: LoraFollower, version: str) -> None:
    async with asyncio.timeout(FOLLOW_SECONDS):
        while follower.current is None or follower.current.manifest.version != version:
            await asyncio.sleep(0.1)


def _adapters(*words: str) -> str:
    """What `fleetlore adapters` says."""
    command = [sys.executable, "-c", "from fleetlore.cli.main import main; main()", "adapters", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    typer.run(run)
