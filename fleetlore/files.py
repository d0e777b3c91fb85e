"""Write files whole or not at all, so that other processes read the old file or the new one."""

from __future__ import annotations

import os
import threading
from pathlib import Path

_OWNER_ALONE = 0o600


def write_whole(file: Path, data: bytes, mode: int = _OWNER_ALONE) -> None:
    # Fleets in several threads may write it.
    draft = file.with_name(f".{file.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as handle:
            handle.write(data)
            handle.flush()
            # After a power cut the new name could be an empty file.
            os.fsync(handle.fileno())
        draft.replace(file)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
