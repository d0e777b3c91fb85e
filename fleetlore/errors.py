"""Define every error that fleetlore raises on purpose, and what to do about it.

    FleetloreError
    ├── ConfigError             correct the settings
    │   └── WordsChanged        read the words again and decide anew
    ├── NotOpen                 enter the fleet or session first
    ├── CallHeld                give its text to the model as the call's answer
    ├── InvalidEvent            send it to the dead letters
    ├── BrokerUnavailable       try again
    │   └── LeaseLapsed         write nothing
    ├── TopicsChanged           end the worker and begin anew
    ├── StoreUnavailable        try again
    ├── RowRefused              the other rows of the batch are written
    ├── RecordsRefused          the other records of the call are written
    ├── BreakerTripped          stop, commit nothing, alert an operator
    ├── AdapterRefused          keep the adapter in use
    ├── ChannelMoved            read the channel and decide again
    ├── ModelUnavailable        install the extra that its text names
    └── StackError              read the child's log

Any other exception is a bug.
"""

from collections.abc import Iterator
from contextlib import contextmanager


class FleetloreError(Exception):
    """Base of all errors below."""


class ConfigError(FleetloreError):
    """A setting is missing, malformed or contradicts another."""


class WordsChanged(ConfigError):
    """The words to approve are not those that the person read."""


class NotOpen(FleetloreError):
    """Used outside a fleet's or session's `with` block, in a forked process, or after its event loop's end."""


class CallHeld(FleetloreError):
    """A call that is sure to fail was not made: the text says what to do instead. Sent again, it is made."""


class _WithReason(FleetloreError):
    """An error with a `reason` from a bounded set (a metric label)."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class InvalidEvent(_WithReason):
    """Bytes or an event that can never be processed (`not_json`, `missing_field`, …)."""


class BrokerUnavailable(FleetloreError):
    """The broker did not answer in time."""


class TopicsChanged(FleetloreError):
    """Topics were grown or made anew under a running worker."""


class LeaseLapsed(BrokerUnavailable):
    """The group did not answer, so another worker may own the partitions."""


class StoreUnavailable(FleetloreError):
    """The vector store did not answer in time."""


class RowRefused(FleetloreError):
    """Rows, by their ids, that the vector store will never take. `detail`: its error for the first."""

    def __init__(self, collection: str, ids: tuple[str, ...], detail: str) -> None:
        super().__init__(f"{collection} refused {len(ids)} rows, {ids[0][:100]!r} first: {detail}")
        self.collection = collection
        self.ids = ids
        self.detail = detail


class RecordsRefused(FleetloreError):
    """Records, as (topic, value), that the broker will never take. `detail`: its error for the first."""

    def __init__(self, values: tuple[tuple[str, bytes], ...], detail: str) -> None:
        super().__init__(f"the broker refused {len(values)} records, the first for {values[0][0]}: {detail}")
        self.values = values
        self.detail = detail


class BreakerTripped(FleetloreError):
    """A whole stream is refused, and would drain into the dead letters."""


class AdapterRefused(_WithReason):
    """An adapter version that must not be applied (`tampered`, `foreign`, …)."""


class ChannelMoved(FleetloreError):
    """Another process moved the adapters' channel first."""


class ModelUnavailable(FleetloreError):
    """An optional package or a model file is missing."""


class StackError(FleetloreError):
    """A child process of the embedded stack did not start or died."""


@contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """Raises ModelUnavailable with the install command if an extra's modules cannot be imported."""
    try:
        yield
    except ImportError as error:
        raise ModelUnavailable(f"{what} {error.name}: pip install 'fleetlore[{name}]' from your index") from None
