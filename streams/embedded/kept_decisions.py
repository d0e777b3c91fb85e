"""Keep operators' decisions and erasures in the stack's folder: the in-memory broker loses them."""

from collections.abc import Iterable
from pathlib import Path

import msgspec
import orjson

from fleetlore.clock import SystemClock
from fleetlore.config import Settings
from fleetlore.errors import StackError
from fleetlore.files import write_whole
from fleetlore.kafka.read import Fetched, Follower
from fleetlore.wire.lore import DECISIONS, HISTORY, Decision
from fleetlore.wire.topics import tenant_of, topic
from sinks.producer import BatchProducer
from streams.stage.base import Outgoing
from streams.stage.operators import ERASURES, put_in_history

_NAMES = (ERASURES, DECISIONS, HISTORY)


class KeptDecisions:
    def __init__(self, path: Path, settings: Settings) -> None:
        self._path = path
        self._settings = settings
        self._text = path.read_bytes() if path.exists() else b"{}"
        try:
            self._known = msgspec.json.decode(self._text, type=dict[str, dict[str, str]])
        except ValueError as error:  # also a UnicodeDecodeError
            raise StackError(
                f"{path}, the copy of what persons decided, cannot be read ({error}): restore it from a backup, or "
                "move it away if this folder keeps the event log, which holds the decisions, too"
            ) from None
        for name, known in self._known.items():
            if name.endswith(HISTORY):  # the file of an older release has other keys
                self._known[name] = _history(text.encode() for text in known.values())

    async def restore(self) -> None:
        async with BatchProducer(self._settings.cluster) as producer:
            values = [
                Outgoing(tenant_of(name), name.split(".", 2)[2], key, value.encode())
                for name in self._topics
                for key, value in self._known.get(name, {}).items()
            ]
            await producer.deliver(values)

    async def follow(self) -> None:
        cluster, wait_ms = self._settings.cluster, self._settings.fetch_wait_ms
        what, clock = "what operators said", SystemClock()
        await Follower(cluster, self._topics, self._take, what=what, fetch_wait_ms=wait_ms, clock=clock).run()

    @property
    def _topics(self) -> list[str]:
        return [topic(tenant, name) for tenant in self._settings.tenants for name in _NAMES]

    async def _take(self, fetched: Fetched) -> None:
        for part, records in fetched.items():
            known = self._known.setdefault(part.topic, {})
            if part.topic.endswith(HISTORY):  # its records have no keys
                texts = [text.encode() for text in known.values()]
                self._known[part.topic] = _history([*texts, *(each.value or b"" for each in records)])
                continue
            for record in records:
                if record.value:
                    known[(record.key or b"").decode("utf-8", "replace")] = record.value.decode("utf-8", "replace")
                else:
                    known.pop((record.key or b"").decode("utf-8", "replace"), None)
        text = orjson.dumps(self._known)
        if text != self._text:
            write_whole(self._path, text)
            self._text = text


def _history(values: Iterable[bytes]) -> dict[str, str]:
    history: dict[str, Decision] = {}
    for value in values:
        put_in_history(history, value)
    return {key: each.to_json().decode() for key, each in history.items()}
