"""Stand in for an emitter and for the worker behind it: what a door takes, a worker must take as well."""

from fleetlore import Fleet
from fleetlore.kafka.encode import Encoded, encode, mask, record
from fleetlore.testing import FakeClock
from fleetlore.wire.events import BATCH_HEADERS, Event
from fleetlore.wire.topics import topic
from streams.stage.base import Effects, Record
from streams.stages.s1_sessions.parse import read_events
from tests.build import memory_item, met
from tests.doubles.recorder import Recorder
from tests.fleetlore.relay.conftest import NOW

_AT_ONCE = 64


class Worker(Recorder):
    """Encodes events as an emitter does, and raises where an emitter would drop one."""

    def __init__(self) -> None:
        super().__init__()
        self._encoded: list[Encoded] = []

    def emit(self, event: Event, *, at_once: bool = False) -> bool:
        self._encoded.append(encode(event))
        return super().emit(event, at_once=at_once)

    def read(self) -> None:
        """Read all events as the first stage does. Raises AssertionError where one would become a dead letter."""
        for start in range(0, len(self._encoded), _AT_ONCE):
            value = record(mask(self._encoded[start : start + _AT_ONCE]))
            effects = Effects()
            read_events(Record(topic("default", "events"), 0, 0, None, value, dict(BATCH_HEADERS)), effects)
            refused = [(each.reason, each.detail, each.value) for each in effects.dead_letters]
            assert not refused, f"an event was taken here and is a dead letter at a worker: {refused[:3]}"


def fleet_of(worker: Worker) -> Fleet:
    """A fleet without a broker that knows one failure and what helps against it."""
    fleet = Fleet("relay", broker="nowhere:1", holdout_share=0.0, clock=FakeClock(NOW))
    fleet.emitter = worker
    arguments, error = {"index": "products"}, "index products does not exist"
    fleet.replica.index.put_pattern(met("search", arguments, "LookupError", error))
    change = {"was": ("index=products",), "now": ("index=products-eu",)}
    fleet.replica.index.put_item(memory_item("better", tool="search", support=3, agents=3, **change))
    return fleet
