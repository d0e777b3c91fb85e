"""Measure what a search of the store finds on logged runs of real agents, and how long it takes.

*What is found.* A part of each source's sessions is the memory: the worker's stages make items of them, which lie in a
Milvus Lite. Sessions of held-out agents and tasks ask, once for each of their failures, in three ways: with the error,
with call and error, and with goal and error. An item is an answer where it is about the same failure pattern, or about
the session's task (its own, or that of a session behind it); questions without any answer are left out, and sources
with fewer than 20 questions. `hit@5` is the share of questions with an answer among the first five, MRR the mean of 1 /
rank (0 beyond the 20th). All figures are means over sources and ways of asking, each counting alike.

Beside the product's search, on the same rows: words alone, meaning alone, and Milvus' own fusion of the two by ranks
(RRF). The rivals need no store: TF-IDF over all items in memory, and the items of the pattern, which only helps where
the pattern is known.

*How long it takes.* `LoreSearch.items` on a Milvus Lite with 10^4 and 10^5 items of one tenant, whose texts are mixed
from the real ones; 100 searches after a first one, which builds the index. The rival searches in memory. All rows are
flushed first: Milvus Lite weighs the words of those that are not anew for each search, 0.13 ms a row.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from pymilvus import AnnSearchRequest, MilvusClient, RRFRanker

from benchmarks.milvus import milvus_server
from benchmarks.report import Report, Row
from fleetlore.config import Settings
from fleetlore.errors import ConfigError
from fleetlore.retrieval.encoder import shared_encoder
from fleetlore.stats.hashing import stable_hash
from fleetlore.stats.text_index import TextIndex
from fleetlore.store.search import DIMENSIONS, VECTOR, WORDS, LoreSearch
from fleetlore.transcripts.read import read_sessions
from fleetlore.transcripts.session import LoggedSession
from fleetlore.wire.lore import MemoryItem
from sinks.metrics import Metrics
from sinks.milvus import MilvusStore, row_id
from streams.offline.memory_pipeline import run_logs

LOGS = Path(__file__).parents[2] / "shared" / "data" / "dev"
HELD_OUT = 5  # one agent and one task in so many
SESSIONS, QUESTIONS = 3_500, 100
QUICK_SESSIONS, QUICK_QUESTIONS = 200, 20
LEAST_QUESTIONS = 20  # of a source: a rate over fewer says nothing
TOP, DEEP = 5, 20
SIZES = (10_000, 100_000)
QUICK_SIZES = (300, 600)
SEARCHES = 100
TENANT = "recall"
# An agent that asks waits a second for its model at the least.
LATENCY_BAR_MS = 1_000.0
OURS, RIVAL = "words and meaning (fleetlore)", "TF-IDF in memory"

Ranking = Callable[[str], Awaitable[list[str]]]


class Question(NamedTuple):
    """A failure that was met: ways of asking about it, and ids of the items that answer."""

    texts: dict[str, str]
    pattern: str
    answers: frozenset[str]


class Source(NamedTuple):
    name: str
    items: list[MemoryItem]
    questions: list[Question]


def run(quick: bool, folder: Path = LOGS) -> Report:
    """Measure over all sources below `folder`.

    Raises:
        ConfigError: there are no logged runs that teach something and ask.
    """
    sources = [source for path in sorted(folder.glob("*/steps.jsonl.gz")) for source in _source(path.parent, quick)]
    if not sources:
        raise ConfigError(f"{folder} holds no logged runs of several agents that met failures")
    with milvus_server() as uri:
        found = asyncio.run(_found(uri, sources))
    with milvus_server() as uri:
        took = asyncio.run(_took(uri, sources, QUICK_SIZES if quick else SIZES))
    names = list(next(iter(found.values())))
    hits = {name: fmean(figures[name][0] for figures in found.values()) for name in names}
    ranks = {name: fmean(figures[name][1] for figures in found.values()) for name in names}
    asked = ", ".join(f"{each.name} {len(each.items):,} items, {len(each.questions)} questions" for each in sources)
    rows = [Row(name=name, figure=hits[name], unit="hit@5", note=f"MRR {ranks[name]:.3f}") for name in names]
    rows += [
        Row(name=f"{source.name}, asked with {way}: {name}", figure=found[source.name, way][name][0], unit="hit@5")
        for source in sources
        for way in source.questions[0].texts
        for name in (OURS, RIVAL)
    ]
    largest = max(size for size, _ in took)
    latency = Report(
        name="recall_latency",
        figure=took[largest, OURS][1],
        bar=LATENCY_BAR_MS,
        unit=f"ms, 99th percentile, {largest:,} items",
        peers={RIVAL: took[largest, RIVAL][1]},
        higher_is_better=False,
        reference=RIVAL,
        rows=tuple(
            Row(name=f"{name}, {size:,} items", figure=p50, unit="ms, median", note=f"99th percentile {p99:.3g} ms")
            for (size, name), (p50, p99) in took.items()
        ),
    )
    return Report(
        name="recall",
        figure=hits[OURS],
        bar=hits[RIVAL],
        unit="hit@5",
        peers={name: hits[name] for name in names if name != OURS},
        reference=RIVAL,
        rows=tuple(rows),
        also=(latency,),
        note=asked,
    )


def _source(folder: Path, quick: bool) -> Iterator[Source]:
    """What the sessions of a folder teach, and what the held-out ones ask; nothing where nobody can answer."""

    def asks(session: LoggedSession) -> bool:
        return 0 in (stable_hash(session.agent) % HELD_OUT, stable_hash(session.task) % HELD_OUT)

    sessions = sorted(read_sessions(folder), key=lambda each: stable_hash(each.session))
    most, questions = (QUICK_SESSIONS, QUICK_QUESTIONS) if quick else (SESSIONS, QUESTIONS)
    known = [each for each in sessions if not asks(each)][:most]
    asking = [each for each in sessions if asks(each)][:most]
    learned = asyncio.run(run_logs(known, seed=0, learn=True))
    items = [each for each in learned.items]
    tasks = {each.session: each.task for each in known}
    by_task, by_pattern = defaultdict(set), defaultdict(set)
    for item in items:
        by_pattern[item.pattern].add(item.id)
        for task in {item.task, *(tasks.get(each, "") for each in item.sessions)} - {""}:
            by_task[task].add(item.id)
    made = []
    for trajectory in asyncio.run(run_logs(asking, seed=0, learn=False)).trajectories:
        # The first of each of the session's failures; not those that pass by themselves.
        failed = [each for each in reversed(trajectory.calls) if each.pattern is not None and not each.transient]
        for pattern, step in {each.pattern or "": each for each in failed}.items():
            if answers := by_task[trajectory.task] | by_pattern[pattern]:
                error = step.error_message or step.error_type or ""
                texts = {
                    "the error": error,
                    "call and error": f"{step.tool} {error}\n{step.arguments}",
                    "goal and error": f"{trajectory.goal}\n{error}",
                }
                made.append(Question(texts, pattern, frozenset(answers)))
    if len(made) >= (1 if quick else LEAST_QUESTIONS):
        yield Source(folder.name, items, Random(0).sample(made, min(questions, len(made))))


async def _found(uri: str, sources: Sequence[Source]) -> dict[tuple[str, str], dict[str, tuple[float, float]]]:
    """hit@5 and MRR by source and way of asking, and by who answers."""
    store = MilvusStore(uri, "", shared_encoder(), Metrics("benchmark"))
    await store.open()
    client, found = MilvusClient(uri), {}
    for source in sources:
        await store.upsert("items", [_row(source.name, each) for each in source.items])
    client.flush("items")
    for source in sources:
        search = LoreSearch(Settings(milvus=uri), source.name)
        rankings = _rankings(client, source, search)
        for way in source.questions[0].texts:
            ranks: dict[str, list[int | None]] = defaultdict(list)
            for question in source.questions:
                answers = {name: await ranking(question.texts[way]) for name, ranking in rankings.items()}
                answers["look-up of the pattern"] = _of_pattern(source.items, question.pattern)
                for name, ids in answers.items():
                    places = (place for place, id in enumerate(ids[:DEEP], 1) if id in question.answers)
                    ranks[name].append(next(places, None))
            found[source.name, way] = {
                name: (fmean(rank is not None and rank <= TOP for rank in own), fmean(1 / r if r else 0.0 for r in own))
                for name, own in ranks.items()
            }
        search.close()
    client.close()
    await store.close()
    return found


def _rankings(client: MilvusClient, source: Source, search: LoreSearch) -> dict[str, Ranking]:
    """Ids of the items, the best first, by who answers."""
    index = TextIndex()
    for item in source.items:
        index.put(item.id, item.text)
    clause = f'tenant == "{source.name}"'

    def vector(text: str) -> list[float]:
        found: list[float] = shared_encoder().encode([text])[0, :DIMENSIONS].tolist()
        return found

    def ids(hits: Any) -> list[str]:
        return [hit["id"].partition("/")[2] for hit in hits[0]]

    async def ours(text: str) -> list[str]:
        return [item.id for _, item in await search.items(text)]

    async def words(text: str) -> list[str]:
        return ids(client.search("items", [text], anns_field=WORDS, limit=DEEP, filter=clause))

    async def meaning(text: str) -> list[str]:
        return ids(client.search("items", [vector(text)], anns_field=VECTOR, limit=DEEP, filter=clause))

    async def ranks(text: str) -> list[str]:
        both = [
            AnnSearchRequest([text], WORDS, {"metric_type": "BM25"}, 50, expr=clause),
            AnnSearchRequest([vector(text)], VECTOR, {"metric_type": "COSINE"}, 50, expr=clause),
        ]
        return ids(client.hybrid_search("items", both, RRFRanker(), limit=DEEP))

    async def in_memory(text: str) -> list[str]:
        return [id for id, _ in index.like(text, 1e-6, DEEP)]

    return {
        OURS: ours,
        "words alone": words,
        "meaning alone": meaning,
        "both, fused by ranks": ranks,
        RIVAL: in_memory,
    }


def _of_pattern(items: Sequence[MemoryItem], pattern: str) -> list[str]:
    return [each.id for each in sorted(items, key=lambda each: -each.agents) if each.pattern == pattern]


async def _took(
    uri: str, sources: Sequence[Source], sizes: Sequence[int]
) -> dict[tuple[int, str], tuple[float, float]]:
    """Median and 99th percentile in milliseconds, by number of items and by who answers."""
    store = MilvusStore(uri, "", shared_encoder(), Metrics("benchmark"))
    await store.open()
    texts = [text for source in sources for question in source.questions for text in question.texts.values()]
    asked = Random(1).sample(texts, min(SEARCHES, len(texts)))
    search, index, mixed, held, took = LoreSearch(Settings(milvus=uri), TENANT), TextIndex(), _mixed(sources), 0, {}
    client = MilvusClient(uri)
    for size in sizes:
        while held < size:
            rows = [_row(TENANT, each) for each in islice(mixed, min(1_000, size - held))]
            held += len(rows)
            await store.upsert("items", rows)
            for row in rows:
                index.put(row["id"], row["text"])
        client.flush("items")
        await search.items(asked[0], timeout_seconds=300.0)
        milvus, memory = [], []
        for text in asked:
            began = time.perf_counter()
            await search.items(text, timeout_seconds=300.0)
            milvus.append(time.perf_counter() - began)
            began = time.perf_counter()
            index.like(text, 1e-6, DEEP)
            memory.append(time.perf_counter() - began)
        for name, seconds in ((OURS, milvus), (RIVAL, memory)):
            p50, p99 = np.percentile(seconds, (50, 99)) * 1e3
            took[size, name] = float(p50), float(p99)
    search.close()
    client.close()
    await store.close()
    return took


def _mixed(sources: Sequence[Source]) -> Iterator[MemoryItem]:
    """Items without end, each a half of one and a half of another, so that words are as frequent as they are."""
    rng, items = Random(0), [item for source in sources for item in source.items]
    number = 0
    while True:
        one, other = rng.sample(items, 2)
        text = f"{one.text[: len(one.text) // 2]} {other.text[len(other.text) // 2 :]}"
        number += 1
        yield MemoryItem(
            id=f"{number:08}", tenant=TENANT, kind=one.kind, title=text, description="", content="", when=""
        )


def _row(tenant: str, item: MemoryItem) -> dict[str, Any]:
    return {
        "id": row_id(tenant, item.id),
        "tenant": tenant,
        "kind": item.kind,
        "tool": item.tool,
        "body": item.to_json().decode(),
        "text": item.text,
    }
