"""Measure what a search of the store finds on logged runs of real agents: `python -m benchmarks.recall`.

A part of each source's sessions is the memory: the worker's stages make items of them, which lie in a Milvus Lite.
Sessions of held-out agents and tasks ask once for each of their failures, in three ways: with the error, with call and
error, and with goal and error. An item is an answer if it is about the same failure pattern or the session's task.
Questions without any answer are left out, and sources with fewer than 20 questions. `hit@5` is the share of questions
with an answer among the first five. Figures are means over sources and ways of asking. Intervals are of the bootstrap
over tasks, 95 %, and differences are paired.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple
from unittest.mock import patch

import numpy as np

from benchmarks.backfill import milvus_server
from fleetlore.config import Settings
from fleetlore.retrieval.encoder import Encoder, installed_encoder
from fleetlore.stats.hashing import stable_hash
from fleetlore.stats.text_index import TextIndex
from fleetlore.store.search import LoreSearch
from fleetlore.transcripts.read import read_sessions
from fleetlore.transcripts.session import LoggedSession
from fleetlore.wire.lore import MemoryItem
from sinks.metrics import Metrics
from sinks.milvus import MilvusStore, row_id
from streams.offline.memory_pipeline import run_logs

LOGS = Path(__file__).parents[2] / "shared" / "data" / "dev"
_HELD_OUT = 5  # one agent and one task in so many
_SESSIONS, _QUESTIONS, _LEAST_QUESTIONS = 1_500, 100, 20
_TOP = 5
_RESAMPLES = 1_000
_WORDS, _MEANING, _RIVAL = "words (default)", "words and meaning (extra)", "TF-IDF in memory"


class _Question(NamedTuple):
    """A failure that was met: ways of asking about it, and ids of the items that answer."""

    task: str
    texts: dict[str, str]
    answers: frozenset[str]


class Source(NamedTuple):
    name: str
    items: list[MemoryItem]
    questions: list[_Question]


def main(folder: Path = LOGS) -> None:
    sources = [source for path in sorted(folder.glob("*/steps.jsonl.gz")) for source in read_source(path.parent)]
    if not sources:
        raise SystemExit(f"{folder} holds no logged runs of several agents that met failures")
    hits = {_WORDS: found_by(None, sources), _RIVAL: asyncio.run(_asked(sources, _in_memory))}
    if encoder := installed_encoder():
        hits[_MEANING] = found_by(encoder, sources)
    for source in sources:
        print(f"{source.name}: {len(source.items):,} items, {len(source.questions)} questions")
    pairs = sum(len(each.items) * 3 * len(other.questions) for each in sources for other in sources if each != other)
    print(f"items of other tools that match by words: {_of_other_tools(sources) / max(1, pairs):.3f}")
    for name, own in hits.items():
        print(f"{name}: hit@{_TOP} {_shown(own)}; minus the default {_shown(own, hits[_WORDS])}")


def read_source(folder: Path) -> Iterator[Source]:
    """Yield what a folder's sessions teach and what the held-out ones ask, unless nobody can answer."""

    def asks(session: LoggedSession) -> bool:
        return 0 in (stable_hash(session.agent) % _HELD_OUT, stable_hash(session.task) % _HELD_OUT)

    sessions = sorted(read_sessions(folder), key=lambda each: stable_hash(each.session))
    known = [each for each in sessions if not asks(each)][:_SESSIONS]
    asking = [each for each in sessions if asks(each)][:_SESSIONS]
    items = asyncio.run(run_logs(known, seed=0, learn=True)).items
    tasks = {each.session: each.task for each in known}
    by_task, by_pattern = defaultdict(set), defaultdict(set)
    for item in items:
        by_pattern[item.pattern].add(item.id)
        for task in {item.task, *(tasks.get(each, "") for each in item.sessions)} - {""}:
            by_task[task].add(item.id)
    made = []
    for trajectory in asyncio.run(run_logs(asking, seed=0, learn=False)).trajectories:
        # The first call of each of the session's failures, except those that pass by themselves.
        failed = [each for each in reversed(trajectory.calls) if each.pattern is not None and not each.transient]
        for pattern, step in {each.pattern or "": each for each in failed}.items():
            if answers := by_task[trajectory.task] | by_pattern[pattern]:
                error = step.error_message or step.error_type or ""
                texts = {
                    "error": error,
                    "call": f"{step.tool} {error}\n{step.arguments}",
                    "goal": f"{trajectory.goal}\n{error}",
                }
                made.append(_Question(trajectory.task, texts, frozenset(answers)))
    if len(made) >= _LEAST_QUESTIONS:
        yield Source(folder.name, items, Random(0).sample(made, min(_QUESTIONS, len(made))))


_Hits = dict[tuple[str, str, str], list[bool]]
_Ask = Callable[[str], Awaitable[list[str]]]


def found_by(encoder: Encoder | None, sources: list[Source]) -> _Hits:
    """Return by source, way of asking and task whether each answer was found in a store with this encoder."""
    with milvus_server() as uri, patch("fleetlore.store.search.installed_encoder", lambda: encoder):
        return asyncio.run(_asked(sources, partial(_in_store, uri, encoder)))


def _of_other_tools(sources: list[Source]) -> int:
    """Return how many items are found by errors of another source, which shares no tool with theirs."""

    async def count(uri: str) -> int:
        found = 0
        for source in sources:
            ask = await _in_store(uri, None, source)
            for other in sources:
                for question in other.questions if other != source else []:
                    found += sum([len(await ask(text)) for text in question.texts.values()])
        return found

    with milvus_server() as uri, patch("fleetlore.store.search.installed_encoder", lambda: None):
        return asyncio.run(count(uri))


async def _asked(sources: list[Source], start: Callable[[Source], Awaitable[_Ask]]) -> _Hits:
    hits: _Hits = defaultdict(list)
    for source in sources:
        ask = await start(source)
        for question in source.questions:
            for way, text in question.texts.items():
                found = (await ask(text))[:_TOP]
                hits[source.name, way, question.task].append(not question.answers.isdisjoint(found))
    return hits


async def _in_store(uri: str, encoder: Encoder | None, source: Source) -> _Ask:
    async with MilvusStore(uri, "", encoder, Metrics("benchmark")) as store:
        await store.open()
        rows = [
            {
                "id": row_id(source.name, item.id),
                "tenant": source.name,
                "kind": item.kind,
                "body": item.to_json().decode(),
                "text": item.text,
            }
            for item in source.items
        ]
        await store.upsert("items", rows)
    search = LoreSearch(Settings(milvus=uri), source.name)

    async def ask(text: str) -> list[str]:
        return [item.id for _, item in await search.items(text, timeout_seconds=60.0)]

    return ask


async def _in_memory(source: Source) -> _Ask:
    index = TextIndex()
    for item in source.items:
        index.put(item.id, item.text)

    async def ask(text: str) -> list[str]:
        return [id for id, _ in index.like(text, 1e-6, _TOP)]

    return ask


def _shown(hits: _Hits, base: _Hits | None = None) -> str:
    """Return the mean, or the paired difference from `base`, with its interval."""
    cells: dict[tuple[str, str], dict[str, tuple[float, int]]] = defaultdict(dict)
    for (source, way, task), own in hits.items():
        gained = sum(own) - (sum(base[source, way, task]) if base else 0)
        cells[source, way][task] = gained, len(own)
    sums = [np.array(list(by_task.values()), dtype=np.float64) for by_task in cells.values()]
    generator = np.random.default_rng(0)
    draws = []
    for _ in range(_RESAMPLES):
        drawn = [each[generator.integers(len(each), size=len(each))].sum(axis=0) for each in sums]
        draws.append(np.mean([gained / count for gained, count in drawn]))
    mean = np.mean([each[:, 0].sum() / each[:, 1].sum() for each in sums])
    low, high = np.quantile(draws, (0.025, 0.975))
    return f"{mean:+.3f} ({low:+.3f} to {high:+.3f})"


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
