"""Search a tenant's lore in Milvus, and texts in memory, by words.

Milvus weighs words by BM25. If workers and agent have the extra `[meaning]`, items are also searched by the cosine of
static vectors. Scores are fused here: Milvus Lite and a cluster scale them differently, and rank fusion loses the best
match's margin.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from sys import intern
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, get_args
from urllib.parse import urlsplit

from fleetlore.cluster import StackFolder
from fleetlore.config import Settings
from fleetlore.errors import ConfigError, ModelUnavailable, StoreUnavailable, extra
from fleetlore.loopback import is_loopback
from fleetlore.recall.encoder import Encoder, installed_encoder
from fleetlore.wire.lore import ItemKind, Level, MemoryItem, Pattern
from fleetlore.words import WORD, words

if TYPE_CHECKING:
    from pymilvus import MilvusClient

__all__ = [
    "MADE_BY", "SEARCH_SECONDS", "LoreSearch", "TextIndex", "connect", "encoder_mark", "message_of", "milvus_errors",
    "quoted", "row_id",
]  # fmt: skip

# The rarest words; a goal may have 2,000 characters.
_MAX_QUERY_WORDS = 64


class TextIndex:
    """Finds texts by exact cosine of tf-idf (binary tf)."""

    def __init__(self) -> None:
        # Shared words take a quarter of the memory of sets.
        self._words: dict[str, tuple[str, ...]] = {}
        self._holding: dict[str, set[str]] = defaultdict(set)

    def put(self, id: str, text: str) -> None:
        self._words[id] = kept = tuple(dict.fromkeys(map(intern, words(text))))
        for word in kept:
            self._holding[word].add(id)

    def like(self, query: str, threshold: float, most: int) -> list[tuple[str, float]]:
        """Return pairs (id, cosine in 0..1) at or above the threshold, best first, ties by id."""
        if not threshold > 0:
            raise ValueError(f"a threshold is above 0, not {threshold}")
        if not self._words:
            return []
        weights = {word: self._weight(word) for word in set(words(query))}
        asked = sorted(weights, key=lambda word: (-weights[word], word))[:_MAX_QUERY_WORDS]
        total = sum(weights[word] for word in asked)
        shared: dict[str, float] = defaultdict(float)
        for word in asked:
            for id in self._holding.get(word, ()):
                shared[id] += weights[word]
        found = []
        for id, both in shared.items():
            # A shared weight bounds the cosine by sqrt(both / total).
            if both >= threshold * threshold * total:
                length = sum(self._weight(word) for word in self._words[id])
                cosine = min(1.0, both / math.sqrt(total * length))
                if cosine >= threshold:
                    found.append((id, cosine))
        return sorted(found, key=lambda each: (-each[1], each[0]))[:most]

    def shares(self, query: str) -> dict[str, float]:
        """Return the share of the query's word weight that each text holds, without zeros."""
        weights = {word: self._weight(word) for word in set(words(query))}
        held: dict[str, float] = defaultdict(float)
        for word, weight in weights.items():
            for id in self._holding.get(word, ()):
                held[id] += weight
        total = sum(weights.values())
        return {id: weight / total for id, weight in held.items()}

    def _weight(self, word: str) -> float:
        """Return the squared idf, smoothed: a word in every text counts a little."""
        idf = math.log(1 + len(self._words) / (1 + len(self._holding.get(word, ()))))
        return idf * idf


# A gRPC server closes an idle connection that pings within 5 minutes; pymilvus pings every 10 s.
_GRPC_OPTIONS = {"grpc.keepalive_time_ms": 300_000, "grpc.keepalive_permit_without_calls": 0}


def connect(uri: str, token: str, timeout_seconds: float) -> MilvusClient:
    with extra("recall", "Milvus is reached with"):
        from pymilvus import MilvusClient
        from pymilvus.client.utils import SciPyHelper
    # The caller logs an error once.
    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
    # pymilvus imports scipy at its first row, which fails in parallel threads.
    SciPyHelper.is_scipy_sparse(None)
    # gRPC would use `http_proxy` even for this machine.
    direct = {"grpc.enable_http_proxy": 0} if is_loopback(urlsplit(uri).hostname or "") else {}
    return MilvusClient(uri=uri, token=token, timeout=timeout_seconds, grpc_options=_GRPC_OPTIONS | direct)


def milvus_errors() -> tuple[type[Exception], ...]:
    from grpc import RpcError
    from pymilvus import MilvusException

    return MilvusException, RpcError


def message_of(error: Exception) -> str:
    return str(getattr(error, "message", error))


_Result = TypeVar("_Result")

TEXT, WORDS, VECTOR = "text", "words", "vector"
MADE_BY = "fleetlore.made_by"

SEARCH_SECONDS = 5.0
CANDIDATES = 50
_MAX_QUERY = 2_000
# Queries omit words in a tenth of this many texts: Milvus Lite reads all texts with them.
SAMPLED_TEXTS = 1_000
_COMMON_SHARE = 0.1
LEAST_WORDS = 4
_SEARCHES_PER_SAMPLE = 1_000
# The best match by words counts 1.
_MEANING_WEIGHT = 0.5
# Scores that differ by less are equal.
ALIKE = 0.02
# Least tf-idf and vector cosines. One in 50 pairs of a logged error and an item of other tools has them.
_LEAST_LIKENESS = 0.1
_LEAST_COSINE = 0.35


class _Match(NamedTuple):
    score: float
    cosine: float
    body: bytes


class LoreSearch:
    """Searches one tenant. Each search raises ModelUnavailable (without the extra `[recall]`), ConfigError (no worker
    of this version has written to the store), or StoreUnavailable (Milvus does not answer in time, or no stack runs on
    `data`).
    """

    def __init__(self, settings: Settings, tenant: str, data: str | Path | None = None) -> None:
        self._folder = None if data is None else StackFolder(Path(data))
        self._uri, self._token = settings.milvus, settings.milvus_token
        self._tenant = tenant
        # pymilvus blocks.
        self._thread = ThreadPoolExecutor(1, "fleetlore-search")
        self._client: MilvusClient | None = None
        # The encoder of its vectors, by collection.
        self._checked: dict[str, Encoder | None] = {}
        self._searches: Counter[str] = Counter()
        self._common: dict[str, Mapping[str, int]] = {}

    async def items(
        self, text: str, *, kind: ItemKind | None = None, least: int = 0, timeout_seconds: float = SEARCH_SECONDS
    ) -> list[tuple[float, MemoryItem]]:
        # Rows without a kind hold only state.
        kinds = get_args(ItemKind) if kind is None else (kind,)
        condition = f"kind in [{', '.join(map(quoted, kinds))}]"

        def work() -> list[tuple[float, MemoryItem]]:
            matches = self._matches("items", text, condition, max(least, CANDIDATES), timeout_seconds)
            items = [(each, MemoryItem.from_json(each.body)) for each in matches]
            index = TextIndex()
            for _, item in items:
                index.put(item.id, item.text)
            alike = dict(index.like(text[:_MAX_QUERY], _LEAST_LIKENESS, max(1, len(items))))
            best = max(alike.values(), default=1.0)
            found = [
                ((match.score + alike.get(item.id, 0.0) / best) / 2, item)
                for match, item in items
                if match.cosine >= _LEAST_COSINE or item.id in alike
            ]
            return sorted(found, key=lambda each: _rank(each[0], each[1], each[1].support))

        return await self._within(timeout_seconds, work)

    async def patterns(
        self,
        text: str,
        *,
        level: Level,
        tool: str | None = None,
        least: int = 0,
        timeout_seconds: float = SEARCH_SECONDS,
    ) -> list[tuple[float, Pattern]]:
        """Return failure patterns that share words with a text, with scores, best first."""
        condition = f"level == {quoted(level)}" + ("" if tool is None else f" and tool == {quoted(tool)}")
        matches = await self._within(
            timeout_seconds, lambda: self._matches("patterns", text, condition, max(least, CANDIDATES), timeout_seconds)
        )
        found = [(match.score, Pattern.from_json(match.body)) for match in matches]
        return sorted(found, key=lambda each: _rank(each[0], each[1], each[1].sessions))

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._client is not None:
            self._client.close()
            self._client = None

    async def _within(self, seconds: float, work: Callable[[], _Result]) -> _Result:
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except TimeoutError:
            raise StoreUnavailable(f"Milvus at {self._uri} did not answer within {seconds:g} s") from None

    def _matches(self, collection: str, text: str, condition: str, most: int, timeout_seconds: float) -> list[_Match]:
        asked = text[:_MAX_QUERY].encode("utf-8", "replace").decode()
        clause = f"tenant == {quoted(self._tenant)} and {condition}"
        try:
            client = self._client_for(collection, timeout_seconds)
            bodies: dict[str, str] = {}

            def search(field: str, query: Any) -> dict[str, float]:
                # Waiting for the newest rows takes a cluster longer than the search.
                options = {"output_fields": ["body"], "timeout": timeout_seconds, "consistency_level": "Bounded"}
                hits = client.search(collection, [query], anns_field=field, limit=most, filter=clause, **options)[0]
                bodies.update((hit["id"], hit["entity"]["body"]) for hit in hits)
                # Milvus Lite negates scores by words.
                return {hit["id"]: abs(hit["distance"]) if field == WORDS else hit["distance"] for hit in hits}

            if self._searches[collection] % _SEARCHES_PER_SAMPLE == 0:
                sample = {"output_fields": [TEXT], "limit": SAMPLED_TEXTS, "timeout": timeout_seconds}
                rows = client.query(collection, clause, **sample)
                self._common[collection] = common_words([row[TEXT] for row in rows])
            self._searches[collection] += 1
            words = telling_words(asked, self._common[collection])
            by_words = search(WORDS, words) if words else {}
            encoder = self._checked[collection]
            vector = encoder.encode([asked])[0].tolist() if encoder else []
            by_meaning = search(VECTOR, vector) if any(vector) else {}
        except (ConfigError, ModelUnavailable):
            raise
        except milvus_errors() as error:
            self._checked.pop(collection, None)  # a backfill may have replaced it by one without vectors
            raise StoreUnavailable(f"Milvus at {self._uri}: {message_of(error)}") from error
        scores = fused(by_words, by_meaning if encoder else None)
        return [_Match(score, by_meaning.get(id, 0.0), bodies[id].encode()) for id, score in scores.items()]

    def _follow_stack(self) -> None:
        if self._folder is None:
            return
        try:
            uri = self._folder.read()["milvus"]
        except ConfigError as error:
            raise StoreUnavailable(str(error)) from None
        if uri != self._uri:
            self._uri, client, self._client = uri, self._client, None
            self._checked.clear()
            if client is not None:
                client.close()

    def _client_for(self, collection: str, timeout_seconds: float) -> MilvusClient:
        self._follow_stack()
        if self._client is None:
            self._client = connect(self._uri, self._token, timeout_seconds)
        if collection not in self._checked:
            if not self._client.has_collection(collection):
                raise ConfigError(f"Milvus at {self._uri} holds no {collection}: no worker has run on it")
            described = self._client.describe_collection(collection)
            if WORDS not in {field["name"] for field in described["fields"]}:
                raise ConfigError(
                    f"collection {collection!r} was filled by an earlier version and cannot be searched; upgrade the "
                    "workers and fill a new one with `fleetlore backfill run NAME`"
                )
            encoder, made_by = installed_encoder(), described["properties"].get(MADE_BY, "")
            # Vectors of different encoders cannot be compared.
            self._checked[collection] = encoder if encoder and made_by.endswith(encoder_mark(encoder)) else None
        return self._client


def common_words(texts: Sequence[str]) -> Mapping[str, int]:
    """Count the texts with each common word; empty for few texts."""
    if len(texts) < SAMPLED_TEXTS:
        return {}
    held = Counter(word for text in texts for word in set(WORD.findall(text.lower())))
    return {word: count for word, count in held.items() if count > _COMMON_SHARE * len(texts)}


def telling_words(text: str, common: Mapping[str, int]) -> str:
    """Return a text's words without common ones, except the rarest if few others remain."""
    words = WORD.findall(text.lower())
    by_rarity = sorted(set(words), key=lambda word: (common.get(word, 0), word))
    kept = {word for place, word in enumerate(by_rarity) if place < LEAST_WORDS or word not in common}
    return " ".join([word for word in words if word in kept])


def fused(by_words: Mapping[str, float], by_meaning: Mapping[str, float] | None = None) -> dict[str, float]:
    best = max(by_words.values(), default=0.0)
    # A word in every text weighs 0.
    words = {id: score / best if best > 0 else 0.0 for id, score in by_words.items()}
    if by_meaning is None:
        return words
    return {
        id: (words.get(id, 0.0) + _MEANING_WEIGHT * max(0.0, by_meaning.get(id, 0.0))) / (1 + _MEANING_WEIGHT)
        for id in {**words, **by_meaning}
    }


def _rank(score: float, entry: Pattern | MemoryItem, sessions: int) -> tuple[int, int, int, float, str]:
    return -round(score / ALIKE), -entry.agents, -sessions, -score, entry.id


def encoder_mark(encoder: Encoder) -> str:
    """Return the end of `MADE_BY` for vectors of this encoder."""
    return f", encoder {encoder.name} {encoder.sha256}"


_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r"})


def quoted(text: str) -> str:
    """Return a string literal of Milvus' filter language. Milvus Lite knows few escapes."""
    return f'"{text.encode("utf-8", "replace").decode().translate(_ESCAPES)}"'


def row_id(tenant: str, id: str) -> str:
    """Return the primary key of a row. Tenant names have no slash."""
    return f"{tenant}/{id}"
