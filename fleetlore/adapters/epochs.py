"""Keep the newest pointers and the revocations that this host has seen, so that a restart cannot be led back.

A broker's compacted topic can be made to end with an older pointer, signed as truly as the newer one. A process that
has seen the newer one refuses it; the next process on this host refuses it because of this file. What it holds is
signed, and verified again when it is read. A host that has none, its first time, believes what the topics say.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping
from pathlib import Path

import orjson

from fleetlore.files import write_whole

log = logging.getLogger(__name__)


class EpochFile:
    """`FOLDER/TENANT.adapters.json`: records of `adapters.pointers` by key. Never raises: an agent runs without it."""

    def __init__(self, folder: str, tenant: str) -> None:
        self.path = Path(folder).expanduser() / f"{tenant}.adapters.json"

    def load(self) -> list[tuple[bytes, bytes]]:
        """The records, not verified; none where the file is missing or broken."""
        try:
            held = orjson.loads(self.path.read_bytes())
            return [(key.encode(), base64.b64decode(value)) for key, value in held.items()]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, AttributeError, TypeError) as error:
            log.warning("%s cannot be read: the epochs seen before are not known (%r)", self.path, error)
            return []

    def save(self, records: Mapping[bytes, bytes]) -> None:
        """Keep verified records."""
        held = {key.decode(): base64.b64encode(value).decode() for key, value in records.items()}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_whole(self.path, orjson.dumps(held, option=orjson.OPT_INDENT_2))
        except OSError as error:
            log.warning("%s cannot be written: a restart may be led back to an older version (%r)", self.path, error)
