"""Hold the version of the call model that an agent runs, checked before it is used."""

from __future__ import annotations

import threading
from typing import NamedTuple
from weakref import WeakValueDictionary

from fleetlore.adapters.blob_store import sha256_of
from fleetlore.calls.document import MAX_BYTES
from fleetlore.calls.model import CallModel
from fleetlore.errors import AdapterRefused
from fleetlore.wire.adapter_manifest import CallsManifest

# Agents of one process run the same version, and a model is never written to: what one of them has read serves all.
_models: WeakValueDictionary[str, CallModel] = WeakValueDictionary()
_READING = threading.Lock()


class _LoadedCalls(NamedTuple):
    """A version that passed every check."""

    version: str
    model: CallModel


class CallModelSlot:
    """Runs one version of the call model at a time (an `AdapterHolder`); at first none."""

    kind = CallsManifest

    def __init__(self) -> None:
        self._current: _LoadedCalls | None = None

    @property
    def model(self) -> CallModel | None:
        """The version in use."""
        current = self._current
        return current.model if current else None

    @property
    def version(self) -> str | None:
        """sha256 of the version in use."""
        current = self._current
        return current.version if current else None

    def prepare(self, weights: bytes, manifest: CallsManifest) -> _LoadedCalls:
        """Check everything and read; the version in use is not touched. Safe on another thread.

        Raises AdapterRefused with the reason `oversized`, `tampered` or `structure`.
        """
        if len(weights) > MAX_BYTES:
            raise AdapterRefused("oversized", f"{len(weights)} bytes")
        if sha256_of(weights) != manifest.version:
            raise AdapterRefused("tampered", "the weights are not the ones the manifest names")
        with _READING:
            model = _models.get(manifest.version)
            if model is None:
                try:
                    model = CallModel.from_bytes(weights)
                except ValueError as error:
                    raise AdapterRefused("structure", str(error)) from error
                _models[manifest.version] = model
        return _LoadedCalls(manifest.version, model)

    def apply(self, loaded: _LoadedCalls) -> None:
        """Put a prepared version into use: one assignment."""
        self._current = loaded

    def reset(self) -> None:
        """Run no version: one assignment."""
        self._current = None

    def is_loaded(self, manifest: CallsManifest) -> bool:
        """Whether an agent of this process runs this version: to prepare it then takes no time."""
        return manifest.version in _models
