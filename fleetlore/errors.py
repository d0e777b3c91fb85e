"""Define every error that fleetlore raises on purpose.

    FleetloreError
    ├── ConfigError             a setting is missing, malformed or contradicts another
    ├── NotOpen                 a fleet or session is used outside its `with` block, after a fork or its loop's end
    ├── CallHeld                a call was not made, for it will fail: give its text to the model as the answer
    ├── InvalidEvent            send it to the dead letters; carries a reason
    ├── BrokerUnavailable       the broker did not answer in time; try again
    │   └── LeaseLapsed         another worker may own the partitions by now: write nothing
    ├── TopicsChanged           topics were grown or made anew under a running worker: end it and begin anew
    ├── StoreUnavailable        the vector store did not answer in time; try again
    ├── RowRefused              the vector store will never take these rows; the others of the batch are written
    ├── RecordsRefused          the broker will never take these records; the others of the call are written
    ├── BreakerTripped          a whole stream is being refused: stop, commit nothing, alert an operator
    ├── AdapterRefused          keep the adapter in use; carries a reason
    ├── ChannelMoved            the adapters' channel was moved by another process first: read it and decide again
    ├── ModelUnavailable        an optional package or a model file is missing
    └── StackError              a child process of the embedded stack did not start or died

Whatever else is raised is a bug.
"""

from __future__ import annotations


class FleetloreError(Exception):
    """Base of all errors below."""


class ConfigError(FleetloreError):
    """A setting is missing, malformed or contradicts another."""


class NotOpen(FleetloreError):
    """A fleet or session is used outside its `with` block, in a forked process, or after its event loop has ended."""


class CallHeld(FleetloreError):
    """A call was not made, for it is sure to fail: its text says what to do instead. Sent again, it is made."""


class _WithReason(FleetloreError):
    """An error with a `reason` from a bounded set, fit for a metric label, and a `detail`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class InvalidEvent(_WithReason):
    """Bytes or an event that can never be processed (`not_json`, `missing_field`, …)."""


class BrokerUnavailable(FleetloreError):
    """The broker did not answer in time. Try again."""


class TopicsChanged(FleetloreError):
    """Topics were grown or made anew. The worker must end and begin anew."""


class LeaseLapsed(BrokerUnavailable):
    """The group did not answer, so another worker may own the partitions: do not write."""


class StoreUnavailable(FleetloreError):
    """The vector store did not answer in time. Try again."""


class RowRefused(FleetloreError):
    """Rows that the vector store will never take. The others of the call are written.

    Attributes:
        ids: of the refused rows.
        detail: the store's error for the first of them.
    """

    def __init__(self, collection: str, ids: tuple[str, ...], detail: str) -> None:
        super().__init__(f"{collection} refused {len(ids)} rows, {ids[0][:100]!r} first: {detail}")
        self.collection = collection
        self.ids = ids
        self.detail = detail


class RecordsRefused(FleetloreError):
    """Records that the broker will never take. The others of the call are written.

    Attributes:
        values: (topic, value) of the refused records.
        detail: the broker's error for the first of them.
    """

    def __init__(self, values: tuple[tuple[str, bytes], ...], detail: str) -> None:
        super().__init__(f"the broker refused {len(values)} records, the first for {values[0][0]}: {detail}")
        self.values = values
        self.detail = detail


class BreakerTripped(FleetloreError):
    """A whole stream is refused. The worker stops before it drains into the dead letters."""


class AdapterRefused(_WithReason):
    """An adapter version that must not be applied (`tampered`, `foreign`, …). The one in use stays."""


class ChannelMoved(FleetloreError):
    """Another process moved the adapters' channel first. Decide again."""


class ModelUnavailable(FleetloreError):
    """An optional package or a model file is missing. The text names the extra."""


class StackError(FleetloreError):
    """A child process of the embedded stack did not start or died."""
