"""Read a model's notes blind beside the pipeline's own: which of them help, and which are wrong.

    python -m benchmarks.distilled write --data DIR --out DIR      # asks the model: an hour, answers are kept
    python -m benchmarks.distilled count --out DIR                 # once verdicts.csv has a word in each row

Held-out failed sessions are drawn by a seed, each with the nearest session that solved its task. The model reads both
(`models.llm.distiller`), and so does the pipeline's own distiller, and each says what it learned of the failed one or
of both. `write` mixes what they say under numbers and hides which of them said it (in `key.json`, not to be opened
before the verdicts stand); `count` puts the two together.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Annotated, NamedTuple

import typer
from msgspec.structs import replace

from benchmarks.advice_sheet.verdicts import RUBRICS, Reading, shares
from benchmarks.judge_and_distiller import read_trajectories
from benchmarks.living.llm.model import WORKERS
from benchmarks.living.llm.server import serving
from benchmarks.living.llm.weights import gguf
from fleetlore.advice.changes import change_tip
from fleetlore.advice.gate import all_of
from fleetlore.config import Settings
from fleetlore.stats.hashing import drawn
from fleetlore.wire.trajectory import Judgment
from models.cases import telling
from models.distil.distiller import distil
from models.judge.chain import JudgeChain
from models.judge.session_state import notable
from models.llm.client import Answers, Client
from models.llm.distiller import LlmDistiller
from models.llm.judge import brief, recording
from models.memory.candidate import Candidate
from models.memory.identities import without_identities
from models.memory.item_state import ItemState

SOURCES = ("intercode", "mint", "tau1")
# Of the tasks; and characters of both recordings, for a small model's context.
HELD_OUT, MOST_CHARACTERS = 0.2, 2_600
SHOWN = 500

app = typer.Typer(pretty_exceptions_enable=False)


class Pair(NamedTuple):
    """A session that failed and the one that solved its task."""

    source: str
    failed: Judgment
    helped: Judgment


class Said(NamedTuple):
    """What one of the two distillers said of a pair."""

    by: str
    pair: Pair
    candidate: Candidate


@app.command()
def write(
    data: Annotated[Path, typer.Option(help="Folder of logged runs.")],
    out: Annotated[Path, typer.Option(help="Folder for the sheet, the file for the verdicts, the key and answers.")],
    model: Annotated[str, typer.Option(help="One that is fetched and runs here.")] = "qwen2.5-coder-1.5b",
    pairs: Annotated[int, typer.Option(help="Pairs of sessions that are read.")] = 60,
    n: Annotated[int, typer.Option(help="Items to read of each distiller.")] = 40,
    seed: int = 0,
) -> None:
    """Write the sheet."""
    out.mkdir(parents=True, exist_ok=True)
    found = _drawn(data, seed)
    chosen = found[:pairs]
    with serving(gguf(model)) as urls:
        notes = asyncio.run(_notes(chosen, model, urls, out / "answers.db"))
    own = [Said("pipeline", pair, each) for pair in found for each in _own(pair)]
    rng = Random(seed)
    sheet = [each for some in (notes, own) for each in rng.sample(some, min(n, len(some)))]
    rng.shuffle(sheet)
    ids = [f"{number:03d}" for number in range(1, len(sheet) + 1)]
    rubric = "\n".join(f"- **{word}**: {meaning}" for word, meaning in RUBRICS["items"].items())
    entries = [f"## {id}\n\n{_entry(each)}" for id, each in zip(ids, sheet, strict=True)]
    (out / "sheet.md").write_text("\n\n".join((f"# Items\n\n{rubric}", *entries)) + "\n")
    Reading("items", "distilled", seed, dict.fromkeys(ids, "")).write(out / "verdicts.csv")
    (out / "key.json").write_text(json.dumps({id: each.by for id, each in zip(ids, sheet, strict=True)}))
    silent = len(chosen) - len({each.pair.failed.trajectory.id for each in notes})
    of = f"{len(chosen)} pairs ({silent} gave none)"
    typer.echo(f"{len(notes)} notes of {of}, {len(own)} of the pipeline's own of {len(found)}")


@app.command()
def count(out: Annotated[Path, typer.Option(help="Folder that `write` wrote to.")]) -> None:
    """Count the verdicts by who said it."""
    reading, key = Reading.read(out / "verdicts.csv"), json.loads((out / "key.json").read_text())
    for by in sorted(set(key.values())):
        of = {id: verdict for id, verdict in reading.verdicts.items() if key[id] == by}
        typer.echo(f"{by}:\n{shares(Reading(reading.what, reading.source, reading.seed, of))}")


def _drawn(data: Path, seed: int) -> list[Pair]:
    """Of each source in turn, one of a task."""
    found: list[list[Pair]] = []
    for source in SOURCES:
        chain = JudgeChain()
        solved: defaultdict[str, list[Judgment]] = defaultdict(list)
        failed: defaultdict[str, list[Judgment]] = defaultdict(list)
        for trajectory in read_trajectories(data / source):
            if drawn(f"{seed}/{trajectory.task}", HELD_OUT):
                judgment = Judgment(trajectory=trajectory, verdict=chain.judge(trajectory))
                if notable(judgment.verdict, "success"):
                    solved[trajectory.task].append(judgment)
                elif notable(judgment.verdict, "failure") and telling(trajectory.calls):
                    failed[trajectory.task].append(judgment)
        rng = Random(seed)
        both = [task for task in sorted(failed) if solved[task]]
        pairs = [Pair(source, rng.choice(failed[task]), rng.choice(solved[task])) for task in both]
        short = [pair for pair in pairs if sum(map(_characters, pair[1:])) <= MOST_CHARACTERS]
        rng.shuffle(short)
        found.append(short)
    longest = max(map(len, found), default=0)
    return [some[place] for place in range(longest) for some in found if place < len(some)]


def _characters(judgment: Judgment) -> int:
    return len(recording(brief(judgment.trajectory)))


async def _notes(pairs: Sequence[Pair], model: str, urls: Sequence[str], answers: Path) -> list[Said]:
    """What the model says, asked as a worker asks it."""
    found: list[Said] = []

    async def ask(url: str, some: Sequence[Pair]) -> None:
        settings = Settings(
            llm_url=f"{url}/v1", llm_model=model, llm_timeout_seconds=600.0, llm_tokens_per_minute=10**9,
            llm_tokens_per_day=10**9,
        )  # fmt: skip
        with closing(Answers(answers)) as kept:
            client = Client(settings, kept, lambda result, tokens: typer.echo(f"{result} {tokens}", err=True))
            distiller = LlmDistiller(client)
            for pair in some:
                notes = await distiller.ask(pair.failed, pair.helped)
                failed = pair.failed.trajectory
                told = () if notes is None else notes.candidates(failed)
                found.extend(Said("model", pair, each) for each in without_identities(told, failed))
            await client.close()

    await asyncio.gather(*(ask(urls[place % len(urls)], pairs[place::WORKERS]) for place in range(WORKERS)))
    return sorted(found, key=lambda each: (each.pair.failed.trajectory.id, each.candidate.item_id))


def _own(pair: Pair) -> Iterable[Candidate]:
    """Recoveries of either session: what else the pipeline makes is a way of the whole task, and no correction."""
    for judgment in pair[1:]:
        for each in without_identities(distil(judgment), judgment.trajectory):
            if each.kind == "recovery" and each.side == "success":
                yield each


def _entry(said: Said) -> str:
    """What it says as an agent reads it, the call that it is about, and how the session that solved the task called."""
    state, candidate = ItemState.empty(), said.candidate
    for number, agent in enumerate(("a", "b")):  # as if two agents had found it at two goals: else it is no item yet
        state.merge(_by(candidate, agent, number))
    item = state.to_item()
    assert item is not None
    calls = [*said.pair.failed.trajectory.calls, *said.pair.helped.trajectory.calls]
    about = next((call for call in calls if call.pattern == candidate.pattern), calls[0])
    worked = [call.arguments for call in said.pair.helped.trajectory.calls if not call.failed][-2:]
    lines = [
        f"goal: {said.pair.failed.trajectory.goal[:SHOWN]}",
        f"call that failed: {about.tool}({about.arguments[:SHOWN]})",
        f"error: {(about.error_message or '')[:SHOWN]}",
        *(f"a call of the solved session: {each[:SHOWN]}" for each in worked),
        f"SAYS: {all_of(change_tip(item, 'got past').parts)}",
    ]
    return "\n".join(f"    {line}" for text in lines for line in text.splitlines())


def _by(candidate: Candidate, agent: str, goal: int) -> Candidate:
    return replace(candidate, agent=agent, session=agent, goal=goal)


if __name__ == "__main__":
    app()
