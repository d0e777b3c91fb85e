"""Locate the signing key and the adapter versions of an embedded stack."""

from __future__ import annotations

from pathlib import Path

from fleetlore.config import Settings

__all__ = ["with_key"]

SIGNING_KEY = Path("keys", "adapter_ed25519")
ADAPTERS = Path("adapters")


def with_key(settings: Settings, data: Path | None) -> Settings:
    """Return settings that sign with the key of the stack in `data`. Without a folder, return them unchanged."""
    if data is None:
        return settings
    return settings.with_(
        signing_key=settings.signing_key or str(data / SIGNING_KEY),
        adapters_dir=settings.adapters_dir or str(data / ADAPTERS),
    )
